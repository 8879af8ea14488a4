#include "adaptive_softmax.h"

#include <cmath>

#include "../core/checks.h"
#include "../core/fail_as.h"
#include "../ops/arithmetic.h"
#include "../ops/bitwise.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/gather.h"
#include "../ops/indexing.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/softmax.h"
#include "../ops/ternary.h"

namespace tapir::inline v0::nn {

static Linear make_head(int64_t in, int64_t classes, std::vector<int64_t>& cutoffs, bool bias) {
  check_count("AdaptiveLogSoftmaxWithLoss", "in_features", in);
  bool ascending = !cutoffs.empty();
  std::string text = cutoffs.empty() ? "none" : "";
  for (size_t i = 0; i < cutoffs.size(); ++i)
    text += (i ? ", " : "") + std::to_string(cutoffs[i]),
        ascending &= cutoffs[i] > (i ? cutoffs[i - 1] : 0) && cutoffs[i] < classes;
  check(ascending,
        "[AdaptiveLogSoftmaxWithLoss] cutoffs should be unique, ascending numbers above 0 and below n_classes ({}), "
        "got {}",
        classes, text);
  cutoffs.push_back(classes);
  return Linear(in, cutoffs[0] + int64_t(cutoffs.size()) - 1, {.bias = bias});
}
AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(int64_t in, int64_t classes, std::vector<int64_t> list,
                                                       const AdaptiveLogSoftmaxOptions& o) try
    : in_features(in), n_classes(classes), cutoffs(std::move(list)),
      head(make_head(in, classes, cutoffs, o.head_bias)) {
  check(o.div_value > 0, "[AdaptiveLogSoftmaxWithLoss] expected div_value above 0, got {}", o.div_value);
  for (size_t i = 0; i + 1 < cutoffs.size(); ++i) {
    const double part = double(in) / std::pow(o.div_value, double(i + 1));
    check(part < 0x1p62, "[AdaptiveLogSoftmaxWithLoss] expected tails of fewer features, got {} by div_value {}", part,
          o.div_value);
    const int64_t width = int64_t(part);
    tail.push_back(
        Sequential(Linear(in, width, {.bias = false}), Linear(width, cutoffs[i + 1] - cutoffs[i], {.bias = false})));
  }
} catch (...) {
  fail_as("AdaptiveLogSoftmaxWithLoss");
}

std::pair<Tensor, Tensor> AdaptiveLogSoftmaxWithLoss::forward(const Tensor& input, const Tensor& target) {
  check((input.dim() == 2 && target.dim() == 1 && input.shape()[0] == target.shape()[0]) ||
            (input.dim() == 1 && target.dim() == 0),
        "[AdaptiveLogSoftmaxWithLoss] expected input (N, in) and target (N), or (in) and (), got {} and {}", input,
        target);
  if (input.dim() == 1) {
    auto [output, loss] = forward(unsqueeze(input, 0), unsqueeze(target, 0));
    return {squeeze(output, 0), loss};
  }
  int64_t used = 0;
  Tensor entry = target, output;  // entry: the column of the head
  for (size_t i = 0; i < cutoffs.size(); ++i) {
    const int64_t low = i ? cutoffs[i - 1] : 0;
    const Tensor mine = bitwise_and(ge(target, low), lt(target, cutoffs[i])), rows = squeeze(nonzero(mine), 1);
    used += rows.numel();
    if (i == 0 || rows.numel() == 0) continue;
    entry = where(mine, cutoffs[0] + int64_t(i) - 1, entry);
    const Tensor logits = tail.as<Sequential>(int64_t(i) - 1)(index_select(input, 0, rows));
    const Tensor inside = unsqueeze(sub(index_select(target, 0, rows), low), 1);
    const Tensor part = squeeze(gather(log_softmax(logits, 1), 1, inside), 1);
    if (!output.defined()) output = zeros(target.shape(), {.dtype = part.dtype(), .device = part.device()});
    output = index_add(output, 0, rows, part);
  }
  check(used == target.numel(), "[AdaptiveLogSoftmaxWithLoss] target values should be in [0, {}), {} of {} are not",
        n_classes, target.numel() - used, target.numel());
  const Tensor top = squeeze(gather(log_softmax(head(input), 1), 1, unsqueeze(entry, 1)), 1);
  output = output.defined() ? add(output, top) : top;
  return {output, neg(mean(output))};
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& input) {
  const Tensor top = log_softmax(head(input), 1);
  std::vector<Tensor> parts{narrow(top, 1, 0, cutoffs[0])};
  for (int64_t i = 0; i < tail.size(); ++i)
    parts.push_back(add(log_softmax(tail.as<Sequential>(i)(input), 1), narrow(top, 1, cutoffs[0] + i, 1)));
  return cat(parts, 1);
}
Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& input) { return argmax(log_prob(input), 1); }

TAPIR_DEFINE_FIELDS(AdaptiveLogSoftmaxWithLoss)

}  // namespace tapir::inline v0::nn
