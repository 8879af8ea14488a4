#include <cmath>

#include "../core/parallel.h"
#include "kernels.h"
#include "stage.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements

/// Per step: what the formulas need of the options, in the type they are computed in.
template <class C> struct Coefficients {
  C gradient;         // inv_scale, negative to maximize
  C lr, decay, keep;  // keep = 1 - lr decay, of AdamW
  C beta1, beta2, one_minus_beta1, one_minus_beta2, eps;
  C step_size;        // lr / (1 - beta1^t)
  C inv_correction2;  // 1 / sqrt(1 - beta2^t)
  bool first_step;

  Coefficients(const OptimizerParams& p, double lr, double t, double inv_scale)
      : gradient(C(p.maximize ? -inv_scale : inv_scale)), lr(C(lr)), decay(C(p.weight_decay)),
        keep(C(1 - lr * p.weight_decay)), beta1(C(p.beta1)), beta2(C(p.beta2)), one_minus_beta1(C(1 - p.beta1)),
        one_minus_beta2(C(1 - p.beta2)), eps(C(p.eps)), step_size(C(lr / (1 - std::pow(p.beta1, t)))),
        inv_correction2(C(1 / std::sqrt(1 - std::pow(p.beta2, t)))), first_step(t == 1) {}
};

/// Where one run of elements lies: parameter, gradient, states.
template <class C> struct Slots {
  C* p;
  const C* g;
  C *m, *v, *x;
};

// Adam: Kingma and Ba 2015, arXiv 1412.6980; AdamW: Loshchilov and Hutter 2019, arXiv 1711.05101; AMSGrad: Reddi et al. 2018.
template <class C, bool kDecoupled, bool kAmsgrad> void adam(const Coefficients<C>& k, const Slots<C>& s, int64_t n) {
  C* __restrict const p = s.p;
  C* __restrict const m = s.m;
  C* __restrict const v = s.v;
  C* __restrict const x = s.x;
  const C* __restrict const grad = s.g;
  const Coefficients<C> c = k;
  for (int64_t i = 0; i < n; ++i) {
    C g = grad[i] * c.gradient, w = p[i];
    if constexpr (kDecoupled) w *= c.keep;
    else if (c.decay != 0) g += c.decay * w;
    const C mean = m[i] + c.one_minus_beta1 * (g - m[i]);
    const C square = v[i] * c.beta2 + c.one_minus_beta2 * g * g;
    m[i] = mean, v[i] = square;
    C second = square;
    if constexpr (kAmsgrad) second = x[i] = x[i] > square ? x[i] : square;
    p[i] = w - c.step_size * (mean / (std::sqrt(second) * c.inv_correction2 + c.eps));
  }
}

template <class C, bool kMomentum, bool kNesterov> void sgd(const Coefficients<C>& k, const Slots<C>& s, int64_t n) {
  C* __restrict const p = s.p;
  C* __restrict const buffer = s.m;
  const C* __restrict const grad = s.g;
  const Coefficients<C> c = k;
  for (int64_t i = 0; i < n; ++i) {
    C g = grad[i] * c.gradient;
    if (c.decay != 0) g += c.decay * p[i];
    if constexpr (kMomentum) {
      const C b = c.first_step ? g : c.beta1 * buffer[i] + c.one_minus_beta2 * g;  // beta2: dampening
      buffer[i] = b;
      g = kNesterov ? g + c.beta1 * b : b;
    }
    p[i] -= c.lr * g;
  }
}

template <class C> using Update = void (*)(const Coefficients<C>&, const Slots<C>&, int64_t);

template <class C> Update<C> update_for(const OptimizerParams& p) {
  if (p.op == OptimizerOp::Sgd)
    return p.beta1 == 0 ? sgd<C, false, false> : p.nesterov ? sgd<C, true, true> : sgd<C, true, false>;
  if (p.op == OptimizerOp::Adam) return p.amsgrad ? adam<C, false, true> : adam<C, false, false>;
  return p.amsgrad ? adam<C, true, true> : adam<C, true, false>;
}

