#include "../self_check.h"
#include "layout.h"
#include "library.h"

namespace tapir::inline v0::cpu::dnn {
namespace {

using Desc = dnnl::memory::desc;

/// A product whose results are of a dtype of their own: float32, for parts of sums.
struct Problem : Gemm {
  DType out_dtype;
  explicit Problem(const Gemm& g) : Gemm(g), out_dtype(g.dtype) {}
};

/// A matrix that the whole batch shares has a batch of 1: the library repeats it.
Desc describe_matrix(const Gemm& g, const Matrix& x, DType dtype, int64_t rows, int64_t columns) {
  if (g.batch == 1) return Desc({rows, columns}, type_of(dtype), dnnl::memory::dims{x.row, x.column});
  const int64_t batch = x.batch == 0 ? 1 : g.batch, step = x.batch == 0 ? rows * columns : x.batch;
  return Desc({batch, rows, columns}, type_of(dtype), dnnl::memory::dims{step, x.row, x.column});
}

/// 2.6.3: of pairs of bfloat16 that an odd depth leaves open this kernel multiplies what lies beside a's rows by 0: NaN where that is infinite.
bool is_wrong(const Problem& g, std::string_view kernel) {
  return g.dtype == kBFloat16 && g.k % 2 != 0 && kernel.starts_with("gemm");
}

std::unique_ptr<Call> make_gemm(const Problem& g) try {
  dnnl::post_ops after;
  if (g.alpha != 1) append_eltwise(after, dnnl::algorithm::eltwise_linear, g.alpha, 0);
  if (g.beta != 0) after.append_sum(g.beta);
  const Desc a = describe_matrix(g, g.a, g.dtype, g.m, g.k), b = describe_matrix(g, g.b, g.dtype, g.k, g.n),
             out = describe_matrix(g, g.out, g.out_dtype, g.m, g.n);
  const auto f32 = dnnl::memory::data_type::f32;
  const Desc bias = g.batch == 1 ? Desc({1, g.n}, f32, dnnl::memory::dims{g.n, 1})
                                 : Desc({1, 1, g.n}, f32, dnnl::memory::dims{g.n, g.n, 1});
  const auto desc = g.bias ? describe<dnnl::matmul>(attributes(after), a, b, bias, out)
                           : describe<dnnl::matmul>(attributes(after), a, b, out);
  if (!is_good(desc) || is_wrong(g, desc.impl_info_str())) return nullptr;
  auto call = std::make_unique<Call>(dnnl::matmul(desc), desc.scratchpad_desc());
  call->argument(DNNL_ARG_SRC, a);
  call->argument(DNNL_ARG_WEIGHTS, b);
  call->argument(DNNL_ARG_DST, out);
  if (g.bias) call->argument(DNNL_ARG_BIAS, bias);
  return call;
} catch (const dnnl::error& e) {
  pass_out_of_memory(e);
  return nullptr;
}

/// g, canonical (layout.h), by one call of that many threads, which are the session's.
Call* find(const Problem& g, int threads = 1) {
  thread_local Cache<Call> cache;
  Key key;
  key.add(threads, g.dtype, g.out_dtype, g.batch, g.m, g.n, g.k, g.a.batch, g.a.row, g.a.column, g.b.batch, g.b.row,
          g.b.column);
  key.add(g.out.batch, g.out.row, std::bit_cast<int32_t>(g.alpha), std::bit_cast<int32_t>(g.beta), g.bias != nullptr);
  return cache.find(key, [&] { return make_gemm(g); });
}
void call(Context& ctx, const Problem& g, Call& of_g) {
  if (g.bias) of_g.run(ctx, {g.a.data, g.b.data, g.out.data, const_cast<float*>(g.bias)});
  else of_g.run(ctx, {g.a.data, g.b.data, g.out.data});
}
void multiply(Context& ctx, const Problem& g) {
  Call* const of_g = find(g);
  check_internal(of_g, "[onednn] this thread has no product that another one has");
  call(ctx, g, *of_g);
}
bool whole(Context& ctx, const Problem& g) {
  constexpr int64_t kSerial = 1 << 19;  // multiplications: less time than it takes to wake a thread
  const Session session(g.batch * g.m * g.n * g.k < kSerial ? 1 : 0);
  Call* const of_g = find(g, session.threads());
  if (of_g) call(ctx, g, *of_g);
  return of_g;
}

void* at(const Matrix& x, DType dtype, int64_t batch, int64_t row, int64_t column) {
  return static_cast<char*>(x.data) + (batch * x.batch + row * x.row + column * x.column) * size_of(dtype);
}
Matrix dense_rows(void* data, const Gemm& g) { return {data, g.m * g.n, g.n, 1}; }

/// Note [Pieces by shape]. Parts of the depth have sums of their own, which are added in their order.
class Pieces {
 public:
  explicit Pieces(const Gemm& g)
      : g_(g), batch_(g.batch, 1, 1), rows_(g.m, 1, 1), columns_(g.n, 1, 1), depth_(g.k, 1, 1) {
    constexpr int64_t kLeast = 1 << 20;  // multiplications: 20 us
    constexpr int64_t kMost = 256, kUnit = 64, kMany = 16, kDeep = 2048;
    const int64_t one = g.m * g.n * g.k;
    if (g.batch * one < kLeast / 2) return;
    const int64_t together = std::max<int64_t>(1, kLeast / one);
    batch_ = Cut(g.batch, (g.batch + together - 1) / together, 1);
    if (one < kLeast / 2) return;
    // Rows of all columns are the fastest pieces, where there are many: then neither b nor the result has gaps.
    const bool whole_rows = g.a.column == 1 && g.b.column == 1 && g.m >= 8 * kUnit;
    rows_ = Cut(g.m, (g.m + kMost - 1) / kMost, kUnit);
    if (!whole_rows) columns_ = Cut(g.n, (g.n + kMost - 1) / kMost, kUnit);
    const auto halve = [&](int64_t unit) {
      Cut& larger = !whole_rows && columns_.size >= rows_.size ? columns_ : rows_;
      const bool can = larger.size > unit && rows_.most() * columns_.most() * g.k >= kLeast * 3 / 4;
      if (can) larger = Cut(larger.extent, (larger.extent + larger.size / 2 - 1) / (larger.size / 2), unit);
      return can;
    };
    while (tiles() < kMany && halve(kUnit)) {}
    while (tiles() < kMany / 2 && halve(kUnit / 2)) {}
    if (tiles() < kMany && g.k >= 2 * kDeep && g.b.column == 1)  // it is slow to turn a part of b
      depth_ = Cut(g.k, std::min(g.k / kDeep, (kMany + tiles() - 1) / tiles()), kUnit);
  }

