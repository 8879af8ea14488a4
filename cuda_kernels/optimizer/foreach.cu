#include <cmath>
#include <limits>

#include "../../core/dispatch.h"
#include "../any.h"
#include "../rows.h"
#include "tensor_table.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kFinishThreads = 512;

enum class NormKind : uint8_t { Zero, One, Two, Max, Min, General };
NormKind kind_of(double p) {
  if (std::isinf(p)) return p > 0 ? NormKind::Max : NormKind::Min;
  return p == 0 ? NormKind::Zero : p == 1 ? NormKind::One : p == 2 ? NormKind::Two : NormKind::General;
}

/// In double: squares of large floats do not overflow.
struct NormSum {
  NormKind kind;
  double p;
  __device__ double start() const { return kind == NormKind::Min ? std::numeric_limits<double>::infinity() : 0.0; }
  __device__ double term(double x) const {
    switch (kind) {
      case NormKind::Zero: return x != 0 ? 1 : 0;
      case NormKind::Two: return x * x;
      case NormKind::General: return std::pow(std::abs(x), p);
      default: return std::abs(x);
    }
  }
  __device__ double operator()(double a, double b) const {
    if (kind == NormKind::Max) return Larger()(a, b);
    if (kind == NormKind::Min) return Smaller()(a, b);
    return a + b;
  }
};

template <class T>
__global__ void norm_flat(const TensorTable<1> table, const NormSum norm, double* parts, uint32_t chunks) {
  __shared__ double shared[32];
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    const T* const data = static_cast<const T*>(table.data[0][at.tensor]) + at.begin;
    double sum = norm.start();
    for_packs<kPackSize<T>>(at.end - at.begin, head_of(data), [&]<int W>(int64_t i) {
      Compute<T> v[W];
      load_pack<W>(data + i, v);
      for (int w = 0; w < W; ++w) sum = norm(sum, norm.term(double(v[w])));
    });
    sum = block_fold(sum, norm.start(), shared, norm);
    if (threadIdx.x == 0) parts[chunk] = sum;
  }
}
__global__ void norm_any(const void* x, DType dtype, const Layout<1> l, const NormSum norm, double* parts,
                         int64_t chunks) {
  __shared__ double shared[32];
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t end = (chunk + 1) * kTableChunk < l.numel ? (chunk + 1) * kTableChunk : l.numel;
    double sum = norm.start();
    for (int64_t i = chunk * kTableChunk + threadIdx.x; i < end; i += blockDim.x) {
      int64_t at[1];
      l.offsets(i, at);
      sum = norm(sum, norm.term(load_float<double>(x, at[0], dtype)));
    }
    sum = block_fold(sum, norm.start(), shared, norm);
    if (threadIdx.x == 0) parts[chunk] = sum;
  }
}
/// One block joins the parts, in an order that their number decides.
__global__ void __launch_bounds__(kFinishThreads)
    norm_finish(void* out, DType dtype, const double* parts, int64_t count, const NormSum norm) {
  __shared__ double shared[32];
  double sum = norm.start();
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum = norm(sum, parts[i]);
  sum = block_fold(sum, norm.start(), shared, norm);
  if (threadIdx.x != 0) return;
  if (count == 0) sum = 0;
  if (norm.kind == NormKind::Two) sum = std::sqrt(sum);
  if (norm.kind == NormKind::General) sum = std::pow(sum, 1 / norm.p);
  store_any(out, 0, dtype, sum);
}

/// x factor, or x clamped to [-factor, factor].
struct Factor {
  const void* data;  // null: value
  DType dtype;
  double value;
  bool clamps;
  __device__ double get() const { return data ? load_any<double>(data, 0, dtype) : value; }
  template <class C> __device__ C of(C x, C number) const {
    if (!clamps) return x * number;
    const C low = x < -number ? -number : x;
    return low > number ? number : low;
  }
};

template <class T> __global__ void map_flat(const TensorTable<1> table, const Factor factor, uint32_t chunks) {
  using C = Compute<T>;
  const double number = factor.get();
  if (!factor.clamps && number == 1) return;  // the usual case of clipping: x * 1 is x
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    T* const data = static_cast<T*>(table.data[0][at.tensor]) + at.begin;
    for_packs<kPackSize<T>>(at.end - at.begin, head_of(data), [&]<int W>(int64_t i) {
      C v[W];
      load_pack<W>(data + i, v);
      for (int w = 0; w < W; ++w) v[w] = factor.of(v[w], C(number));
      store_pack<W>(data + i, v);
    });
  }
}
template <class C> __global__ void map_any(void* x, DType dtype, const Layout<1> l, const Factor factor) {
  const double number = factor.get();
  if (!factor.clamps && number == 1) return;
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[1];
    l.offsets(i, at);
    store_float(x, at[0], dtype, factor.of(load_float<C>(x, at[0], dtype), C(number)));
  }
}

