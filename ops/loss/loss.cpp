#include "../loss.h"

#include "../activation.h"
#include "../aligned_rows.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../checked.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../indexing.h"
#include "../reduce.h"
#include "../shape.h"
#include "../softmax.h"
#include "../ternary.h"
#include "../unary.h"
#include "loss_front.h"

namespace tapir::inline v0 {

Tensor reduced(const char* op, const Tensor& losses, Reduction reduction) {
  check(reduction != Reduction::BatchMean, "[{}] expected a reduction of none, mean or sum, got batchmean", op);
  return reduction == Reduction::None ? losses : reduction == Reduction::Mean ? mean(losses) : sum(losses);
}

void check_target(const char* op, const Tensor& input, const Tensor& target) {
  common_device(op, {&input, &target});
  check(broadcasts_to(target.shape(), input.shape()),
        "[{}] expected a target that broadcasts to the input's shape {}, got {}", op, input.shape(), target);
}

/// Zeros of `shape` (N, C, ...) with g (N, 1, ...) at the classes of index: the transpose of pick_classes.
static Tensor place_classes(const char* op, const Tensor& g, const Tensor& index, const Shape& shape) {
  Tensor y = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  backend(g).scatter(context(g), {y, index, view_as(g, index.shape(), g.dtype()), {.dim = 1}});
  return record(op, y, {g}, save(index),
                [op](const Tensor& u, const Tensor& index) { return Grads{pick_classes(op, u, index)}; });
}
Tensor pick_classes(const char* op, const Tensor& x, const Tensor& index) {
  Tensor y = empty(index.shape(), {.dtype = x.dtype(), .device = x.device()});
  Context& ctx = context(x);
  backend(x).gather(ctx, {y, x, index, {.dim = 1}});
  check_values(ctx,
               tapir::format("[{}] target {value} at position {position} is out of bounds for {bound} classes", op));
  const Shape shape = x.shape();
  return record(op, y, {x}, save(index), [op, shape](const Tensor& g, const Tensor& index) {
    return Grads{place_classes(op, g, index, shape)};
  });
}

namespace {

/// What labels (N, ...) say, with an axis of classes: constants of the tape.
struct Targets {
  Tensor valid, index;  // (N, 1, ...): is it not the ignored one; the label, 0 where ignored
  Targets(const Tensor& target, int64_t ignore_index) {
    NoGrad guard;
    valid = unsqueeze(ne(target, ignore_index), 1);
    index = mul(unsqueeze(target, 1), valid);
  }
  /// The weight of each label, 0 where ignored.
  Tensor factor(const Tensor& weight, DType dtype) const {
    NoGrad guard;
    if (!weight.defined()) return to(valid, dtype);
    return mul(to(reshape(index_select(weight, 0, flatten(index)), index.shape()), dtype), valid);
  }
};

/// (C) as it broadcasts against (N, C, ...).
Tensor along_classes(const Tensor& weight, int64_t rank) {
  Shape shape = Dims::filled(rank, 1);
  shape[rank == 1 ? 0 : 1] = weight.numel();
  return reshape(weight, shape);
}

/// A of (N, C, ...) such that the losses are sum_c A_c log softmax(logits)_c.
Tensor class_factors(const Shape& shape, const Targets& labels, const Tensor& weight, const NllParams& p, DType dtype) {
  NoGrad guard;
  const Tensor picked =
      place_classes("cross_entropy", mul(labels.factor(weight, dtype), p.label_smoothing - 1), labels.index, shape);
  if (p.label_smoothing == 0) return picked;
  const Tensor uniform = mul(to(labels.valid, dtype), p.label_smoothing / double(shape[1]));
  return sub(picked, weight.defined() ? mul(uniform, to(along_classes(weight, shape.size()), dtype)) : uniform);
}

Tensor cross_entropy_composite(const Tensor& logits, const Tensor& target, const Tensor& weight, const NllParams& p,
                               DType dtype) {
  const Tensor a = class_factors(logits.shape(), Targets(target, p.ignore_index), weight, p, dtype);
  return sum(where(ne(a, 0), mul(a, log_softmax(to(logits, dtype), 1)), 0), 1);
}
}  // namespace

/// dlogits = g (A - softmax(logits) sum_c A_c)
Tensor cross_entropy_gradient(const Tensor& g, const Tensor& logits, const Tensor& target, const Tensor& weight,
                              const NllParams& p) {
  const Targets labels(target, p.ignore_index);
  const Tensor a = class_factors(logits.shape(), labels, weight, p, g.dtype());
  const Tensor wide = where(labels.valid, unsqueeze(g, 1), 0);  // not a product: g is infinite where all are ignored
  return to(mul(wide, sub(a, mul(softmax(to(logits, g.dtype()), 1), sum(a, 1, {.keepdim = true})))), logits.dtype());
}
Tensor total_of(const Tensor& labels, int64_t ignore_index, const Tensor& weight, DType dtype) {
  NoGrad guard;
  if (weight.defined()) return sum(Targets(labels, ignore_index).factor(weight, dtype));
  return to(sum(ne(labels, ignore_index)), dtype);
}

Tensor label_losses(const Tensor& logits, const Tensor& target, const Tensor& weight, const NllParams& p) {
  const TensorOptions options{.dtype = compute_type(logits.dtype()), .device = logits.device()};
  Shape parts = target.shape();
  parts.insert(0, 2);
  Tensor losses = empty(target.shape(), options), lse = empty(parts, options);
  Context& ctx = context(logits);
  backend(logits).cross_entropy(
      ctx, {.losses = losses, .lse = lse, .logits = logits, .target = target, .weight = weight, .params = p});
  check_values(ctx, "[cross_entropy] target {value} at position {position} is out of bounds for {bound} classes");
  compare_fused("cross_entropy", losses,
                [&] { return cross_entropy_composite(logits, target, weight, p, losses.dtype()); });
  return record(
      "cross_entropy", losses, {logits}, save(logits, target, weight, lse),
      [p](const Tensor& g, const Tensor& logits, const Tensor& target, const Tensor& weight, const Tensor& lse) {
        const auto kernel = [&] {
          Tensor dlogits = logits.dim() == 2 ? aligned_rows(logits.size(0), logits.size(1), logits) : Tensor();
          if (!dlogits.defined()) dlogits = empty_like(logits);
          backend(logits).cross_entropy_backward(context(logits), {.dlogits = dlogits,
                                                                   .dlosses = g,
                                                                   .lse = lse,
                                                                   .logits = logits,
                                                                   .target = target,
                                                                   .weight = weight,
                                                                   .params = p});
          return Grads{dlogits};
        };
        return gradient_by_kernel("cross_entropy_backward", g, kernel,
                                  [&] { return Grads{cross_entropy_gradient(g, logits, target, weight, p)}; });
      });
}

namespace {

/// -sum_c w_c t_c log softmax(input)_c for probabilities t.
Tensor probability_losses(const Tensor& input, const Tensor& target, const CrossEntropyOptions& o) {
  check(target.shape() == input.shape(),
        "[cross_entropy] expected probabilities of the input's shape {}, or labels of an integer dtype, got {}",
        input.shape(), target);
  check(o.ignore_index < 0, "[cross_entropy] ignore_index is not supported for floating point target, got {}",
        o.ignore_index);
  const int64_t axis = input.dim() == 1 ? 0 : 1, classes = input.shape()[axis];
  const Tensor t =
      o.label_smoothing == 0 ? target : add(mul(target, 1 - o.label_smoothing), o.label_smoothing / double(classes));
  Tensor terms = mul(log_softmax(input, axis), t);
  if (o.weight.defined()) terms = mul(terms, along_classes(o.weight, input.dim()));
  const Tensor losses = neg(sum(terms, axis));
  return o.reduction == Reduction::Mean ? div(sum(losses), double(losses.numel()))
                                        : reduced("cross_entropy", losses, o.reduction);
}

/// What cross_entropy and nll_loss ask of their operands.
void check_classes(const char* op, const Tensor& input, const Tensor& target, const Tensor& weight) {
  common_device(op, {&input, &target, &weight});
  check(is_floating(input.dtype()), "[{}] expected an input of a floating-point dtype, got {}", op, input);
  check(input.dim() > 0, "[{}] expected an input of shape (C), (N, C) or (N, C, ...), got {}", op, input);
  const int64_t classes = input.shape()[input.dim() == 1 ? 0 : 1];
  if (weight.defined()) {
    check(weight.dim() == 1 && weight.numel() == classes && is_floating(weight.dtype()),
          "[{}] weight tensor should be defined either for all {} classes or no classes but got {}", op, classes,
          weight);
  }
  if (is_floating(target.dtype())) return;
  check(is_integral(target.dtype()), "[{}] expected labels of an integer dtype, got {}", op, target);
  Shape expected = input.shape();
  expected.erase(input.dim() == 1 ? 0 : 1);
  check(target.shape() == expected,
        "[{}] expected input batch_size to match target batch_size: a target of shape {} for input {}, got {}", op,
        expected, input.shape(), target);
}

Tensor mean_over(const Tensor& losses, const Tensor& total) { return div(sum(losses), total); }

}  // namespace

/// wide: the result is in float32 at least, else in the input's dtype.
static Tensor cross_entropy_in(bool wide, const Tensor& input, const Tensor& target, const CrossEntropyOptions& o) {
  check_classes("cross_entropy", input, target, o.weight);
  check(o.label_smoothing >= 0 && o.label_smoothing <= 1,
        "[cross_entropy] label_smoothing must be between 0.0 and 1.0. Got: {}", o.label_smoothing);
  if (is_floating(target.dtype())) return probability_losses(input, target, o);
  if (input.dim() == 1) {
    const Tensor y = cross_entropy_in(wide, unsqueeze(input, 0), unsqueeze(target, 0), o);
    return o.reduction == Reduction::None ? squeeze(y, 0) : y;
  }
  const Tensor labels = to(target, kInt64),
               losses = label_losses(input, labels, o.weight, {o.ignore_index, o.label_smoothing});
  const bool mean = o.reduction == Reduction::Mean;
  return to(mean ? mean_over(losses, total_of(labels, o.ignore_index, o.weight, losses.dtype()))
                 : reduced("cross_entropy", losses, o.reduction),
            wide ? losses.dtype() : input.dtype());
}

Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyOptions& o) {
  check_defined("cross_entropy", "input", input, "target", target);
  if (modes.autocast) [[unlikely]]
    if (detail::CastScope cast(cast_rule("cross_entropy"), input, target, o); cast) {
      if (target.defined() && is_floating(target.dtype())) return cross_entropy(cast(input), cast(target), cast(o));
      // Of labels the kernels compute in float32 anyway: the logits, which are large, are not copied.
      return cross_entropy_in(true, input, target, o);
    }
  return cross_entropy_in(false, input, target, o);
}

