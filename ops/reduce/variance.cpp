#include "../variance.h"

#include <algorithm>

#include "../arithmetic.h"
#include "../compare.h"
#include "../front.h"
#include "../reduce.h"
#include "../ternary.h"
#include "reduce_front.h"

namespace tapir::inline v0 {

static Tensor run_variance(const char* name, ReduceOp op, const Tensor& x, uint32_t mask, const VarOptions& o) {
  check(is_floating(x.dtype()), "[{}] expected a tensor of floating point dtype, got {}", name, x);
  return drop_reduced(run_reduce(x, {.op = op, .dims = mask, .correction = o.correction}, x.dtype()), mask, o.keepdim);
}

/// g 2 (x - mean) / (n - correction)
static Tensor var_gradient(const Tensor& g, const Tensor& x, uint32_t mask, const VarOptions& o) {
  int64_t n = 1;
  for (int64_t d : mask_dims(mask)) n *= x.shape()[d];
  const Tensor scaled = mul(g, 2 / std::max(0.0, double(n) - o.correction));
  return mul(expand_reduced(scaled, x.shape(), mask, o.keepdim), sub(x, mean(x, mask_dims(mask), {.keepdim = true})));
}

Tensor var(const Tensor& x, const Dims& dims, const VarOptions& o) {
  const uint32_t mask = reduce_mask("var", dims, x);
  return record("var", run_variance("var", ReduceOp::Var, x, mask, o), {x}, save(x),
                [mask, o](const Tensor& g, const Tensor& x) { return Grads{var_gradient(g, x, mask, o)}; });
}

Tensor std(const Tensor& x, const Dims& dims, const VarOptions& o) {
  const uint32_t mask = reduce_mask("std", dims, x);
  const Tensor y = run_variance("std", ReduceOp::Std, x, mask, o);
  return record("std", y, {x}, save(x, y), [mask, o](const Tensor& g, const Tensor& x, const Tensor& y) {
    return Grads{var_gradient(masked_fill(div(g, mul(y, 2)), eq(y, 0), 0), x, mask, o)};
  });
}

std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, const VarOptions& o) try {
  return {var(x, dims, o), mean(x, dims, {.keepdim = o.keepdim})};
} catch (...) {
  fail_as("var_mean");
}
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims, const VarOptions& o) try {
  return {std(x, dims, o), mean(x, dims, {.keepdim = o.keepdim})};
} catch (...) {
  fail_as("std_mean");
}

}  // namespace tapir::inline v0
