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

/// Calls f<T>() with the type of a float dtype: once for a chunk, whose loop then knows it.
template <class F> __device__ __forceinline__ void for_float(DType dtype, F&& f) {
  switch (dtype) {
    case kFloat32: return f.template operator()<float>();
    case kFloat64: return f.template operator()<double>();
    case kFloat16: return f.template operator()<Half>();
    default: return f.template operator()<BFloat16>();
  }
}

__global__ void norm_flat(const TensorTable<1> table, const NormSum norm, double* parts, uint32_t chunks) {
  __shared__ double shared[32];
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    double sum = norm.start();
    for_float(table.dtypes[0][at.tensor], [&]<class T>() {
      const T* const data = data_at<T>(table, 0, at);
      for_packs<kPackSize<T>>(at.size, head_of(data), [&]<int W>(int64_t i) {
        Compute<T> v[W];
        load_pack<W>(data + i, v);
        for (int w = 0; w < W; ++w) sum = norm(sum, norm.term(double(v[w])));
      });
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

__global__ void map_flat(const TensorTable<1> table, const Factor factor, uint32_t chunks) {
  const double number = factor.get();
  if (!factor.clamps && number == 1) return;  // the usual case of clipping: x * 1 is x
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    for_float(table.dtypes[0][at.tensor], [&]<class T>() {
      using C = Compute<T>;
      T* const data = data_at<T>(table, 0, at);
      for_packs<kPackSize<T>>(at.size, head_of(data), [&]<int W>(int64_t i) {
        C v[W];
        load_pack<W>(data + i, v);
        for (int w = 0; w < W; ++w) v[w] = factor.of(v[w], C(number));
        store_pack<W>(data + i, v);
      });
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

__global__ void zero_flat(const TensorTable<1> table, uint32_t chunks) {
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    const auto zero = [&]<class T>() {
      T* const data = data_at<T>(table, 0, at);
      for_packs<kPackSize<T>>(at.size, head_of(data),
                              [&]<int W>(int64_t i) { *reinterpret_cast<Pack<T, W>*>(data + i) = Pack<T, W>{}; });
    };
    switch (table.dtypes[0][at.tensor]) {
      case kBool:
      case kInt8:
      case kUInt8: zero.template operator()<uint8_t>(); break;
      case kInt16:
      case kFloat16:
      case kBFloat16: zero.template operator()<uint16_t>(); break;
      case kInt32:
      case kFloat32: zero.template operator()<uint32_t>(); break;
      default: zero.template operator()<uint64_t>();
    }
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
/// flat(table, chunks) for tables of tensors, any(x, layout) for those among them that have gaps.
template <class FlatRun, class AnyRun> void for_tensors(std::span<const TensorView> xs, FlatRun flat, AnyRun any) {
  for_tables<1>(
      xs.size(), [&](size_t i, int) -> V { return xs[i]; }, [&](size_t i) { return is_flat_one(xs[i]); }, flat);
  for (V x : xs)
    if (x.numel() > 0 && !is_flat_one(x)) any(x, layout_of<1>({&x}));
}

void norm_p(Context& ctx, V out, std::span<const TensorView> xs, double p) {
  const NormSum norm{kind_of(p), p};
  int64_t chunks = 0, done = 0;
  for (V x : xs) chunks += chunks_of(x);
  double* const parts = ctx.scratch_of<double>(chunks + 1);
  for_tensors(
      xs,
      [&](const TensorTable<1>& table, uint32_t count) {
        launch(ctx, "foreach", table_grid(count), norm_flat, table, norm, parts + done, count);
        done += count;
      },
      [&](V x, const Layout<1>& l) {
        const int64_t count = chunks_of(x);
        launch(ctx, "foreach", grid_of(count * kTableThreads, kTableThreads), norm_any, x.data, x.dtype, l, norm,
               parts + done, count);
        done += count;
      });
  launch(ctx, "foreach", {dim3(1), dim3(kFinishThreads)}, norm_finish, out.data, out.dtype, parts, chunks, norm);
}

void map(Context& ctx, std::span<const TensorView> xs, const Factor& factor) {
  for_tensors(
      xs,
      [&](const TensorTable<1>& table, uint32_t chunks) {
        launch(ctx, "foreach", table_grid(chunks), map_flat, table, factor, chunks);
      },
      [&](V x, const Layout<1>& l) {
        const auto kernel = x.dtype == kFloat64 ? map_any<double> : map_any<float>;
        launch(ctx, "foreach", grid_of(l.numel), kernel, x.data, x.dtype, l, factor);
      });
}

void zero(Context& ctx, std::span<const TensorView> xs) {
  for_tensors(
      xs,
      [&](const TensorTable<1>& table, uint32_t chunks) {
        launch(ctx, "foreach", table_grid(chunks), zero_flat, table, chunks);
      },
      [&](V x, const Layout<1>& l) {
        for_size(x.dtype, [&]<class T>() { launch(ctx, "foreach", grid_of(l.numel), zero_any<T>, x.as<T>(), l); });
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
