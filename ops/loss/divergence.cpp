#include "../divergence.h"

#include <cmath>
#include <numbers>

#include "../activation.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../reduce.h"
#include "../shape.h"
#include "../ternary.h"
#include "../unary.h"
#include "loss_front.h"

namespace tapir::inline v0 {

void check_range(const char* op, const char* what, const Tensor& x, double low, double high) {
  if (!x.device().is_cpu()) return;  // looking would wait for the device
  NoGrad guard;
  const Tensor bad = std::isinf(high) ? lt(x, low) : logical_not(logical_and(ge(x, low), le(x, high)));  // a NaN too
  if (!any(bad).item<bool>()) return;
  const auto position = argmax(to(bad, kInt8)).item<int64_t>();
  fail(ErrorKind::Value, "[{}] all elements of {} should be between {} and {}, got {} at position {}", op, what, low,
       high, reshape(x, -1)[position].item(), position);
}

static Tensor bounded_log(const Tensor& x) { return clamp_min(log(x), -100); }
static Tensor bounded_log1m(const Tensor& x) { return clamp_min(log1p(neg(x)), -100); }

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const LossOptions& o) {
  check_defined("binary_cross_entropy", "input", input, "target", target);
  TAPIR_AUTOCAST(binary_cross_entropy, input, target, o);
  const char* op = "binary_cross_entropy";
  common_device(op, {&input, &target, &o.weight});
  check(is_floating(input.dtype()), "[{}] expected an input of a floating-point dtype, got {}", op, input);
  check(target.dtype() == input.dtype(), "[{}] expected input and target of one dtype, got {} and {}", op, input,
        target);
  check(target.shape() == input.shape(), "[{}] target size {} must be the same as input size {}", op, target.shape(),
        input.shape());
  check_range(op, "input", input, 0, 1), check_range(op, "target", target, 0, 1);
  Tensor losses;
  {
    NoGrad guard;
    losses = sub(mul(sub(target, 1), bounded_log1m(input)), mul(target, bounded_log(input)));
  }
  losses = record(op, losses, {input, target}, save(input, target),
                  [](Needs needs, const Tensor& g, const Tensor& x, const Tensor& t) {
                    Grads out(2);
                    if (needs[0]) out[0] = mul(g, div(sub(x, t), clamp_min(mul(x, sub(1, x)), double(1e-12F))));
                    if (needs[1]) out[1] = mul(g, sub(bounded_log1m(x), bounded_log(x)));
                    return out;
                  });
  if (o.weight.defined()) {
    check(broadcasts_to(o.weight.shape(), input.shape()),
          "[{}] expected a weight that broadcasts to the input's shape {}, got {}", op, input.shape(), o.weight);
    losses = mul(losses, o.weight);
  }
  return reduced(op, losses, o.reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& o) try {
  check_defined("kl_div", "input", input, "target", target);
  TAPIR_AUTOCAST(kl_div, input, target, o);
  check_target("kl_div", input, target);
  Tensor losses;
  if (o.log_target) {
    losses = mul(exp(target), sub(target, input));
  } else {  // t log t is 0 at t = 0, where the logarithm is not looked at
    const Tensor none = eq(target, 0);
    losses = sub(mul(target, log(masked_fill(target, none, 1))), mul(target, input));
  }
  if (o.reduction != Reduction::BatchMean) return reduced("kl_div", losses, o.reduction);
  return input.dim() == 0 ? sum(losses) : div(sum(losses), input.shape()[0]);
} catch (...) {
  fail_as("kl_div");
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var_of,
                         const GaussianNllLossOptions& o) try {
  check_defined("gaussian_nll_loss", "input", input, "target", target, "var_of", var_of);
  const char* op = "gaussian_nll_loss";
  check_target(op, input, target), common_device(op, {&input, &var_of});
  Tensor var = var_of;
  Shape row = input.shape();
  if (!row.empty()) row.resize(row.size() - 1);
  if (var.shape() != input.shape() && var.shape() == row) var = unsqueeze(var, -1);
  int64_t differing = 0;
  for (int64_t d = 0; var.dim() == input.dim() && d < var.dim(); ++d)
    if (var.shape()[d] != input.shape()[d]) differing += var.shape()[d] == 1 ? 1 : 2;
  check(var.dim() == input.dim() && differing < 2,
        "[{}] var is of incorrect size: expected input's shape {}, it without the last dimension, or with one extent "
        "of 1, got {}",
        op, input.shape(), var_of);
  check_range(op, "var", var, 0, INFINITY);
  Tensor least;
  {
    NoGrad guard;
    least = clamp_min(var, o.eps);
  }
  var = record("clamp_variance", least, {var}, [](const Tensor& g) { return Grads{g}; });  // as if it were not clamped
  Tensor losses = mul(add(log(var), div(square(sub(input, target)), var)), 0.5);
  if (o.full) losses = add(losses, 0.5 * std::log(2 * std::numbers::pi));
  return reduced(op, losses, o.reduction);
} catch (...) {
  fail_as("gaussian_nll_loss");
}
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, double var, const GaussianNllLossOptions& o) try {
  return gaussian_nll_loss(input, target, full_like(input, var), o);
} catch (...) {
  fail_as("gaussian_nll_loss");
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllLossOptions& o) try {
  check_defined("poisson_nll_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(poisson_nll_loss, input, target, o);
  check_target("poisson_nll_loss", input, target);
  Tensor losses = o.log_input ? sub(exp(input), mul(target, input)) : sub(input, mul(target, log(add(input, o.eps))));
  if (o.full) {  // t log t - t + log(2 pi t) / 2 for t > 1
    const Tensor small = le(target, 1), t = masked_fill(target, small, 1);
    const Tensor stirling = add(sub(mul(t, log(t)), t), mul(log(mul(t, 2 * std::numbers::pi)), 0.5));
    losses = add(losses, masked_fill(stirling, small, 0));
  }
  return reduced("poisson_nll_loss", losses, o.reduction);
} catch (...) {
  fail_as("poisson_nll_loss");
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction) try {
  check_defined("soft_margin_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(soft_margin_loss, input, target, reduction);
  check_target("soft_margin_loss", input, target);
  check(is_floating(input.dtype()), "[soft_margin_loss] expected an input of a floating-point dtype, got {}", input);
  return reduced("soft_margin_loss", neg(logsigmoid(mul(target, input))), reduction);
} catch (...) {
  fail_as("soft_margin_loss");
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const LossOptions& o) try {
  check_defined("multilabel_soft_margin_loss", "input", input, "target", target);
  const char* op = "multilabel_soft_margin_loss";
  check_target(op, input, target), common_device(op, {&input, &o.weight});
  check(is_floating(input.dtype()) && input.dim() > 0,
        "[{}] expected an input of a floating-point dtype with a dimension of classes, got {}", op, input);
  const Tensor x = to(input, compute_type(input.dtype()));  // rounded once, at the end
  Tensor losses = neg(add(mul(target, logsigmoid(x)), mul(sub(1, target), logsigmoid(neg(x)))));
  if (o.weight.defined()) losses = mul(losses, o.weight);
  const Operand a(input), b(target), w(o.weight);
  return to(reduced(op, mean(losses, -1), o.reduction), result_type({&a, &b, &w}));
} catch (...) {
  fail_as("multilabel_soft_margin_loss");
}

}  // namespace tapir::inline v0
