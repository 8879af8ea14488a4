#include "../margin_loss.h"

#include <cmath>

#include "../activation.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../indexing.h"
#include "../pointwise.h"
#include "../reduce.h"
#include "../scan.h"
#include "../shape.h"
#include "../ternary.h"
#include "../unary.h"
#include "../vector_norm.h"
#include "loss_front.h"

namespace tapir::inline v0 {

static void check_margin(const char* op, double margin) {
  check(!std::isnan(margin), "[{}] expected a number for margin, got {}", op, margin);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, const HingeEmbeddingLossOptions& o) try {
  check_defined("hinge_embedding_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(hinge_embedding_loss, input, target, o);
  check_target("hinge_embedding_loss", input, target), check_margin("hinge_embedding_loss", o.margin);
  const Tensor apart = where(ne(target, 1), clamp_min(sub(o.margin, input), 0), 0),
               together = where(ne(target, -1), input, 0);
  return reduced("hinge_embedding_loss", add(apart, together), o.reduction);
} catch (...) {
  fail_as("hinge_embedding_loss");
}

Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginLossOptions& o) try {
  TAPIR_AUTOCAST(margin_ranking_loss, input1, input2, target, o);
  const char* op = "margin_ranking_loss";
  common_device(op, {&input1, &input2, &target}), check_margin(op, o.margin);
  check(input1.dim() == input2.dim() && input1.dim() == target.dim(),
        "[{}] expected inputs and target of one rank, got {}, {} and {}", op, input1, input2, target);
  return reduced(op, clamp_min(add(mul(neg(target), sub(input1, input2)), o.margin), 0), o.reduction);
} catch (...) {
  fail_as("margin_ranking_loss");
}

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const MarginLossOptions& o) try {
  TAPIR_AUTOCAST(cosine_embedding_loss, input1, input2, target, o);
  const char* op = "cosine_embedding_loss";
  common_device(op, {&input1, &input2, &target}), check_margin(op, o.margin);
  check((target.dim() == 0 || target.dim() == 1) && input1.dim() == target.dim() + 1 && input2.dim() == input1.dim(),
        "[{}] expected inputs (N, D) and a target (N), or (D) and (), got {}, {} and {}", op, input1, input2, target);
  const auto along = [](const Tensor& a, const Tensor& b) { return sum(mul(a, b), -1); };
  const Tensor square1 = add(along(input1, input1), 1e-12), square2 = add(along(input2, input2), 1e-12);
  const Tensor cosine = div(along(input1, input2), sqrt(mul(square1, square2)));
  const Tensor together = where(eq(target, 1), sub(1, cosine), 0),
               apart = where(eq(target, -1), clamp_min(sub(cosine, o.margin), 0), 0);
  return reduced(op, add(together, apart), o.reduction);
} catch (...) {
  fail_as("cosine_embedding_loss");
}

/// N and C of (N, C), (C) or ().
static std::pair<int64_t, int64_t> class_sizes(const Tensor& x) {
  return {x.dim() == 2 ? x.shape()[0] : 1, x.dim() ? x.shape()[x.dim() - 1] : 1};
}

