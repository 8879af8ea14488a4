#include <algorithm>
#include <cmath>

#include "../../core/dispatch.h"
#include "../../core/formulas/optimizer.h"
#include "../any.h"
#include "../rows.h"
#include "tensor_table.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

using formulas::StepNumbers;

/// A number on the device, or given.
struct Number {
  const void* data = nullptr;
  DType dtype = kFloat64;
  double value = 0;
  Number(V v, double absent) : value(absent) {
    if (v.is_scalar) value = v.scalar.to_double();
    else if (v.defined()) data = v.data, dtype = v.dtype;
  }
  __device__ double get() const { return data ? load_any<double>(data, 0, dtype) : value; }
};

/// Raises the step and works out its numbers, once for all parameters; the host does not wait for them.
template <class C> __global__ void prepare_step(StepNumbers<C>* to, int64_t* step, float* numbers, const Number lr,
                                                const Number inv_scale, const Number found_inf, const Number beta1,
                                                const OptimizerParams p) {
  if (found_inf.get() != 0) to->skip = true;
  else *to = formulas::numbers_of<C>(p, lr.get(), double(++*step), inv_scale.get(), beta1.get(), numbers);
}

/// float or 16 bits: of which kind an operand is, the kernel reads in its table.
struct AnyFloat {
  float widest;
};

/// W neighbours of an operand as they lie in memory: all operands are read before the first is converted, which would wait for it.
template <class C, int W> struct Raw {
  C bits[W] = {};
  __device__ __forceinline__ void read(const void* from, int64_t i, DType dtype) {
    if (dtype == dtype_of<C>) keep<C>(from, i);
    else keep<uint16_t>(from, i);
  }
  __device__ __forceinline__ void widen_to(C (&v)[W], DType dtype) const {
    if (dtype == dtype_of<C>) memcpy(v, bits, sizeof(bits));
    else if (dtype == kFloat16) widen_as<Half>(v);
    else widen_as<BFloat16>(v);
  }

 private:
  template <class T> __device__ __forceinline__ void keep(const void* from, int64_t i) {
    const Pack<T, W> pack = *reinterpret_cast<const Pack<T, W>*>(static_cast<const T*>(from) + i);
    memcpy(bits, &pack, sizeof(pack));
  }
  template <class T> __device__ __forceinline__ void widen_as(C (&v)[W]) const {
    Pack<T, W> pack;
    memcpy(&pack, bits, sizeof(pack));
    for (int w = 0; w < W; ++w) v[w] = C(widen(pack.of[w]));
  }
};
template <int W, class C>
__device__ __forceinline__ void store_floats(void* to, int64_t i, DType dtype, const C (&v)[W]) {
  if constexpr (std::is_same_v<C, float>) {
    if (dtype == kFloat16) return store_pack<W>(static_cast<Half*>(to) + i, v);
    if (dtype == kBFloat16) return store_pack<W>(static_cast<BFloat16*>(to) + i, v);
  }
  store_pack<W>(static_cast<C*>(to) + i, v);
}
/// formulas::start_of for a parameter of that dtype.
__device__ __forceinline__ float start_of(float copy, float parameter, DType dtype) {
  const float rounded = dtype == kFloat32   ? copy
                        : dtype == kFloat16 ? widen(narrow<Half>(copy))
                                            : widen(narrow<BFloat16>(copy));
  return formulas::start_of(copy, rounded, parameter);
}

/// K operands of T. kCopies: values are float32 copies, and behind the K operands comes the parameter.
template <class T, class C, int K, bool kCopies>
__global__ void update_flat(const TensorTable<K + kCopies> table, const StepNumbers<C>* coefficients, uint32_t chunks) {
  constexpr int kAll = K + kCopies, W = kPackSize<T>;
  const StepNumbers<C> c = *coefficients;
  if (c.skip) return;
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    char* data[kAll];
    DType dtypes[kAll];
    bool aligned = true;
    for (int k = 0; k < kAll; ++k) {
      if constexpr (std::is_same_v<T, AnyFloat>) dtypes[k] = table.dtypes[k][at.tensor];
      else dtypes[k] = dtype_of<T>;
      const int size = dtypes[k] == dtype_of<C> ? int(sizeof(C)) : 2;
      data[k] = static_cast<char*>(table.data[k][at.tensor]) + at.begin * size;
      aligned = aligned && reinterpret_cast<uintptr_t>(data[k]) % uintptr_t(W * size) == 0;
    }
    for_packs<W>(at.size, aligned ? 0 : -1, [&]<int N>(int64_t i) {
      Raw<C, N> raw[kAll];
      C v[kAll][N];
      for (int k = 0; k < kAll; ++k) raw[k].read(data[k], i, dtypes[k]);
      for (int k = 0; k < kAll; ++k) raw[k].widen_to(v[k], dtypes[k]);
      for (int n = 0; n < N; ++n) {
        C one[K];
        for (int k = 0; k < K; ++k) one[k] = v[k][n];
        if constexpr (kCopies) one[0] = start_of(one[0], v[K][n], dtypes[K]);
        formulas::update(c.op, c, one);
        for (int k = 0; k < K; ++k) v[k][n] = one[k];
      }
      for (int k = 0; k < K; ++k)
        if (k != 1) store_floats(data[k], i, dtypes[k], v[k]);
      if constexpr (kCopies) store_floats(data[K], i, dtypes[K], v[0]);
    });
  }
}

