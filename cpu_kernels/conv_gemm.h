#pragma once
// Note [Implicit GEMM]
// A convolution as a matrix product whose operand is never written out: the packing of the GEMM gathers it. With pixels p of y,
// kernel positions q and channels c, o of a group:
//   y[p, o]      = sum over (q, c) of x[p * stride - padding + q * dilation, c] w[q, c, o]
//   dx[p', c]    = sum over (q, o) of dy[(p' + padding - q * dilation) / stride, o] w[q, c, o]   where the division is exact
//   dw[o, (q, c)] = sum over p     of dy[p, o] x[p * stride - padding + q * dilation, c]
// Any strides, groups, rank and floating type; the form that every other convolution kernel is tested against.
#include "dnn.h"
#include "gemm.h"
#include "kernels.h"

namespace tapir::inline v0::cpu {

/// An operand (n, channel, spatial...) by its strides; extents behind `spatial` have stride 0.
template <class T> struct Field {
  T* data = nullptr;
  int64_t n = 0, channel = 0, at[3] = {};
};
template <class T> Field<T> field(V x) {
  Field<T> f{x.as<T>(), x.strides[0], x.strides[1]};
  for (int64_t d = 2; d < x.rank; ++d) f.at[d - 2] = x.strides[d];
  return f;
}

/// Pixels of a field in row-major order, and what a kernel position makes of them in the other field.
struct Pixels {
  const int64_t* extents;  // of the field that is walked
  void locate(int64_t pixel, int64_t& n, int64_t* p) const {
    for (int d = 2; d >= 0; --d) p[d] = pixel % extents[d], pixel /= extents[d];
    n = pixel;
  }
};
inline int64_t volume(const int64_t* extents) { return extents[0] * extents[1] * extents[2]; }

/// Where output pixel p reads at kernel position q: false in the padding.
inline bool source_of(const dnn::ConvShape& s, const int64_t* p, const int64_t* q, int64_t* from) {
  for (int d = 0; d < 3; ++d) {
    from[d] = p[d] * s.stride[d] - s.padding[d] + q[d] * s.dilation[d];
    if (from[d] < 0 || from[d] >= s.in[d]) return false;
  }
  return true;
}
/// Which output pixel used input pixel p at kernel position q.
inline bool target_of(const dnn::ConvShape& s, const int64_t* p, const int64_t* q, int64_t* to) {
  for (int d = 0; d < 3; ++d) {
    const int64_t up = p[d] + s.padding[d] - q[d] * s.dilation[d];
    to[d] = up / s.stride[d];
    if (up < 0 || up % s.stride[d] != 0 || to[d] >= s.out[d]) return false;
  }
  return true;
}

template <class T> class ConvGemm {
 public:
  ConvGemm(Context& ctx, const dnn::ConvShape& s, V x, V w, V y)
      : ctx_(ctx), s_(s), x_(field<T>(x)), w_(field<T>(w)), y_(field<T>(y)) {}

  void forward(const T* bias) {
    const int64_t og = s_.o / s_.groups, cg = s_.c / s_.groups;
    const Pixels pixels{s_.out};
    packed_gemm<T>(
        ctx_, s_.groups, s_.n * volume(s_.out), og, volume(s_.kernel) * cg,
        [&](T* to, int64_t g, int64_t i0, int64_t rows, int64_t k0, int64_t depth) {
          gather_rows(to, x_, g * cg, cg, pixels, i0, rows, k0, depth, source_of);
        },
        [&](T* to, int64_t g, int64_t j0, int64_t columns, int64_t k0, int64_t depth) {
          pack_weight(to, g * og, 0, w_.n, w_.channel, cg, j0, columns, k0, depth);
        },
        [&](int64_t g, int64_t i0, int64_t rows, int64_t j0, int64_t columns, const T* tile, int64_t ld) {
          scatter(y_, pixels, i0, rows, g * og + j0, columns, tile, ld, bias);
        });
  }

  void backward_data() {
    const int64_t og = s_.o / s_.groups, cg = s_.c / s_.groups;
    const Pixels pixels{s_.in};
    packed_gemm<T>(
        ctx_, s_.groups, s_.n * volume(s_.in), cg, volume(s_.kernel) * og,
        [&](T* to, int64_t g, int64_t i0, int64_t rows, int64_t k0, int64_t depth) {
          gather_rows(to, y_, g * og, og, pixels, i0, rows, k0, depth, target_of);
        },
        [&](T* to, int64_t g, int64_t j0, int64_t columns, int64_t k0, int64_t depth) {
          pack_weight(to, 0, g * og, w_.channel, w_.n, og, j0, columns, k0, depth);
        },
        [&](int64_t g, int64_t i0, int64_t rows, int64_t j0, int64_t columns, const T* tile, int64_t ld) {
          scatter(x_, pixels, i0, rows, g * cg + j0, columns, tile, ld, nullptr);
        });
  }

  /// The sum over pixels is cut into chunks that depend on the shape alone.
  void backward_weight() {
    const int64_t og = s_.o / s_.groups, cg = s_.c / s_.groups, width = volume(s_.kernel) * cg;
    const int64_t total = s_.n * volume(s_.out), chunks = std::clamp<int64_t>(total / 1024, 1, 16);
    const int64_t chunk = (total + chunks - 1) / chunks, used = (total + chunk - 1) / chunk;
    T* parts = ctx_.scratch_of<T>(used * s_.o * width);
    packed_gemm<T>(
        ctx_, used * s_.groups, og, width, chunk,
        [&](T* to, int64_t at, int64_t i0, int64_t rows, int64_t k0, int64_t depth) {
          const int64_t first = at / s_.groups * chunk + k0, count = std::clamp<int64_t>(total - first, 0, depth);
          pack_gradient(to, at % s_.groups * og + i0, rows, first, count, depth);
        },
        [&](T* to, int64_t at, int64_t j0, int64_t columns, int64_t k0, int64_t depth) {
          const int64_t first = at / s_.groups * chunk + k0, count = std::clamp<int64_t>(total - first, 0, depth);
          gather_columns(to, at % s_.groups * cg, cg, j0, columns, first, count, depth);
        },
        [&](int64_t at, int64_t i0, int64_t rows, int64_t j0, int64_t columns, const T* tile, int64_t ld) {
          const int64_t row = at / s_.groups * s_.o + at % s_.groups * og + i0;
          for (int64_t i = 0; i < rows; ++i) std::copy_n(tile + i * ld, columns, parts + (row + i) * width + j0);
        });
    for (int64_t o = 0; o < s_.o; ++o)
      for (int64_t j = 0; j < width; ++j) {
        T sum = 0;
        for (int64_t c = 0; c < used; ++c) sum += parts[(c * s_.o + o) * width + j];
        int64_t q[3];
        position(j / cg, q);
        w_.data[o * w_.n + j % cg * w_.channel + offset(w_, q)] = sum;
      }
  }

 private:
  using P = Panel<T>;
  static int64_t offset(const Field<T>& f, const int64_t* p) {
    return p[0] * f.at[0] + p[1] * f.at[1] + p[2] * f.at[2];
  }
  void position(int64_t index, int64_t* q) const {
    for (int d = 2; d >= 0; --d) q[d] = index % s_.kernel[d], index /= s_.kernel[d];
  }

  /// Panels of kRows pixels; steps k are (kernel position, channel), `find` tells where a pixel reads.
  template <class Find> void gather_rows(T* to, const Field<T>& f, int64_t channel0, int64_t channels,
                                         const Pixels& pixels, int64_t i0, int64_t rows, int64_t k0, int64_t depth,
                                         const Find& find) const {
    static constexpr T zero = 0;
    for (int64_t i = 0; i < rows; i += P::kRows, to += P::kRows * depth) {
      int64_t n[P::kRows], p[P::kRows][3];
      const int64_t count = std::min<int64_t>(P::kRows, rows - i);
      for (int64_t r = 0; r < count; ++r) pixels.locate(i0 + i + r, n[r], p[r]);
      for (int64_t k = k0; k < k0 + depth;) {
        const int64_t c0 = k % channels, run = std::min(channels - c0, k0 + depth - k);
        int64_t q[3], from[3];
        position(k / channels, q);
        const T* at[P::kRows];
        int64_t step[P::kRows];
        for (int64_t r = 0; r < P::kRows; ++r) {
          const bool inside = r < count && find(s_, p[r], q, from);
          at[r] = inside ? f.data + n[r] * f.n + (channel0 + c0) * f.channel + offset(f, from) : &zero;
          step[r] = inside ? f.channel : 0;
        }
        T* out = to + (k - k0) * P::kRows;
        for (int64_t c = 0; c < run; ++c, out += P::kRows)
          for (int64_t r = 0; r < P::kRows; ++r) out[r] = at[r][c * step[r]];
        k += run;
      }
    }
  }

  /// Panels of kColumns (kernel position, channel) pairs; steps are output pixels from k0 on, zeros behind `used` of them.
  void gather_columns(T* to, int64_t channel0, int64_t channels, int64_t j0, int64_t columns, int64_t k0, int64_t used,
                      int64_t depth) const {
    const Pixels pixels{s_.out};
    for (int64_t j = 0; j < columns; j += P::kColumns, to += P::kColumns * depth) {
      const int64_t count = std::min<int64_t>(P::kColumns, columns - j);
      if (count < P::kColumns || used < depth) std::fill_n(to, P::kColumns * depth, T(0));
      for (int64_t k = 0; k < used; ++k) {
        int64_t n, p[3];
        pixels.locate(k0 + k, n, p);
        T* out = to + k * P::kColumns;
        for (int64_t r = 0; r < count;) {
          const int64_t column = j0 + j + r, c0 = column % channels, run = std::min(channels - c0, count - r);
          int64_t q[3], from[3];
          position(column / channels, q);
          if (source_of(s_, p, q, from)) {
            const T* at = x_.data + n * x_.n + (channel0 + c0) * x_.channel + offset(x_, from);
            for (int64_t c = 0; c < run; ++c) out[r + c] = at[c * x_.channel];
          } else {
            std::fill_n(out + r, run, T(0));
          }
          r += run;
        }
      }
    }
  }

  /// Panels of kColumns columns of the weight: w[column0 + j, inner0 + (k mod inner), k div inner] by the two given strides.
  void pack_weight(T* to, int64_t column0, int64_t inner0, int64_t column_step, int64_t inner_step, int64_t inner,
                   int64_t j0, int64_t columns, int64_t k0, int64_t depth) const {
    for (int64_t j = 0; j < columns; j += P::kColumns, to += P::kColumns * depth) {
      const int64_t count = std::min<int64_t>(P::kColumns, columns - j);
      if (count < P::kColumns) std::fill_n(to, P::kColumns * depth, T(0));
      for (int64_t k = k0; k < k0 + depth; ++k) {
        int64_t q[3];
        position(k / inner, q);
        const T* at = w_.data + (column0 + j0 + j) * column_step + (inner0 + k % inner) * inner_step + offset(w_, q);
        for (int64_t r = 0; r < count; ++r) to[(k - k0) * P::kColumns + r] = at[r * column_step];
      }
    }
  }

  /// Panels of kRows channels of dy; steps as above.
  void pack_gradient(T* to, int64_t channel, int64_t rows, int64_t k0, int64_t used, int64_t depth) const {
    const Pixels pixels{s_.out};
    for (int64_t i = 0; i < rows; i += P::kRows, to += P::kRows * depth) {
      const int64_t count = std::min<int64_t>(P::kRows, rows - i);
      if (count < P::kRows || used < depth) std::fill_n(to, P::kRows * depth, T(0));
      for (int64_t k = 0; k < used; ++k) {
        int64_t n, p[3];
        pixels.locate(k0 + k, n, p);
        const T* at = y_.data + n * y_.n + (channel + i) * y_.channel + offset(y_, p);
        for (int64_t r = 0; r < count; ++r) to[k * P::kRows + r] = at[r * y_.channel];
      }
    }
  }

  void scatter(const Field<T>& f, const Pixels& pixels, int64_t i0, int64_t rows, int64_t channel, int64_t columns,
               const T* tile, int64_t ld, const T* bias) const {
    for (int64_t i = 0; i < rows; ++i) {
      int64_t n, p[3];
      pixels.locate(i0 + i, n, p);
      T* out = f.data + n * f.n + channel * f.channel + offset(f, p);
      for (int64_t j = 0; j < columns; ++j) out[j * f.channel] = tile[i * ld + j] + (bias ? bias[channel + j] : T(0));
    }
  }

  Context& ctx_;
  const dnn::ConvShape& s_;
  Field<T> x_, w_, y_;
};

}  // namespace tapir::inline v0::cpu