/// The operands of one parameter: 2 to 5 views; states that the operation has not are absent.
struct Operands {
  const TensorView* view[5] = {};
  int count = 0;

  Operands(const OptimizerLists& lists, size_t i) {
    for (const auto& list : {lists.params, lists.grads, lists.first, lists.second, lists.third})
      if (list.empty()) break;
      else view[count++] = &list[i];
  }
  /// All of dtype C and in one layout without gaps: then one flat loop serves.
  template <class C> bool flat() const {
    for (int k = 0; k < count; ++k)
      if (view[k]->dtype != dtype_of<C> || !same_strides(*view[0], *view[k])) return false;
    return view[0]->is_contiguous() || is_dense(*view[0]);
  }
  template <class C> Slots<C> slots(int64_t from) const {
    const auto at = [&](int k) { return k < count ? view[k]->as<C>() + from : nullptr; };
    return {at(0), at(1), at(2), at(3), at(4)};
  }
};

/// Any strides and dtypes: blocks are converted to C, updated and converted back.
template <class C>
void update_strided(const Operands& operands, Update<C> update, const Coefficients<C>& k, int64_t first, int64_t last) {
  constexpr int64_t kBlock = 512;
  alignas(64) C block[5][kBlock];
  std::array<const int64_t*, 5> strides;
  for (int i = 0; i < 5; ++i) strides[size_t(i)] = operands.view[i < operands.count ? i : 0]->strides;
  const Walk<5> walk(operands.view[0]->shape(), strides);
  walk.run(first, last, [&](int64_t, int64_t count, const std::array<int64_t, 5>& at) {
    for (int64_t done = 0; done < count; done += kBlock) {
      const int64_t n = std::min(kBlock, count - done);
      const auto offset = [&](int i) { return at[size_t(i)] + done * walk.step(i); };
      for (int i = 0; i < operands.count; ++i) load_row(*operands.view[i], offset(i), walk.step(i), n, block[i]);
      update(k, {block[0], block[1], block[2], block[3], block[4]}, n);
      for (int i = 0; i < operands.count; ++i)
        if (i != 1) store_row(*operands.view[i], offset(i), walk.step(i), n, block[i]);
    }
  });
}

template <class C>
void update_all(const OptimizerLists& lists, const OptimizerParams& params, const Coefficients<C>& k) {
  const Update<C> update = update_for<C>(params);
  int64_t total = 0;
  for (V p : lists.params) total += p.numel();
  // Many small tensors and a few large ones balance alike: what is split is the row of all elements.
  parallel_for(total, kGrain, [&](int64_t first, int64_t last) {
    int64_t start = 0;
    for (size_t i = 0; i < lists.params.size() && start < last; ++i) {
      const int64_t n = lists.params[i].numel(), from = std::max<int64_t>(first - start, 0),
                    to = std::min(last - start, n);
      start += n;
      if (from >= to) continue;
      const Operands operands(lists, i);
      if (operands.template flat<C>()) update(k, operands.template slots<C>(from), to - from);
      else update_strided(operands, update, k, from, to);
    }
  });
}

}  // namespace

void optimizer_step(Context&, const OptimizerLists& lists, const OptimizerScalars& scalars,
                    const OptimizerParams& params) {
  if (scalars.found_inf.defined() && number_of(scalars.found_inf) != 0) return;
  const double lr = number_of(scalars.lr), inv_scale = scalars.inv_scale.defined() ? number_of(scalars.inv_scale) : 1;
  const double t = double(++*scalars.step.as<int64_t>());
  if (lists.params.empty()) return;
  if (lists.params[0].dtype == kFloat64) update_all(lists, params, Coefficients<double>(params, lr, t, inv_scale));
  else update_all(lists, params, Coefficients<float>(params, lr, t, inv_scale));
}

}  // namespace tapir::inline v0::cpu