template <int K> struct Operands {
  void* data[K];
  DType dtypes[K];
};
/// One parameter of any strides and dtypes.
template <class C, int K, bool kCopies> __global__ void update_any(const Operands<K + kCopies> o,
                                                                   const Layout<K + kCopies> l,
                                                                   const StepNumbers<C>* coefficients) {
  const StepNumbers<C> c = *coefficients;
  if (c.skip) return;
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[K + kCopies];
    l.offsets(i, at);
    C v[K];
    for (int k = 0; k < K; ++k) v[k] = load_float<C>(o.data[k], at[k], o.dtypes[k]);
    if constexpr (kCopies) v[0] = start_of(v[0], load_float<C>(o.data[K], at[K], o.dtypes[K]), o.dtypes[K]);
    formulas::update(c.op, c, v);
    for (int k = 0; k < K; ++k)
      if (k != 1) store_float(o.data[k], at[k], o.dtypes[k], v[k]);
    if constexpr (kCopies) store_float(o.data[K], at[K], o.dtypes[K], v[0]);
  }
}

template <class C, int K, bool kCopies>
void update_all(Context& ctx, const entry::OptimizerStep& c, const StepNumbers<C>* coefficients) {
  constexpr int kAll = K + kCopies;
  const size_t count = c.grads.size();
  const std::span<const TensorView> all[] = {c.values, c.grads, c.first, c.second, c.third};
  const auto operand = [&](size_t i, int k) -> V { return k < K ? all[k][i] : c.values[count + i]; };
  const auto views = [&](size_t i, auto f) {
    const TensorView* v[kAll];
    for (int k = 0; k < kAll; ++k) v[k] = &operand(i, k);
    return f(v);
  };
  /// The kernel that takes it: of operands of one dtype, of any floats up to 32 bits, or of any strides and dtypes.
  enum Kind { kUniform, kMixed, kStrided };
  const auto kind_of = [&](size_t i) {
    return views(i, [&](const TensorView* const(&v)[kAll]) {
      bool fits = true, uniform = !kCopies;
      for (const TensorView* x : v)
        fits = fits && compute_type(x->dtype) == dtype_of<C>, uniform = uniform && x->dtype == v[0]->dtype;
      return !fits || !is_flat<kAll>(v) ? kStrided : uniform ? kUniform : kMixed;
    });
  };
  const auto run = [&]<class T>(auto takes) {
    for_tables<kAll>(count, operand, takes, [&](const TensorTable<kAll>& table, uint32_t chunks) {
      launch(ctx, "optimizer_step", table_grid(chunks), update_flat<T, C, K, kCopies>, table, coefficients, chunks);
    });
  };
  if constexpr (!kCopies)
    for (DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64})
      for_any_float("optimizer_step", dtype, [&]<class T>() {
        if constexpr (std::is_same_v<Compute<T>, C>)
          run.template operator()<T>([&](size_t i) { return c.values[i].dtype == dtype && kind_of(i) == kUniform; });
      });
  if constexpr (std::is_same_v<C, float>)
    run.template operator()<AnyFloat>([&](size_t i) { return kind_of(i) == kMixed; });
  for (size_t i = 0; i < count; ++i) {
    if (kind_of(i) != kStrided) continue;
    Operands<kAll> o;
    for (int k = 0; k < kAll; ++k) o.data[k] = operand(i, k).data, o.dtypes[k] = operand(i, k).dtype;
    const Layout<kAll> l = views(i, [](const TensorView* const(&v)[kAll]) { return layout_of<kAll>(v); });
    launch(ctx, "optimizer_step", grid_of(l.numel), update_any<C, K, kCopies>, o, l, coefficients);
  }
}

template <class C, int K> void update_all(Context& ctx, const entry::OptimizerStep& c, const StepNumbers<C>* to) {
  if constexpr (std::is_same_v<C, float>)
    if (c.values.size() > c.grads.size()) return update_all<C, K, true>(ctx, c, to);
  update_all<C, K, false>(ctx, c, to);
}

template <class C> void step_as(Context& ctx, const entry::OptimizerStep& c) {
  StepNumbers<C>* const to = ctx.scratch_of<StepNumbers<C>>(1);
  launch(ctx, "optimizer_step", {dim3(1), dim3(1)}, prepare_step<C>, to, c.step.as<int64_t>(), c.numbers.as<float>(),
         Number(c.lr, 0), Number(c.inv_scale, 1), Number(c.found_inf, 0), Number(c.beta1, c.params.beta1), c.params);
  switch (formulas::states_of(c.params)) {
    case 0: return update_all<C, 2>(ctx, c, to);
    case 1: return update_all<C, 3>(ctx, c, to);
    case 2: return update_all<C, 4>(ctx, c, to);
    default: return update_all<C, 5>(ctx, c, to);
  }
}

}  // namespace

void optimizer_step(Context& ctx, const entry::OptimizerStep& c) {
  const bool wide = !c.values.empty() && c.values[0].dtype == kFloat64;
  return wide ? step_as<double>(ctx, c) : step_as<float>(ctx, c);
}

}  // namespace tapir::inline v0::cuda_kernels
