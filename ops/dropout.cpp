#include "dropout.h"

#include "../core/generator.h"
#include "arithmetic.h"
#include "checked.h"
#include "front.h"

namespace tapir::inline v0 {

/// Element i stays where the i-th uniform number is at least p.
static Tensor dropout_composite(const Tensor& x, const DropoutParams& params) {
  Tensor u = empty(x.shape(), {.device = x.device()}), keep = empty(x.shape(), {.dtype = kBool, .device = x.device()}),
         y = empty_like(x);
  backend(x).random(context(x), u, {}, {.op = RandomOp::Uniform, .seed = params.seed, .offset = params.offset});
  backend(x).binary(context(x), keep, u, TensorView(params.p, kFloat32), {BinaryOp::Ge});
  const Tensor scaled = params.p < 1 ? div(x.detach(), 1 - params.p) : x;
  backend(x).ternary(context(x), y, keep, scaled, TensorView(0, x.dtype()), {TernaryOp::Where});
  return y;
}

/// The random numbers are a function of seed, offset and position, so the gradient makes them again instead of keeping a mask.
static Tensor drop(const Tensor& x, const DropoutParams& params) {
  Tensor y;
  if (backend(x).dropout) {
    y = empty_like(x);
    backend(x).dropout(context(x), y, {}, x, params);
    compare_fused("dropout", y, [&] { return dropout_composite(x, params); });
  } else {
    y = dropout_composite(x, params);
  }
  return record("dropout", y, {x}, [params](const Tensor& g) { return Grads{drop(g, params)}; });
}

Tensor dropout(const Tensor& x, double p, bool training) {
  check(p >= 0 && p <= 1, "[dropout] dropout probability has to be between 0 and 1, but got {}", p);
  if (!training || p == 0 || x.numel() == 0) return x;
  check(is_floating(x.dtype()), "[dropout] expected a floating-point dtype, got {}", x);
  const auto [seed, offset] = default_generator().take(x.numel());
  return drop(x, {p, seed, offset});
}

}  // namespace tapir::inline v0
