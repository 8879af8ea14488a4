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

template <class T, int K>
__global__ void update_flat(const TensorTable<K> table, const StepNumbers<Compute<T>>* coefficients, uint32_t chunks) {
  using C = Compute<T>;
  constexpr int V = kPackSize<T>;
  const StepNumbers<C> c = *coefficients;
  if (c.skip) return;
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    T* data[K];
    bool aligned = true;
    for (int k = 0; k < K; ++k) {
      data[k] = static_cast<T*>(table.data[k][at.tensor]) + at.begin;
      aligned = aligned && head_of(data[k]) == 0;
    }
    for_packs<V>(at.end - at.begin, aligned ? 0 : -1, [&]<int W>(int64_t i) {
      C v[K][W];
      for (int k = 0; k < K; ++k) load_pack<W>(data[k] + i, v[k]);
      for (int w = 0; w < W; ++w) {
        C one[K];
        for (int k = 0; k < K; ++k) one[k] = v[k][w];
        formulas::update(c.op, c, one);
        for (int k = 0; k < K; ++k) v[k][w] = one[k];
      }
      for (int k = 0; k < K; ++k)
        if (k != 1) store_pack<W>(data[k] + i, v[k]);
    });
  }
}

template <int K> struct Operands {
  void* data[K];
  DType dtypes[K];
};
/// One parameter of any strides and dtypes.
template <class C, int K>
__global__ void update_any(const Operands<K> o, const Layout<K> l, const StepNumbers<C>* coefficients) {
  const StepNumbers<C> c = *coefficients;
  if (c.skip) return;
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[K];
    l.offsets(i, at);
    C v[K];
    for (int k = 0; k < K; ++k) v[k] = load_float<C>(o.data[k], at[k], o.dtypes[k]);
    formulas::update(c.op, c, v);
    for (int k = 0; k < K; ++k)
      if (k != 1) store_float(o.data[k], at[k], o.dtypes[k], v[k]);
  }
}

template <class C, int K>
void update_all(Context& ctx, const entry::OptimizerStep& c, const StepNumbers<C>* coefficients) {
  const std::span<const TensorView> all[] = {c.values, c.grads, c.first, c.second, c.third};
  const auto operand = [&](size_t i, int k) -> V { return all[k][i]; };
  const auto views = [&](size_t i, auto f) {
    const TensorView* v[K];
    for (int k = 0; k < K; ++k) v[k] = &all[k][i];
    return f(v);
  };
  const auto flat = [&](size_t i) {
    return views(i, [](const TensorView* const(&v)[K]) {
      for (int k = 1; k < K; ++k)
        if (v[k]->dtype != v[0]->dtype) return false;
      return is_flat<K>(v);
    });
  };
  for (DType dtype : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
    for_any_float("optimizer_step", dtype, [&]<class T>() {
      if constexpr (std::is_same_v<Compute<T>, C>)
        for_tables<K>(
            c.values.size(), operand, [&](size_t i) { return c.values[i].dtype == dtype && flat(i); },
            [&](const TensorTable<K>& table, uint32_t chunks) {
              launch(ctx, "optimizer_step", table_grid(chunks), update_flat<T, K>, table, coefficients, chunks);
            });
    });
  }
  for (size_t i = 0; i < c.values.size(); ++i) {
    if (compute_type(c.values[i].dtype) == dtype_of<C> && flat(i)) continue;
    Operands<K> o;
    for (int k = 0; k < K; ++k) o.data[k] = all[k][i].data, o.dtypes[k] = all[k][i].dtype;
    const Layout<K> l = views(i, [](const TensorView* const(&v)[K]) { return layout_of<K>(v); });
    launch(ctx, "optimizer_step", grid_of(l.numel), update_any<C, K>, o, l, coefficients);
  }
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
