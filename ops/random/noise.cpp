#include "../noise.h"

#include <limits>

#include "../activation.h"
#include "../arithmetic.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../indexing.h"
#include "../random.h"
#include "../reduce.h"
#include "../scan.h"
#include "../search.h"
#include "../shape.h"
#include "../softmax.h"
#include "../sort.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {

Tensor rrelu(const Tensor& x, const RreluOptions& o) try {
  check_defined("rrelu", "x", x);
  check(is_floating(x.dtype()), "[rrelu] expected a floating-point dtype, got {}", x);
  check(o.lower <= o.upper, "[rrelu] lower bound should be less than or equal to the upper bound, got {} and {}",
        o.lower, o.upper);
  if (!o.training) return leaky_relu(x, (o.lower + o.upper) / 2);
  Tensor slope;
  {
    NoGrad guard;
    Tensor drawn = empty_like(x);
    slope = where(gt(x, 0), 1, uniform_(drawn, o.lower, o.upper));
  }
  return mul(x, slope);
} catch (...) {
  fail_as("rrelu");
}

Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxOptions& o) {
  check_defined("gumbel_softmax", "logits", logits);
  check(is_floating(logits.dtype()), "[gumbel_softmax] expected a floating-point dtype, got {}", logits);
  check(o.tau > 0, "[gumbel_softmax] expected tau above 0, got {}", o.tau);
  const int64_t dim = wrap_dim("gumbel_softmax", o.dim, logits.dim());
  Tensor noise;
  {
    NoGrad guard;
    noise =
        to(neg(log(neg(log(rand(logits.shape(), {.dtype = compute_type(logits.dtype()), .device = logits.device()}))))),
           logits.dtype());
  }
  const Tensor soft = softmax(div(add(logits, noise), o.tau), dim);
  if (!o.hard || logits.numel() == 0) return soft;
  Tensor step;  // from the soft sample to its one-hot form
  {
    NoGrad guard;
    const Tensor top = argmax(soft, dim, {.keepdim = true});
    step = sub(
        scatter_add(zeros_like(soft), dim, top, ones(top.shape(), {.dtype = soft.dtype(), .device = soft.device()})),
        soft);
  }
  return add(soft, step);
}

/// ValueError for the first row of w (R, C) that does not have `needed` weights above 0, or has one that is no weight.
static void check_weights(const Tensor& w, int64_t needed) {
  const Tensor bad = logical_not(logical_and(ge(w, 0), isfinite(w))), good = sum(gt(w, 0), 1);
  if (!logical_or(any(bad), any(lt(good, needed))).item<bool>()) return;
  if (const auto at = nonzero(bad); at.shape()[0] > 0)
    fail(ErrorKind::Value,
         "[multinomial] expected weights of at least 0, but the probability tensor contains either `inf`, `nan` or "
         "element < 0: {} in row {}, at position {}",
         w.select(0, at[0][0].item<int64_t>()).select(0, at[0][1].item<int64_t>()).item(), at[0][0].item<int64_t>(),
         at[0][1].item<int64_t>());
  const int64_t row = nonzero(lt(good, needed))[0][0].item<int64_t>(), count = good[row].item<int64_t>();
  check(count > 0, "[multinomial] invalid multinomial distribution (sum of probabilities <= 0): got 0 in row {}", row);
  fail(ErrorKind::Value,
       "[multinomial] expected at least {} weights above 0, to draw as many without replacement, got {} in row {}",
       needed, count, row);
}

Tensor multinomial(const Tensor& weights, int64_t num_samples, const MultinomialOptions& o) {
  check_defined("multinomial", "the weights", weights);
  check(is_floating(weights.dtype()), "[multinomial] expected weights of a floating-point dtype, got {}", weights);
  check(weights.dim() == 1 || weights.dim() == 2, "[multinomial] expected weights of shape (C) or (R, C), got {}",
        weights);
  check(num_samples > 0, "[multinomial] expected num_samples above 0, got {}", num_samples);
  const int64_t classes = weights.shape().back();
  check(o.replacement || num_samples <= classes,
        "[multinomial] cannot sample num_samples > weights.size(-1) without replacement, got {} and {}", num_samples,
        weights);
  NoGrad guard;
  Tensor w = weights.dim() == 1 ? unsqueeze(weights, 0) : weights;
  const int64_t rows = w.shape()[0];
  check_weights(w, o.replacement ? 1 : num_samples);
  if (rows == 0) return empty({0, num_samples}, {.dtype = kInt64, .device = w.device()});
  w = to(w, kFloat64);
  w = div(w, amax(w, 1, {.keepdim = true}));  // no sum overflows
  const TensorOptions like{.dtype = kFloat64, .device = w.device()};
  Tensor y;
  if (o.replacement || num_samples == 1) {  // where the running sum passes a share of the whole
    const Tensor sums = cumsum(w, 1), total = sums.narrow(1, classes - 1, 1);
    y = searchsorted(sums, mul(rand({rows, num_samples}, like), total), {.right = true});
  } else {  // the largest of ln w + a Gumbel number each: Gumbel 1954; several: Efraimidis and Spirakis 2006
    const Tensor wait = clamp(neg(log1p(neg(rand(w.shape(), like)))), std::numeric_limits<double>::min());
    y = topk(sub(log(w), log(wait)), num_samples, 1).second;
  }
  return weights.dim() == 1 ? squeeze(y, 0) : y;
}

}  // namespace tapir::inline v0