Tensor multi_margin_loss(const Tensor& input, const Tensor& target, const MultiMarginLossOptions& o) try {
  check_defined("multi_margin_loss", "input", input, "target", target);
  TAPIR_AUTOCAST(multi_margin_loss, input, target, o);
  const char* op = "multi_margin_loss";
  common_device(op, {&input, &target, &o.weight}), check_margin(op, o.margin);
  check(o.p == 1 || o.p == 2, "[{}] only p == 1 and p == 2 supported, got {}", op, o.p);
  check(is_floating(input.dtype()), "[{}] expected an input of a floating-point dtype, got {}", op, input);
  check(target.dtype() == kInt64, "[{}] expected labels of dtype int64, got {}", op, target);
  check(input.dim() <= 2, "[{}] expected an input (N, C) or (C), got {}", op, input);
  const auto [samples, classes] = class_sizes(input);
  check(classes > 0 && target.dim() < 2 && target.numel() == samples,
        "[{}] inconsistent target size, expected {} but got {} for input {}", op, Shape(samples), target.shape(),
        input);
  const Tensor x = reshape(input, {samples, classes}), label = view(contiguous(target), {samples, 1});
  // The term of c = t is always margin^p: it is left out by a mask.
  const Tensor other = ne(arange(0, classes, 1, {.device = x.device()}), label);
  Tensor terms = relu(add(sub(x, pick_classes(op, x, label)), o.margin));
  if (o.p == 2) terms = square(terms);
  if (o.weight.defined()) {
    check(o.weight.dim() == 1 && o.weight.numel() == classes, "[{}] inconsistent weight size, expected {} but got {}",
          op, Shape(classes), o.weight.shape());
    terms = mul(terms, reshape(index_select(o.weight, 0, flatten(label)), {samples, 1}));
  }
  const Tensor losses = div(sum(where(other, terms, 0), 1), double(classes));
  return reduced(op, target.dim() == 0 ? view(losses, {}) : losses, o.reduction);
} catch (...) {
  fail_as("multi_margin_loss");
}

Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction) try {
  TAPIR_AUTOCAST(multilabel_margin_loss, input, target, reduction);
  const char* op = "multilabel_margin_loss";
  common_device(op, {&input, &target});
  check(is_floating(input.dtype()), "[{}] expected an input of a floating-point dtype, got {}", op, input);
  check(target.dtype() == kInt64, "[{}] expected labels of dtype int64, got {}", op, target);
  check(input.dim() <= 2 && input.shape() == target.shape(),
        "[{}] expected an input (N, C) or (C) and a target of its shape, got {} and {}", op, input, target);
  const auto [samples, classes] = class_sizes(input);
  check(classes > 0, "[{}] expected at least one class, got {}", op, input);
  const Tensor x = reshape(input, {samples, classes}), t = reshape(target, {samples, classes});
  Tensor listed, label, chosen;  // (N, C): stands before the first -1; the label or 0; is that class a label
  {
    NoGrad guard;
    listed = eq(cumsum(to(lt(t, 0), kInt64), 1), 0);
    label = masked_fill(t, logical_not(listed), 0);
    chosen = gt(
        scatter_add(zeros({samples, classes}, {.dtype = kInt64, .device = x.device()}), 1, label, to(listed, kInt64)),
        0);
  }
  const Tensor terms = relu(add(sub(unsqueeze(x, 1), unsqueeze(gather(x, 1, label), 2)), 1));  // (N, label, class)
  const Tensor counts = logical_and(unsqueeze(listed, 2), unsqueeze(logical_not(chosen), 1));
  const Tensor losses = div(sum(where(counts, terms, 0), {1, 2}), double(classes));
  return reduced(op, input.dim() == 2 ? losses : view(losses, {}), reduction);
} catch (...) {
  fail_as("multilabel_margin_loss");
}

Tensor triplet_loss_of_distances(const Tensor& near, const Tensor& far, double margin, Reduction reduction) try {
  check(margin > 0, "[triplet_margin_loss] margin must be greater than 0, got {}", margin);
  return reduced("triplet_margin_loss", clamp_min(add(sub(near, far), margin), 0), reduction);
} catch (...) {
  fail_as("triplet_loss_of_distances");
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& o) try {
  TAPIR_AUTOCAST(triplet_margin_loss, anchor, positive, negative, o);
  const char* op = "triplet_margin_loss";
  common_device(op, {&anchor, &positive, &negative});
  check(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(),
        "[{}] expected anchor, positive and negative of one rank, got {}, {} and {}", op, anchor, positive, negative);
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return linalg::vector_norm(add(sub(a, b), o.eps), o.p, anchor.dim() ? Dims(-1) : Dims());
  };
  return triplet_margin_with_distance_loss(anchor, positive, negative, distance, {o.margin, o.swap, o.reduction});
} catch (...) {
  fail_as("triplet_margin_loss");
}

}  // namespace tapir::inline v0
