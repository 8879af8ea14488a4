#include "noise.h"

#include "activation.h"
#include "arithmetic.h"
#include "cast.h"
#include "compare.h"
#include "create.h"
#include "extremum.h"
#include "front.h"
#include "indexing.h"
#include "random.h"
#include "softmax.h"
#include "ternary.h"
#include "unary.h"

namespace tapir::inline v0 {

Tensor rrelu(const Tensor& x, const RreluOptions& o) {
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
}

Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxOptions& o) {
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

}  // namespace tapir::inline v0
