#pragma once
// Note [Optimizer formulas]
// All that the fused optimizers compute, for every device: numbers_of() what a whole step shares, in double; update() one element of a
// step, in the type that the parameter is computed in. The formulas are torch.optim's, the names of the states too. Those of SGD and Adam
// take the compiler's vectors as well.
#include <cmath>
#include <type_traits>

#include "../params.h"
#include "formula.h"

namespace tapir::inline v0::formulas {

/// How many states a parameter has.
constexpr int states_of(const OptimizerParams& o) {
  switch (o.op) {
    case OptimizerOp::Sgd: return o.beta1 != 0;
    case OptimizerOp::Adam:
    case OptimizerOp::AdamW: return 2 + o.amsgrad;
    case OptimizerOp::RMSprop: return 1 + (o.beta1 != 0) + o.centered;
    case OptimizerOp::Adagrad:
    case OptimizerOp::ASGD:
    case OptimizerOp::Lion: return 1;
    default: return 2;
  }
}

/// What the elements of one step share.
template <class C> struct StepNumbers {
  C gradient;      // inv_scale, negative to maximize
  C decay;         // times the parameter, added to the gradient
  C keep;          // multiplies the parameter: weight decay that is decoupled
  C rate;          // multiplies the update
  C beta1, beta2;  // as in OptimizerParams, with 1 - beta beside them
  C rest1, rest2;
  C eps;
  C a, b;  // Adam and its kind a: 1 / sqrt(1 - beta2^t); NAdam b: rate of the mean; Rprop: its step sizes; ASGD a: mu
  OptimizerOp op;
  bool first_step, nesterov, centered;
  bool rectified;  // RAdam: enough steps for the adaptive rate
  bool skip;       // for a device that learns of found_inf late
};

/// eps of float32 that is above 0 stays so where denormal numbers count as 0: Note [Denormal numbers].
template <class C> TAPIR_FORMULA C eps_of(double eps) {
  return C(std::is_same_v<C, float> && eps > 0 && eps < 0x1p-126 ? 0x1p-126 : eps);
}

/// `numbers` as in entry::OptimizerStep; t: steps, this one included.
template <class C> TAPIR_FORMULA StepNumbers<C> numbers_of(const OptimizerParams& o, double lr, double t,
                                                           double inv_scale, double beta1, float* numbers) {
  const bool decoupled = o.op == OptimizerOp::AdamW || o.op == OptimizerOp::Lion || o.decoupled;
  const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(o.beta2, t);
  double keep = decoupled ? 1 - lr * o.weight_decay : 1, rate = lr, a = 1 / std::sqrt(correction2), b = o.b;
  bool rectified = false;
  switch (o.op) {
    case OptimizerOp::Adam:
    case OptimizerOp::AdamW:
    case OptimizerOp::Adamax: rate = lr / correction1; break;
    case OptimizerOp::Adagrad: rate = lr / (1 + (t - 1) * o.a); break;
    case OptimizerOp::NAdam: {
      const double mu = beta1 * (1 - 0.5 * std::pow(0.96, t * o.a)),
                   next = beta1 * (1 - 0.5 * std::pow(0.96, (t + 1) * o.a));
      const double product = double(numbers[0] *= float(mu));
      rate = lr * (1 - mu) / (1 - product), b = lr * next / (1 - product * next);
      break;
    }
    case OptimizerOp::RAdam: {
      const double limit = 2 / (1 - o.beta2) - 1, length = limit - 2 * t * (1 - correction2) / correction2;
      rate = lr / correction1;
      rectified = length > 5;
      if (rectified)
        rate *= std::sqrt(correction2 * (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length));
      break;
    }
    case OptimizerOp::Rprop: a = o.a; break;
    case OptimizerOp::ASGD:  // eta and mu of the step before
      rate = double(numbers[0]), a = double(numbers[1]), keep = 1 - beta1 * rate;
      numbers[0] = float(lr / std::pow(1 + beta1 * lr * t, o.beta2));
      numbers[1] = float(1 / (t - o.a > 1 ? t - o.a : 1));
      break;
    default: break;
  }
  return {C(o.maximize ? -inv_scale : inv_scale),
          C(decoupled ? 0 : o.weight_decay),
          C(keep),
          C(rate),
          C(beta1),
          C(o.beta2),
          C(1 - beta1),
          C(1 - o.beta2),
          eps_of<C>(o.eps),
          C(a),
          C(b),
          o.op,
          t == 1,
          o.nesterov,
          o.centered,
          rectified,
          false};
}

/// The value that a step starts from, of a parameter of 16 bits and its float32 copy, which rounds to `rounded`: where that is not the
/// parameter, somebody has written to it.
template <class C> TAPIR_FORMULA C start_of(C copy, C rounded, C parameter) {
  return rounded == parameter ? copy : parameter;
}

// One element: g is the gradient, scaled and with decay, v[0] the parameter, v[2] to v[K - 1] the states.

/// The square root, of each lane where C is a vector.
template <class C> TAPIR_FORMULA C root(C x) {
  if constexpr (std::is_floating_point_v<C>) {
    return std::sqrt(x);
  } else {
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); ++i) x[i] = std::sqrt(x[i]);
    return x;
  }
}

