#include "../vector_norm.h"

#include <cmath>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../pointwise.h"
#include "../ternary.h"
#include "../unary.h"
#include "reduce_front.h"

namespace tapir::inline v0 {

// d y / d x = sign(x) |x|^(p - 1) / y^(p - 1), and 0 where x or y is 0 and that says nothing.
Tensor norm_gradient(const Tensor& g, const Tensor& x, const Tensor& y, double p, uint32_t mask, bool keepdim) {
  const auto wide = [&](const Tensor& t) { return expand_reduced(t, x.shape(), mask, keepdim); };
  if (p == 0) return zeros_like(x);
  if (p == 1) return mul(wide(g), sign(x));
  if (std::isinf(p)) return mul(share_among_ties(g, abs(x), y, mask, keepdim), sign(x));
  const Tensor none = eq(y, 0), length = masked_fill(y, none, 1);  // second derivatives, too, must not divide by 0
  if (p < 1) return mul(mul(sign(x), pow(masked_fill(abs(x), eq(x, 0), 1), p - 1)), wide(mul(g, pow(length, 1 - p))));
  const Tensor scale = wide(masked_fill(div(g, p == 2 ? length : pow(length, p - 1)), none, 0));
  if (p == 2) return mul(x, scale);
  return mul(p < 2 ? mul(sign(x), pow(abs(x), p - 1)) : mul(x, pow(abs(x), p - 2)), scale);
}

static Tensor p_norm(const char* name, const Tensor& x, double p, const Dims& dims, const ReduceOptions& o) {
  check(is_floating(x.dtype()), "[{}] expected a tensor of floating point dtype, got {}", name, x);
  const DType dtype = o.dtype.value_or(x.dtype());
  check(is_floating(dtype), "[{}] expected a floating point dtype, got {}", name, dtype);
  check(!std::isnan(p), "[{}] expected a number as p, got {}", name, p);
  const uint32_t mask = reduce_mask(name, dims, x);
  if (p < 0 || std::isinf(p)) check_not_empty(name, x, mask);
  const Tensor from = to(x, dtype);
  const Tensor y =
      drop_reduced(run_reduce(from, {.op = ReduceOp::NormP, .dims = mask, .p = p}, dtype), mask, o.keepdim);
  return record(name, y, {from}, save(from, y),
                [p, mask, keepdim = o.keepdim](const Tensor& g, const Tensor& x, const Tensor& y) {
                  return Grads{norm_gradient(g, x, y, p, mask, keepdim)};
                });
}
Tensor norm(const Tensor& x, Scalar p, const Dims& dims, const ReduceOptions& o) {
  check_defined("linalg.norm", "x", x);
  if (!o.dtype) TAPIR_AUTOCAST(norm, x, p, dims, o);
  return p_norm("norm", x, p.to_double(), dims, o);
}
namespace linalg {
Tensor vector_norm(const Tensor& x, Scalar ord, const Dims& dims, const ReduceOptions& o) {
  check_defined("linalg.vector_norm", "x", x);
  if (!o.dtype) TAPIR_AUTOCAST(vector_norm, x, ord, dims, o);
  return p_norm("linalg.vector_norm", x, ord.to_double(), dims, o);
}
}  // namespace linalg

}  // namespace tapir::inline v0
