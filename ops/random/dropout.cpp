#include "../dropout.h"

#include <cmath>

#include "../../core/generator.h"
#include "../arithmetic.h"
#include "../checked.h"
#include "../create.h"
#include "../front.h"
#include "../random.h"
#include "../shape.h"

namespace tapir::inline v0 {

/// Element i stays where the i-th uniform number is at least p.
static Tensor dropout_composite(const Tensor& x, const DropoutParams& params) {
  Tensor u = empty(x.shape(), {.device = x.device()}), keep = empty(x.shape(), {.dtype = kBool, .device = x.device()}),
         y = empty_like(x);
  backend(x).random(context(x),
                    {.out = u, .params = {.op = RandomOp::Uniform, .seed = params.seed, .offset = params.offset}});
  backend(x).binary(context(x), {keep, u, TensorView(params.p, kFloat32), {BinaryOp::Ge}});
  const Tensor scaled = params.p < 1 ? div(x.detach(), 1 - params.p) : x;
  backend(x).ternary(context(x), {y, keep, scaled, TensorView(0, x.dtype()), {TernaryOp::Where}});
  return y;
}

/// The random numbers are a function of seed, offset and position, so the gradient makes them again instead of keeping a mask.
static Tensor drop(const Tensor& x, const DropoutParams& params, Tensor* self = nullptr) {
  const Tensor before = self && fused_checks && backend(x).dropout ? x.detach().clone() : x;
  const auto kernel = [&] {
    Tensor y = self ? *self : empty_like(x);
    backend(x).dropout(context(x), {.y = y, .x = x, .params = params});
    return y;
  };
  Tensor y = kernel_or_composite("dropout", bool(backend(x).dropout), kernel,
                                 [&] { return dropout_composite(before, params); });
  if (self && !y.is_same(*self)) backend(x).copy(context(x), {*self, y}), y = *self;
  return record(self ? "dropout_" : "dropout", y, {x}, [params](const Tensor& g) { return Grads{drop(g, params)}; });
}

Tensor detail::dropout(const Tensor& x, const DropoutParams& params) { return drop(x, params); }

/// Is there anything to do? ValueError for a wrong p.
static bool drops(const char* op, const Tensor& x, double p, bool training) {
  check(p >= 0 && p <= 1, "[{}] dropout probability has to be between 0 and 1, but got {}", op, p);
  if (!training || p == 0 || x.numel() == 0) return false;
  check(is_floating(x.dtype()), "[{}] expected a floating-point dtype, got {}", op, x);
  return true;
}

Tensor dropout(const Tensor& x, double p, bool training) {
  check_defined("dropout", "x", x);
  if (!drops("dropout", x, p, training)) return x;
  const auto [seed, offset] = default_generator().take(x.numel());
  return drop(x, {p, seed, offset});
}
Tensor& dropout_(Tensor& self, double p, bool training) {
  check_defined("dropout_", "self", self);
  if (!drops("dropout_", self, p, training)) return self;
  check_inplace("dropout_", self, wants_grad({self}));
  const auto [seed, offset] = default_generator().take(self.numel());
  drop(self, {p, seed, offset}, &self);
  return self;
}

/// (N, C, 1, ...) for x (N, C, ...): one number for each channel.
static Shape channel_shape(const Tensor& x) {
  Shape shape = x.shape();
  for (int64_t d = 2; d < shape.size(); ++d) shape[d] = 1;
  return shape;
}
static Tensor drop_channels(const char* op, const Tensor& x, double p, bool training, bool batched) {
  check_defined(op, "x", x);
  if (!drops(op, x, p, training)) return x;
  if (!batched) return squeeze(drop_channels(op, unsqueeze(x, 0), p, training, true), 0);
  check(x.dim() >= 2, "[{}] feature dropout requires at least 2 dimensions in the input, got {}", op, x);
  return mul(x, dropout(ones(channel_shape(x), {.dtype = x.dtype(), .device = x.device()}), p));
}
Tensor dropout1d(const Tensor& x, double p, bool training) {
  check_defined("dropout1d", "x", x);
  check(x.dim() == 2 || x.dim() == 3, "[dropout1d] expected 2D or 3D input, but got {}", x);
  return drop_channels("dropout1d", x, p, training, x.dim() == 3);
}
Tensor dropout2d(const Tensor& x, double p, bool training) { return drop_channels("dropout2d", x, p, training, true); }
Tensor dropout3d(const Tensor& x, double p, bool training) {
  check_defined("dropout3d", "x", x);
  return drop_channels("dropout3d", x, p, training, x.dim() != 4);
}

/// With a = selu's lower limit: a keep of probability 1 - p gives x, else a; both then scaled and shifted to mean 0 and variance 1.
static Tensor drop_to_limit(const char* op, const Tensor& x, double p, bool training, bool channels) {
  check_defined(op, "x", x);
  if (!drops(op, x, p, training)) return x;
  if (p == 1) return mul(x, 0);
  const double limit = -1.7580993408473766, scale = 1 / std::sqrt((limit * limit * p + 1) * (1 - p));
  Tensor keep;
  {
    NoGrad guard;
    keep = bernoulli(empty(channels ? channel_shape(x) : x.shape(), {.dtype = x.dtype(), .device = x.device()}), 1 - p);
  }
  return add(mul(x, mul(keep, scale)), mul(sub(1 - p, keep), limit * scale));
}
Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  return drop_to_limit("alpha_dropout", x, p, training, false);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  check_defined("feature_alpha_dropout", "x", x);
  check(!training || x.dim() >= 2, "[feature_alpha_dropout] requires at least 2 dimensions in the input, got {}", x);
  return drop_to_limit("feature_alpha_dropout", x, p, training, true);
}

}  // namespace tapir::inline v0