/// momentum_buffer
template <class N, class C, int K> TAPIR_FORMULA void sgd(const StepNumbers<N>& c, C g, C (&v)[K]) {
  if constexpr (K == 3) {
    const C b = c.first_step ? g : c.beta1 * v[2] + c.rest2 * g;
    v[2] = b;
    g = c.nesterov ? g + c.beta1 * b : b;
  }
  v[0] -= c.rate * g;
}
/// exp_avg, exp_avg_sq, max_exp_avg_sq. Kingma and Ba 2015, arXiv 1412.6980; decoupled decay: Loshchilov and Hutter 2019,
/// arXiv 1711.05101; AMSGrad: Reddi et al. 2018.
template <class N, class C, int K> TAPIR_FORMULA void adam(const StepNumbers<N>& c, C g, C (&v)[K]) {
  const C mean = v[2] + c.rest1 * (g - v[2]), square = v[3] * c.beta2 + c.rest2 * g * g;
  v[2] = mean, v[3] = square;
  C second = square;
  if constexpr (K == 5) second = v[4] = v[4] > square ? v[4] : square;
  v[0] -= c.rate * (mean / (root(second) * c.a + c.eps));
}
/// sum. Duchi et al. 2011.
template <class C, int K> TAPIR_FORMULA void adagrad(const StepNumbers<C>& c, C g, C (&v)[K]) {
  v[2] += g * g;
  v[0] -= c.rate * (g / (std::sqrt(v[2]) + c.eps));
}
/// square_avg, acc_delta. Zeiler 2012, arXiv 1212.5701.
template <class C, int K> TAPIR_FORMULA void adadelta(const StepNumbers<C>& c, C g, C (&v)[K]) {
  v[2] = v[2] * c.beta2 + c.rest2 * g * g;
  const C delta = std::sqrt(v[3] + c.eps) / std::sqrt(v[2] + c.eps) * g;
  v[3] = v[3] * c.beta2 + c.rest2 * delta * delta;
  v[0] -= c.rate * delta;
}
/// exp_avg, exp_inf. Kingma and Ba 2015.
template <class C, int K> TAPIR_FORMULA void adamax(const StepNumbers<C>& c, C g, C (&v)[K]) {
  v[2] += c.rest1 * (g - v[2]);
  const C old = v[3] * c.beta2, now = (g < 0 ? -g : g) + c.eps;
  v[3] = old > now ? old : now;
  v[0] -= c.rate * (v[2] / v[3]);
}
/// exp_avg, exp_avg_sq. Dozat 2016.
template <class C, int K> TAPIR_FORMULA void nadam(const StepNumbers<C>& c, C g, C (&v)[K]) {
  v[2] += c.rest1 * (g - v[2]);
  v[3] = v[3] * c.beta2 + c.rest2 * g * g;
  v[0] -= (c.rate * g + c.b * v[2]) / (std::sqrt(v[3]) * c.a + c.eps);
}
/// exp_avg, exp_avg_sq. Liu et al. 2019, arXiv 1908.03265.
template <class C, int K> TAPIR_FORMULA void radam(const StepNumbers<C>& c, C g, C (&v)[K]) {
  v[2] += c.rest1 * (g - v[2]);
  v[3] = v[3] * c.beta2 + c.rest2 * g * g;
  v[0] -= c.rate * (c.rectified ? v[2] / (std::sqrt(v[3]) + c.eps) : v[2]);
}
/// square_avg, momentum_buffer where there is momentum, grad_avg where centered. Tieleman and Hinton 2012; Graves 2013, arXiv 1308.0850.
template <class C, int K> TAPIR_FORMULA void rmsprop(const StepNumbers<C>& c, C g, C (&v)[K]) {
  C square = v[2] = v[2] * c.beta2 + c.rest2 * g * g;
  if (K > 3 && c.centered) {
    C& mean = v[K - 1];
    mean += c.rest2 * (g - mean);
    square -= mean * mean;
    square = square < 0 ? C(0) : square;  // by rounding
  }
  C move = g / (std::sqrt(square) + c.eps);
  if constexpr (K > 3)
    if (K == 5 || !c.centered) move = v[3] = c.beta1 * v[3] + move;
  v[0] -= c.rate * move;
}
/// prev, step_size. Riedmiller and Braun 1993.
template <class C, int K> TAPIR_FORMULA void rprop(const StepNumbers<C>& c, C g, C (&v)[K]) {
  const C turn = (g > 0   ? C(1)
                  : g < 0 ? C(-1)
                          : g) *
                 v[2],
          size = v[3] * (turn > 0    ? c.beta2
                         : turn < 0  ? c.beta1
                         : turn == 0 ? C(1)
                                     : turn);
  v[3] = size < c.a ? c.a : size > c.b ? c.b : size;
  v[2] = turn < 0 ? C(0) : g;
  v[0] -= v[3] * C((v[2] > 0) - (v[2] < 0));
}
/// ax. Polyak and Juditsky 1992.
template <class C, int K> TAPIR_FORMULA void asgd(const StepNumbers<C>& c, C g, C (&v)[K]) {
  v[0] -= c.rate * g;
  v[2] = c.a == 1 ? v[0] : v[2] + (v[0] - v[2]) * c.a;
}
/// exp_avg. Chen et al. 2023, arXiv 2302.06675.
template <class C, int K> TAPIR_FORMULA void lion(const StepNumbers<C>& c, C g, C (&v)[K]) {
  const C u = c.beta1 * v[2] + c.rest1 * g;
  v[0] -= c.rate * (u > 0 ? C(1) : u < 0 ? C(-1) : u);  // a NaN stays one
  v[2] = c.beta2 * v[2] + c.rest2 * g;
}

