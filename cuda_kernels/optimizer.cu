#include <cmath>

#include "../core/dispatch.h"
#include "any.h"
#include "rows.h"
#include "tensor_table.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

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

/// Per step: what the formulas need of the options, in the type they are computed in.
template <class C> struct Coefficients {
  C gradient;         // inv_scale, negative to maximize
  C lr, decay, keep;  // keep = 1 - lr decay, of AdamW
  C beta1, beta2, one_minus_beta1, one_minus_beta2, eps;
  C step_size;        // lr / (1 - beta1^t)
  C inv_correction2;  // 1 / sqrt(1 - beta2^t)
  bool first_step, decoupled, nesterov, skip;
};

/// Raises the step and works out its numbers, once for all parameters; the host does not wait for them.
template <class C> __global__ void prepare_step(Coefficients<C>* to, int64_t* step, const Number lr_at,
                                                const Number inv_scale_at, const Number found_inf,
                                                const OptimizerParams p) {
  if (found_inf.get() != 0) {
    to->skip = true;
    return;
  }
  const double t = double(++*step), lr = lr_at.get(), inv_scale = inv_scale_at.get();
  *to = {C(p.maximize ? -inv_scale : inv_scale),
         C(lr),
         C(p.weight_decay),
         C(1 - lr * p.weight_decay),
         C(p.beta1),
         C(p.beta2),
         C(1 - p.beta1),
         C(1 - p.beta2),
         C(p.eps),
         C(lr / (1 - std::pow(p.beta1, t))),
         C(1 / std::sqrt(1 - std::pow(p.beta2, t))),
         t == 1,
         p.op == OptimizerOp::AdamW,
         p.nesterov,
         false};
}

// v: parameter, gradient, states; how many there are says what is done: SGD 2, with momentum 3, Adam 4, AMSGrad 5.
// Adam: Kingma and Ba 2015, arXiv 1412.6980; AdamW: Loshchilov and Hutter 2019, arXiv 1711.05101; AMSGrad: Reddi et al. 2018.
template <class C, int K> __device__ __forceinline__ void update(const Coefficients<C>& c, C (&v)[K]) {
  C g = v[1] * c.gradient, w = v[0];
  if (c.decoupled) w *= c.keep;
  else if (c.decay != C(0)) g += c.decay * w;
  if constexpr (K >= 4) {
    const C mean = v[2] + c.one_minus_beta1 * (g - v[2]), square = v[3] * c.beta2 + c.one_minus_beta2 * g * g;
    v[2] = mean, v[3] = square;
    C second = square;
    if constexpr (K == 5) second = v[4] = v[4] > square ? v[4] : square;
    v[0] = w - c.step_size * (mean / (std::sqrt(second) * c.inv_correction2 + c.eps));
  } else {
    if constexpr (K == 3) {
      const C b = c.first_step ? g : c.beta1 * v[2] + c.one_minus_beta2 * g;  // beta2: dampening
      v[2] = b;
      g = c.nesterov ? g + c.beta1 * b : b;
    }
    v[0] = w - c.lr * g;
  }
}

template <class T, int K>
__global__ void update_flat(const TensorTable<K> table, const Coefficients<Compute<T>>* coefficients, uint32_t chunks) {
  using C = Compute<T>;
  constexpr int V = kPackSize<T>;
  const Coefficients<C> c = *coefficients;
  if (c.skip) return;
  for (uint32_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const TableChunk at = chunk_at(table, chunk);
    T* data[K];
    bool aligned = true;
    for (int k = 0; k < K; ++k) {
      data[k] = static_cast<T*>(table.data[k][at.tensor]) + at.begin;
      aligned = aligned && head_of(data[k]) == 0;
    }
    for_packs<V>(at.end - at.begin, aligned ? 0 : -1, int(threadIdx.x), int(blockDim.x), [&]<int W>(int64_t i) {
      C v[K][W];
      for (int k = 0; k < K; ++k) load_pack<W>(data[k] + i, v[k]);
      for (int w = 0; w < W; ++w) {
        C one[K];
        for (int k = 0; k < K; ++k) one[k] = v[k][w];
        update(c, one);
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
__global__ void update_any(const Operands<K> o, const Layout<K> l, const Coefficients<C>* coefficients) {
  const Coefficients<C> c = *coefficients;
  if (c.skip) return;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < l.numel; i += int64_t(gridDim.x) * blockDim.x) {
    int64_t at[K];
    l.offsets(i, at);
    C v[K];
    for (int k = 0; k < K; ++k) v[k] = load_float<C>(o.data[k], at[k], o.dtypes[k]);
    update(c, v);
    for (int k = 0; k < K; ++k)
      if (k != 1) store_float(o.data[k], at[k], o.dtypes[k], v[k]);
  }
}

template <class C, int K> void update_all(Context& ctx, const OptimizerLists& lists, const Coefficients<C>* c) {
  const std::span<const TensorView> all[] = {lists.params, lists.grads, lists.first, lists.second, lists.third};
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
            lists.params.size(), operand, [&](size_t i) { return lists.params[i].dtype == dtype && flat(i); },
            [&](const TensorTable<K>& table, uint32_t chunks) {
              launch(ctx, "optimizer_step", table_grid(chunks), update_flat<T, K>, table, c, chunks);
            });
    });
  }
  for (size_t i = 0; i < lists.params.size(); ++i) {
    if (compute_type(lists.params[i].dtype) == dtype_of<C> && flat(i)) continue;
    Operands<K> o;
    for (int k = 0; k < K; ++k) o.data[k] = all[k][i].data, o.dtypes[k] = all[k][i].dtype;
    const Layout<K> l = views(i, [](const TensorView* const(&v)[K]) { return layout_of<K>(v); });
    launch(ctx, "optimizer_step", grid_of(l.numel), update_any<C, K>, o, l, c);
  }
}

template <class C>
void step_as(Context& ctx, const OptimizerLists& lists, const OptimizerScalars& scalars, const OptimizerParams& p) {
  Coefficients<C>* const c = ctx.scratch_of<Coefficients<C>>(1);
  launch(ctx, "optimizer_step", {dim3(1), dim3(1)}, prepare_step<C>, c, scalars.step.as<int64_t>(),
         Number(scalars.lr, 0), Number(scalars.inv_scale, 1), Number(scalars.found_inf, 0), p);
  if (p.op == OptimizerOp::Sgd) return p.beta1 == 0 ? update_all<C, 2>(ctx, lists, c) : update_all<C, 3>(ctx, lists, c);
  return p.amsgrad ? update_all<C, 5>(ctx, lists, c) : update_all<C, 4>(ctx, lists, c);
}

}  // namespace

void optimizer_step(Context& ctx, const OptimizerLists& lists, const OptimizerScalars& scalars,
                    const OptimizerParams& params) {
  const bool wide = !lists.params.empty() && lists.params[0].dtype == kFloat64;
  return wide ? step_as<double>(ctx, lists, scalars, params) : step_as<float>(ctx, lists, scalars, params);
}

}  // namespace tapir::inline v0::cuda_kernels