  int64_t tiles() const { return batch_.count * rows_.count * columns_.count; }
  int64_t parts() const { return depth_.count; }
  Problem piece(int64_t tile, int64_t part) const {
    const int64_t c = tile % columns_.count, r = tile / columns_.count % rows_.count,
                  b = tile / columns_.count / rows_.count;
    const int64_t b0 = batch_.first(b), i0 = rows_.first(r), j0 = columns_.first(c), k0 = depth_.first(part);
    Problem p(g_);
    p.batch = batch_.length(b), p.m = rows_.length(r), p.n = columns_.length(c), p.k = depth_.length(part);
    p.a.data = at(g_.a, g_.dtype, b0, i0, k0), p.b.data = at(g_.b, g_.dtype, b0, k0, j0);
    p.out.data = at(g_.out, g_.dtype, b0, i0, j0), p.bias = g_.bias ? g_.bias + j0 : nullptr;
    return p;
  }
  /// Whether the library has a kernel for each of them. They have at most two extents along each axis.
  bool can_run() const {
    const Session session(1);
    for (int64_t b = 0; b < batch_.count; b += batch_.to_last())
      for (int64_t r = 0; r < rows_.count; r += rows_.to_last())
        for (int64_t c = 0; c < columns_.count; c += columns_.to_last())
          for (int64_t d = 0; d < depth_.count; d += depth_.to_last())
            if (!find(where_it_runs(piece((b * rows_.count + r) * columns_.count + c, d), nullptr))) return false;
    return true;
  }
  void run(Context& ctx) const {
    const int64_t step = rows_.most() * columns_.most() * batch_.most();
    float* const sums = parts() > 1 ? ctx.scratch_of<float>(tiles() * parts() * step) : nullptr;
    for_each_piece(ctx, tiles() * parts(), [&](Context& mine, int64_t i) {
      const Problem p = piece(i / parts(), i % parts());
      if (sums) return multiply(mine, where_it_runs(p, sums + i * step));
      if (!moves_result(p)) return multiply(mine, p);
      const int64_t row = p.n * size_of(g_.dtype);
      char* const own = static_cast<char*>(mine.scratch(p.batch * p.m * row));
      multiply(mine, where_it_runs(p, own));
      for (int64_t r = 0; r < p.batch * p.m; ++r)
        std::memcpy(at(p.out, g_.dtype, r / p.m, r % p.m, 0), own + r * row, size_t(row));
    });
    if (sums)
      parallel_for(tiles(), 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) add_parts(piece(i, 0), sums + i * parts() * step, step);
      });
  }