/// One element of a step of `op`, which is c.op, or one in each lane: v holds parameter, gradient and states, K in all.
template <class N, class C, int K> TAPIR_FORMULA void update(OptimizerOp op, const StepNumbers<N>& c, C (&v)[K]) {
  using O = OptimizerOp;
  C g = v[1] * c.gradient;
  if (c.decay != 0) g += c.decay * v[0];
  v[0] *= c.keep;
  if constexpr (!std::is_same_v<N, C>) {
    if constexpr (K < 4) sgd(c, g, v);
    else adam(c, g, v);
  } else if constexpr (K == 2) sgd(c, g, v);
  else if constexpr (K == 3) switch (op) {
      case O::Adagrad: return adagrad(c, g, v);
      case O::RMSprop: return rmsprop(c, g, v);
      case O::ASGD: return asgd(c, g, v);
      case O::Lion: return lion(c, g, v);
      default: return sgd(c, g, v);
    }
  else if constexpr (K == 4) switch (op) {
      case O::Adadelta: return adadelta(c, g, v);
      case O::Adamax: return adamax(c, g, v);
      case O::NAdam: return nadam(c, g, v);
      case O::RAdam: return radam(c, g, v);
      case O::RMSprop: return rmsprop(c, g, v);
      case O::Rprop: return rprop(c, g, v);
      default: return adam(c, g, v);
    }
  else if (op == O::RMSprop) rmsprop(c, g, v);
  else adam(c, g, v);
}

}  // namespace tapir::inline v0::formulas
