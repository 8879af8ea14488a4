#pragma once
// Note [Implicit GEMM]
// A convolution as a matrix product whose operand is never written out: the packing of the GEMM gathers it. With pixels p of y,
// kernel positions q and channels c, o of a group:
//   y[p, o]      = sum over (q, c) of x[p * stride - padding + q * dilation, c] w[q, c, o]
//   dx[p', c]    = sum over (q, o) of dy[(p' + padding - q * dilation) / stride, o] w[q, c, o]   where the division is exact
//   dw[o, (q, c)] = sum over p     of dy[p, o] x[p * stride - padding + q * dilation, c]
// Any strides, groups, rank and floating type; the form that every other convolution kernel is tested against.
#include "../dnn.h"
#include "../kernels.h"
#include "../matmul/gemm.h"

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
    const auto find = [this](const int64_t* p, const int64_t* q, int64_t* from) { return source_of(s_, p, q, from); };
    product(y_, s_.out, s_.o / s_.groups, w_.n, x_, s_.c / s_.groups, w_.channel, find, bias);
  }
  void backward_data() {
    const auto find = [this](const int64_t* p, const int64_t* q, int64_t* to) { return target_of(s_, p, q, to); };
    product(x_, s_.in, s_.c / s_.groups, w_.channel, y_, s_.o / s_.groups, w_.n, find, nullptr);
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

  /// All pixels of `out`, which has those extents and `columns` channels a group, from those of `in`, which has `inner`. The weight's
  /// strides along both kinds of channels; `find` tells where a pixel reads.
  template <class Find> void product(const Field<T>& out, const int64_t* extents, int64_t columns, int64_t column_step,
                                     const Field<T>& in, int64_t inner, int64_t inner_step, const Find& find,
                                     const T* bias) {
    const Pixels pixels{extents};
    packed_gemm<T>(
        ctx_, s_.groups, s_.n * volume(extents), columns, volume(s_.kernel) * inner,
        [&](T* to, int64_t g, int64_t i0, int64_t rows, int64_t k0, int64_t depth) {
          gather_rows(to, in, g * inner, inner, pixels, i0, rows, k0, depth, find);
        },
        [&](T* to, int64_t g, int64_t j0, int64_t count, int64_t k0, int64_t depth) {
          const T* const group = w_.data + g * (s_.o / s_.groups) * w_.n;
          pack_weight(to, group, column_step, inner_step, inner, j0, count, k0, depth);
        },
        [&](int64_t g, int64_t i0, int64_t rows, int64_t j0, int64_t count, const T* tile, int64_t ld) {
          scatter(out, pixels, i0, rows, g * columns + j0, count, tile, ld, bias);
        });
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
          const bool inside = r < count && find(p[r], q, from);
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

  /// Panels of `kWidth` of n vectors: fill(where, i, count, k) for vectors i on and each of `used` steps k; zeros elsewhere.
  template <int64_t kWidth, class Fill> static void panels(T* to, int64_t n, int64_t used, int64_t depth, Fill&& fill) {
    for (int64_t i = 0; i < n; i += kWidth, to += kWidth * depth) {
      const int64_t count = std::min(kWidth, n - i);
      if (count < kWidth || used < depth) std::fill_n(to, kWidth * depth, T(0));
      for (int64_t k = 0; k < used; ++k) fill(to + k * kWidth, i, count, k);
    }
  }

  /// Panels of kColumns (kernel position, channel) pairs; steps are output pixels from k0 on, zeros behind `used` of them.
  void gather_columns(T* to, int64_t channel0, int64_t channels, int64_t j0, int64_t columns, int64_t k0, int64_t used,
                      int64_t depth) const {
    const Pixels pixels{s_.out};
    panels<P::kColumns>(to, columns, used, depth, [&](T* out, int64_t j, int64_t count, int64_t k) {
      int64_t n, p[3];
      pixels.locate(k0 + k, n, p);
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
    });
  }

  /// Panels of kColumns columns of a group's weight: w[j, k mod inner, k div inner] by the two given strides.
  void pack_weight(T* to, const T* group, int64_t column_step, int64_t inner_step, int64_t inner, int64_t j0,
                   int64_t columns, int64_t k0, int64_t depth) const {
    panels<P::kColumns>(to, columns, depth, depth, [&](T* out, int64_t j, int64_t count, int64_t step) {
      const int64_t k = k0 + step;
      int64_t q[3];
      position(k / inner, q);
      const T* at = group + (j0 + j) * column_step + k % inner * inner_step + offset(w_, q);
      for (int64_t r = 0; r < count; ++r) out[r] = at[r * column_step];
    });
  }

  /// Panels of kRows channels of dy; steps as above.
  void pack_gradient(T* to, int64_t channel, int64_t rows, int64_t k0, int64_t used, int64_t depth) const {
    const Pixels pixels{s_.out};
    panels<P::kRows>(to, rows, used, depth, [&](T* out, int64_t i, int64_t count, int64_t k) {
      int64_t n, p[3];
      pixels.locate(k0 + k, n, p);
      const T* at = y_.data + n * y_.n + (channel + i) * y_.channel + offset(y_, p);
      for (int64_t r = 0; r < count; ++r) out[r] = at[r * y_.channel];
    });
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