Tensor nll_loss(const Tensor& input, const Tensor& target, const NllLossOptions& o) {
  check_defined("nll_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(nll_loss, input, target, o);
  check_classes("nll_loss", input, target, o.weight);
  check(is_integral(target.dtype()), "[nll_loss] expected labels of an integer dtype, got {}", target);
  if (input.dim() == 1) {
    const Tensor y = nll_loss(unsqueeze(input, 0), unsqueeze(target, 0), o);
    return o.reduction == Reduction::None ? squeeze(y, 0) : y;
  }
  const Targets labels(to(target, kInt64), o.ignore_index);
  const Tensor picked = pick_classes("nll_loss", input, labels.index);
  const Tensor x = to(picked, compute_type(input.dtype()));
  const Tensor factor = labels.factor(o.weight, x.dtype());
  const Tensor losses = squeeze(where(labels.valid, neg(mul(x, factor)), 0), 1);
  return to(o.reduction == Reduction::Mean ? mean_over(losses, sum(factor)) : reduced("nll_loss", losses, o.reduction),
            input.dtype());
}

/// The losses of elements, weighted and reduced; `difference` of input and target makes them.
template <class F> static Tensor elementwise_loss(const char* op, const Tensor& input, const Tensor& target,
                                                  const LossOptions& o, const F& difference) {
  check_target(op, input, target), common_device(op, {&input, &o.weight});
  const Tensor losses = difference(sub(input, target));
  if (!o.weight.defined()) return reduced(op, losses, o.reduction);
  check(o.weight.shape() == input.shape(), "[{}] weights and input must have the same size, got {} and {}", op,
        o.weight.shape(), input.shape());
  const Tensor weighted = mul(losses, o.weight);
  return o.reduction == Reduction::Mean ? mean_over(weighted, sum(o.weight)) : reduced(op, weighted, o.reduction);
}

Tensor mse_loss(const Tensor& input, const Tensor& target, const LossOptions& options) try {
  check_defined("mse_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(mse_loss, input, target, options);
  return elementwise_loss("mse_loss", input, target, options, [](const Tensor& d) { return square(d); });
} catch (...) {
  fail_as("mse_loss");
}
Tensor l1_loss(const Tensor& input, const Tensor& target, const LossOptions& options) try {
  check_defined("l1_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(l1_loss, input, target, options);
  return elementwise_loss("l1_loss", input, target, options, [](const Tensor& d) { return abs(d); });
} catch (...) {
  fail_as("l1_loss");
}

/// d^2 / 2 for |d| = |x - t| below `knee`, else knee (|d| - knee / 2): both are c (|d| - c / 2) with c = min(|d|, knee).
static Tensor huber(const char* op, const Tensor& input, const Tensor& target, double knee) {
  const Tensor d = sub(input, target);
  check(is_floating(d.dtype()), "[{}] expected a floating-point dtype, got {}", op, input);
  Tensor losses;
  {
    NoGrad guard;
    const Tensor size = abs(d), c = clamp_max(size, knee);
    losses = mul(c, sub(size, mul(c, 0.5)));
  }
  return record(op, losses, {d}, save(d),  // not by abs, whose slope at 0 would hide the second derivative there
                [knee](const Tensor& g, const Tensor& d) { return Grads{mul(g, clamp(d, -knee, knee))}; });
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossOptions& o) try {
  check_defined("smooth_l1_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(smooth_l1_loss, input, target, o);
  check(o.beta >= 0, "[smooth_l1_loss] expected a beta of at least 0, got {}", o.beta);
  if (o.beta == 0) return l1_loss(input, target, {.reduction = o.reduction});
  check_target("smooth_l1_loss", input, target);
  return reduced("smooth_l1_loss", div(huber("smooth_l1_loss", input, target, o.beta), o.beta), o.reduction);
} catch (...) {
  fail_as("smooth_l1_loss");
}

Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossOptions& o) try {
  check_defined("huber_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(huber_loss, input, target, o);
  check(o.delta > 0, "[huber_loss] expected a delta above 0, got {}", o.delta);
  check_target("huber_loss", input, target), common_device("huber_loss", {&input, &o.weight});
  Tensor losses = huber("huber_loss", input, target, o.delta);
  if (o.weight.defined()) {
    check(o.weight.shape() == input.shape(), "[huber_loss] weights and input must have the same size, got {} and {}",
          o.weight.shape(), input.shape());
    losses = mul(losses, o.weight);
  }
  return reduced("huber_loss", losses, o.reduction);
} catch (...) {
  fail_as("huber_loss");
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const BceWithLogitsOptions& o) {
  check_defined("binary_cross_entropy_with_logits", "input", input, "target", target);
  TAPIR_AUTOCAST(binary_cross_entropy_with_logits, input, target, o);
  const char* op = "binary_cross_entropy_with_logits";
  common_device(op, {&input, &target, &o.weight, &o.pos_weight});
  check(is_floating(input.dtype()), "[{}] expected an input of a floating-point dtype, got {}", op, input);
  check(target.shape() == input.shape(), "[{}] target size {} must be the same as input size {}", op, target.shape(),
        input.shape());
  for (const Tensor* w : {&o.weight, &o.pos_weight}) {
    if (w->defined())
      check(broadcasts_to(w->shape(), input.shape()),
            "[{}] expected {} that broadcasts to the input's shape {}, got {}", op,
            w == &o.weight ? "a weight" : "a pos_weight", input.shape(), *w);
  }
  Tensor of_ones = logsigmoid(input);  // log p; log(1 - p) = of_ones - input
  if (o.pos_weight.defined()) of_ones = mul(of_ones, add(mul(sub(o.pos_weight, 1), target), 1));
  Tensor losses = sub(mul(sub(1, target), input), of_ones);
  if (o.weight.defined()) losses = mul(losses, o.weight);
  return reduced(op, losses, o.reduction);
}

}  // namespace tapir::inline v0