template <class T> __global__ void zero_flat(const TensorTable<1> table, uint32_t chunks) {
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    T* const data = static_cast<T*>(table.data[0][at.tensor]) + at.begin;
    for_packs<kPackSize<T>>(at.end - at.begin, head_of(data),
                            [&]<int W>(int64_t i) { *reinterpret_cast<Pack<T, W>*>(data + i) = Pack<T, W>{}; });
  }
}
template <class T> __global__ void zero_any(T* x, const Layout<1> l) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[1];
    l.offsets(i, at);
    x[at[0]] = T(0);
  }
}

// ---- host ----

bool is_flat_one(V x) {
  const TensorView* const views[] = {&x};
  return is_flat<1>(views);
}
/// flat(table, chunks) for tables of tensors for which takes(x), any(x, layout) for those among them that have gaps.
template <class Takes, class FlatRun, class AnyRun>
void for_tensors(std::span<const TensorView> xs, Takes takes, FlatRun flat, AnyRun any) {
  for_tables<1>(
      xs.size(), [&](size_t i, int) -> V { return xs[i]; },
      [&](size_t i) { return takes(xs[i]) && is_flat_one(xs[i]); }, flat);
  for (V x : xs)
    if (takes(x) && x.numel() > 0 && !is_flat_one(x)) any(x, layout_of<1>({&x}));
}

void norm_p(Context& ctx, V out, std::span<const TensorView> xs, double p) {
  const NormSum norm{kind_of(p), p};
  int64_t chunks = 0, done = 0;
  for (V x : xs) chunks += (x.numel() + kTableChunk - 1) / kTableChunk;
  double* const parts = ctx.scratch_of<double>(chunks + 1);
  for (DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64})
    for_any_float("foreach", dtype, [&]<class T>() {
      for_tensors(
          xs, [&](V x) { return x.dtype == dtype; },
          [&](const TensorTable<1>& table, uint32_t count) {
            launch(ctx, "foreach", table_grid(count), norm_flat<T>, table, norm, parts + done, count);
            done += count;
          },
          [&](V x, const Layout<1>& l) {
            const int64_t count = (l.numel + kTableChunk - 1) / kTableChunk;
            launch(ctx, "foreach", grid_of(count * kTableThreads, kTableThreads), norm_any, x.data, dtype, l, norm,
                   parts + done, count);
            done += count;
          });
    });
  launch(ctx, "foreach", {dim3(1), dim3(kFinishThreads)}, norm_finish, out.data, out.dtype, parts, chunks, norm);
}

void map(Context& ctx, std::span<const TensorView> xs, const Factor& factor) {
  for (DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64})
    for_any_float("foreach", dtype, [&]<class T>() {
      for_tensors(
          xs, [&](V x) { return x.dtype == dtype; },
          [&](const TensorTable<1>& table, uint32_t chunks) {
            launch(ctx, "foreach", table_grid(chunks), map_flat<T>, table, factor, chunks);
          },
          [&](V x, const Layout<1>& l) {
            launch(ctx, "foreach", grid_of(l.numel), map_any<Compute<T>>, x.data, dtype, l, factor);
          });
    });
}

void zero(Context& ctx, std::span<const TensorView> xs) {
  for (DType dtype : {kUInt8, kFloat16, kFloat32, kFloat64})  // one of each size
    for_size(dtype, [&]<class T>() {
      for_tensors(
          xs, [&](V x) { return size_of(x.dtype) == size_of(dtype); },
          [&](const TensorTable<1>& table, uint32_t chunks) {
            launch(ctx, "foreach", table_grid(chunks), zero_flat<T>, table, chunks);
          },
          [&](V x, const Layout<1>& l) { launch(ctx, "foreach", grid_of(l.numel), zero_any<T>, x.as<T>(), l); });
    });
}

}  // namespace

void foreach (Context& ctx, const entry::Foreach& c) {
  if (c.params.op == ForeachOp::NormP) return norm_p(ctx, c.out, c.xs, c.params.p);
  if (c.params.op == ForeachOp::Zero) return zero(ctx, c.xs);
  const TensorView& factor = c.factor;
  map(ctx, c.xs,
      {factor.is_scalar ? nullptr : factor.data, factor.dtype, factor.is_scalar ? factor.scalar.to_double() : 0,
       c.params.op == ForeachOp::ClampValue});
}

}  // namespace tapir::inline v0::cuda_kernels