 private:
  /// Where it must turn b, the library is slow with results that have gaps.
  bool moves_result(const Gemm& p) const {
    return p.b.column != 1 && p.beta == 0 &&
           ((p.m > 1 && p.out.row != p.n) || (p.batch > 1 && p.out.batch != p.m * p.n));
  }
  Problem where_it_runs(Problem p, void* own) const {
    if (parts() > 1) p.out_dtype = kFloat32, p.alpha = 1, p.beta = 0, p.bias = nullptr, p.out = dense_rows(own, p);
    else if (moves_result(p)) p.out = dense_rows(own, p);
    return p;
  }
  /// out = alpha (sum of the parts, in their order) + beta out + bias.
  void add_parts(const Gemm& p, const float* sums, int64_t step) const {
    g_.dtype == kBFloat16 ? add_parts_of<BFloat16>(p, sums, step) : add_parts_of<float>(p, sums, step);
  }
  template <class T> void add_parts_of(const Gemm& p, const float* sums, int64_t step) const {
    for (int64_t row = 0; row < p.batch * p.m; ++row, sums += p.n) {
      T* const out = static_cast<T*>(at(p.out, g_.dtype, row / p.m, row % p.m, 0));
      for (int64_t j = 0; j < p.n; ++j) {
        float sum = 0;
        for (int64_t part = 0; part < parts(); ++part) sum += sums[part * step + j];
        sum *= p.alpha;
        if (p.beta != 0) sum += p.beta * float(out[j]);
        out[j] = T(p.bias ? sum + p.bias[j] : sum);
      }
    }
  }

  const Gemm& g_;
  Cut batch_, rows_, columns_, depth_;
};

bool suited(Context& ctx, const Gemm& given) {
  Gemm g = given;
  if (!suit(ctx, g)) return false;
  if (!g.by_shape) return whole(ctx, Problem(g));
  const Pieces pieces(g);
  if (!pieces.can_run()) return false;
  pieces.run(ctx);
  return true;
}

}  // namespace

std::string library() {
  const dnnl_version_t& v = *dnnl_version();
  return tapir::format("oneDNN {}.{}.{}", v.major, v.minor, v.patch);
}

bool gemm(Context& ctx, const Gemm& g) {
  static CheckedProduct single(library(), kFloat32, suited), half(library(), kBFloat16, suited);
  return (g.dtype == kBFloat16 ? half : single)(ctx, g);
}

}  // namespace tapir::inline v0::cpu::dnn
