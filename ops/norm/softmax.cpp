#include "../softmax.h"

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../checked.h"
#include "../front.h"
#include "../reduce.h"
#include "../reduce/reduce_front.h"
#include "../shape.h"
#include "../unary.h"

namespace tapir::inline v0 {

/// softmax: dx = (g - <g, y>) y; log_softmax: dx = g - e^y sum g.
static Tensor softmax_backward(const Tensor& g, const Tensor& y, int64_t dim, bool log) {
  Tensor dx = empty_like(y);
  backend(y).softmax_backward(context(y), {dx, g, y, {dim, log}});
  const auto composite = [&] {
    const Tensor a = to(g, compute_type(g.dtype())), b = to(y, a.dtype());
    return log ? a - exp(b) * sum(a, dim, {.keepdim = true}) : (a - sum(a * b, dim, {.keepdim = true})) * b;
  };
  if (y.numel()) compare_fused("softmax_backward", dx, composite, g);
  return record("softmax_backward", dx, {g, y}, save(g, y),
                [dim, log](Needs needs, const Tensor& u, const Tensor& g, const Tensor& y) {
                  const auto along = [dim](const Tensor& t) { return sum(t, dim, {.keepdim = true}); };
                  if (log) {
                    const Tensor p = exp(y);
                    return Grads{needs[0] ? u - along(u * p) : Tensor(), needs[1] ? -(u * p * along(g)) : Tensor()};
                  }
                  return Grads{needs[0] ? softmax_backward(u, y, dim, false) : Tensor(),
                               needs[1] ? u * (g - along(g * y)) - g * along(u * y) : Tensor()};
                });
}

static Tensor softmax_composite(const Tensor& x, int64_t dim, bool log) {
  const Tensor from = to(x, compute_type(x.dtype())),
               d = sub(from, run_reduce(from, {ReduceOp::Max, 1u << dim}, from.dtype())),
               total = sum(exp(d), dim, {.keepdim = true});
  return to(log ? sub(d, tapir::log(total)) : div(exp(d), total), x.dtype());
}

static Tensor softmax_of(const char* name, const Tensor& input, int64_t dim, bool log, const SoftmaxOptions& o) {
  check_defined(name, "input", input);
  dim = wrap_dim(name, dim, input.dim());
  const Tensor x = o.dtype ? to(input, *o.dtype) : input;
  check(is_floating(x.dtype()), "[{}] expected a floating-point dtype, got {}; ask for one with .dtype", name, x);
  if (x.dim() == 0) return view(softmax_of(name, view(x, {1}), 0, log, {}), {});
  Tensor y = empty_like(x);
  backend(x).softmax(context(x), {y, x, {dim, log}});
  if (x.numel()) compare_fused(name, y, [&] { return softmax_composite(x, dim, log); });
  return record(name, y, {x}, save(y),
                [dim, log](const Tensor& g, const Tensor& y) { return Grads{softmax_backward(g, y, dim, log)}; });
}

Tensor softmax(const Tensor& x, int64_t dim, const SoftmaxOptions& options) {
  check_defined("softmax", "x", x);
  if (!options.dtype) TAPIR_AUTOCAST(softmax, x, dim, options);
  return softmax_of("softmax", x, dim, false, options);
}
Tensor softmin(const Tensor& x, int64_t dim, const SoftmaxOptions& options) try {
  return softmax_of("softmin", neg(x), dim, false, options);
} catch (...) {
  fail_as("softmin");
}
Tensor log_softmax(const Tensor& x, int64_t dim, const SoftmaxOptions& options) {
  check_defined("log_softmax", "x", x);
  if (!options.dtype) TAPIR_AUTOCAST(log_softmax, x, dim, options);
  return softmax_of("log_softmax", x, dim, true, options);
}

}  // namespace tapir::inline v0
