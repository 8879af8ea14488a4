#include "../activation.h"

#include <cmath>
#include <numbers>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../compare.h"
#include "../each_place.h"
#include "../pointwise.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"
#include "unary_front.h"

namespace tapir::inline v0 {

TAPIR_UNARY(relu, Relu, number, y, fused_gradient("relu_grad", {BinaryOp::ReluGrad}, g, y, kNoBend))

static Tensor float_only_operand(const char* name, const Tensor& x, Tensor* self) {
  check_defined(name, "x", x);
  check(is_floating(x.dtype()), "[{}] expected a tensor of floating point dtype, got {}", name, x);
  return float_operand(name, x, self);
}

static Tensor leaky_relu(const char* name, const Tensor& x, double slope, Tensor* self) {
  check_defined(name, "x", x);
  const auto gradient = [slope](const Tensor& g, const Tensor& v) {
    return Grads{fused_gradient("leaky_relu_grad", {BinaryOp::LeakyReluGrad, slope}, g, v, kNoBend)};
  };
  const Tensor from = float_only_operand(name, x, self);
  if (slope >= 0) return unary_by_y(name, {UnaryOp::LeakyRelu, slope}, from, self, gradient);  // y > 0 where x > 0
  return unary_by_x(name, {UnaryOp::LeakyRelu, slope}, from, self, gradient);
}
Tensor leaky_relu(const Tensor& x, double slope) { return leaky_relu("leaky_relu", x, slope, nullptr); }
Tensor& leaky_relu_(Tensor& self, double slope) { return leaky_relu("leaky_relu_", self, slope, &self), self; }

// gelu'' = phi(x) (2 - x^2). With u = k (x + c x^3) and t = tanh(u): (1 - t^2) (u' + x u'' / 2 - x t u'^2).
static Tensor gelu_bend(const Tensor& x, bool approximate) {
  const Tensor x2 = square(x);
  if (!approximate) {
    constexpr double k = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return mul(mul(exp(mul(x2, -0.5)), k), sub(2, x2));
  }
  constexpr double k = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, c = 0.044715;
  const Tensor t = tanh(mul(x, add(mul(x2, k * c), k))), du = add(mul(x2, 3 * k * c), k);
  const Tensor bend = sub(add(du, mul(x2, 3 * k * c)), mul(mul(x, t), square(du)));
  return mul(sub(1, square(t)), bend);
}
Tensor gelu_gradient(const Tensor& g, const Tensor& x, bool by_tanh) {
  return fused_gradient("gelu_grad", {BinaryOp::GeluGrad, by_tanh}, g, x,
                        [by_tanh](const Tensor& x) { return gelu_bend(x, by_tanh); });
}
Tensor gelu(const Tensor& x, std::string_view approximate) {
  check_defined("gelu", "x", x);
  const bool by_tanh = approximate == "tanh";
  check(by_tanh || approximate == "none", "[gelu] approximate argument must be either none or tanh, got \"{}\"",
        approximate);
  return unary_by_x("gelu", {UnaryOp::Gelu, double(by_tanh)}, float_only_operand("gelu", x, nullptr), nullptr,
                    [by_tanh](const Tensor& g, const Tensor& x) { return Grads{gelu_gradient(g, x, by_tanh)}; });
}

// With s = sigmoid(x): silu'' = s (1 - s) (2 + x (1 - 2 s)).
static Tensor silu_bend(const Tensor& x) {
  const Tensor s = sigmoid(x);
  return mul(mul(s, sub(1, s)), add(mul(x, sub(1, s, 2)), 2));
}
TAPIR_UNARY(silu, Silu, float_only, x, fused_gradient("silu_grad", {BinaryOp::SiluGrad}, g, x, silu_bend))
static Tensor sigmoid_bend(const Tensor& y) { return sub(1, y, 2); }
TAPIR_UNARY(sigmoid, Sigmoid, float, y, fused_gradient("sigmoid_grad", {BinaryOp::SigmoidGrad}, g, y, sigmoid_bend))
static Tensor tanh_bend(const Tensor& y) { return mul(y, -2); }
TAPIR_UNARY(tanh, Tanh, float, y, fused_gradient("tanh_grad", {BinaryOp::TanhGrad}, g, y, tanh_bend))

// elu, celu and selu: b x for x > 0, else a (e^(c x) - 1), whose second derivative there is a c^2 e^(c x).
// PyTorch's gradient of celu has c in single precision (slope): so has this one.
static Tensor elu(const char* name, const Tensor& x, double a, double b, double c, double slope, Tensor* self) {
  check_defined(name, "x", x);
  const auto bend = [a, c = slope](const Tensor& x) {
    return mul(masked_fill(exp(mul(clamp_max(x, 0), c)), ge(x, 0), 0), a * c * c);
  };
  return unary_by_x(name, {UnaryOp::Elu, a, b, c}, float_only_operand(name, x, self), self,
                    [=](const Tensor& g, const Tensor& x) {
                      return Grads{fused_gradient("elu_grad", {BinaryOp::EluGrad, a, b, slope}, g, x, bend)};
                    });
}
constexpr double kSeluScale = 1.0507009873554804934, kSeluAlpha = 1.6732632423543772848;
Tensor elu(const Tensor& x, double alpha) { return elu("elu", x, alpha, 1, 1, 1, nullptr); }
Tensor& elu_(Tensor& self, double alpha) { return elu("elu_", self, alpha, 1, 1, 1, &self), self; }
Tensor selu(const Tensor& x) { return elu("selu", x, kSeluScale * kSeluAlpha, kSeluScale, 1, 1, nullptr); }
Tensor& selu_(Tensor& self) { return elu("selu_", self, kSeluScale * kSeluAlpha, kSeluScale, 1, 1, &self), self; }
static Tensor celu(const char* name, const Tensor& x, double alpha, Tensor* self) {
  check_defined(name, "x", x);
  check(alpha != 0, "[{}] ZeroDivisionError: alpha cannot be 0", name);
  return elu(name, x, alpha, 1, 1 / alpha, 1.0 / float(alpha), self);
}
Tensor celu(const Tensor& x, double alpha) { return celu("celu", x, alpha, nullptr); }
Tensor& celu_(Tensor& self, double alpha) { return celu("celu_", self, alpha, &self), self; }

Tensor softplus(const Tensor& x, double beta, double threshold) {
  check_defined("softplus", "x", x);
  TAPIR_AUTOCAST(softplus, x, beta, threshold);
  const auto bend = [=](const Tensor& x) {
    const Tensor s = sigmoid(mul(x, beta));
    return masked_fill(mul(mul(s, sub(1, s)), beta), gt(mul(x, beta), threshold), 0);
  };
  return unary_by_x(
      "softplus", {UnaryOp::Softplus, beta, threshold}, float_only_operand("softplus", x, nullptr), nullptr,
      [=](const Tensor& g, const Tensor& x) {
        return Grads{fused_gradient("softplus_grad", {BinaryOp::SoftplusGrad, beta, threshold}, g, x, bend)};
      });
}

// With t = tanh(softplus(x)), s = sigmoid(x): mish'' = (1 - t^2) s (2 + x (1 - s - 2 t s)).
static Tensor mish_bend(const Tensor& x) {
  const Tensor t = tanh(softplus(x, 1, INFINITY)), s = sigmoid(x);
  return mul(mul(sub(1, square(t)), s), add(mul(x, sub(sub(1, s), mul(t, s), 2)), 2));
}
static Tensor logsigmoid_bend(const Tensor& x) {
  const Tensor s = sigmoid(x);
  return mul(s, sub(s, 1));
}
static Tensor hardswish_bend(const Tensor& x) { return div(to(lt(abs(x), 3), x.dtype()), 3); }
static Tensor softsign_bend(const Tensor& x) { return div(mul(sign(x), -2), pow(add(abs(x), 1), 3)); }
static Tensor tanhshrink_bend(const Tensor& x) {
  const Tensor t = tanh(x);
  return mul(mul(t, 2), sub(1, square(t)));
}

// A line gives name, kernel, operand, and the second derivative.
#define TAPIR_ACTIVATION(name, op, operand, bend)                                                      \
  static Tensor name(const char* label, const Tensor& x, Tensor* self) {                               \
    return unary_by_x(label, {UnaryOp::op}, operand##_operand(label, x, self), self,                   \
                      [](const Tensor& g, const Tensor& x) {                                           \
                        return Grads{fused_gradient(#name "_grad", {BinaryOp::op##Grad}, g, x, bend)}; \
                      });                                                                              \
  }                                                                                                    \
  Tensor name(const Tensor& x) { return name(#name, x, nullptr); }
TAPIR_ACTIVATION(mish, Mish, float_only, mish_bend)
TAPIR_ACTIVATION(logsigmoid, LogSigmoid, float_only, logsigmoid_bend)
TAPIR_ACTIVATION(hardswish, Hardswish, float_only, hardswish_bend)
TAPIR_ACTIVATION(hardsigmoid, Hardsigmoid, float_only, kNoBend)
TAPIR_ACTIVATION(tanhshrink, Tanhshrink, float, tanhshrink_bend)
#undef TAPIR_ACTIVATION
Tensor softsign(const Tensor& x) {
  check_defined("softsign", "the input", x);
  if (is_integral(x.dtype())) return div(x, add(abs(x), 1));  // 1 + |x| wraps around, as in PyTorch
  const Tensor from = float_operand("softsign", x, nullptr);
  return unary_by_x("softsign", {UnaryOp::Softsign}, from, nullptr, [](const Tensor& g, const Tensor& x) {
    return Grads{fused_gradient("softsign_grad", {BinaryOp::SoftsignGrad}, g, x, softsign_bend)};
  });
}
Tensor& mish_(Tensor& self) {
  check_defined("mish_", "self", self);
  return mish("mish_", self, &self), self;
}
Tensor& hardswish_(Tensor& self) {
  check_defined("hardswish_", "self", self);
  return hardswish("hardswish_", self, &self), self;
}
Tensor& hardsigmoid_(Tensor& self) { return hardsigmoid("hardsigmoid_", self, &self), self; }

static Tensor hardtanh(const char* name, const Tensor& x, double low, double high, Tensor* self) {
  check(low <= high, "[{}] expected min_val <= max_val, got {} and {}", name, low, high);
  const Tensor from = number_operand(name, x, self);
  check_limits(name, low, high, x.dtype());
  return unary_by_x(name, {UnaryOp::Clamp, low, high}, from, self, [=](const Tensor& g, const Tensor& x) {
    return Grads{fused_gradient("hardtanh_grad", {BinaryOp::HardtanhGrad, low, high}, g, x, kNoBend)};
  });
}
Tensor hardtanh(const Tensor& x, double low, double high) { return hardtanh("hardtanh", x, low, high, nullptr); }
Tensor& hardtanh_(Tensor& self, double low, double high) { return hardtanh("hardtanh_", self, low, high, &self), self; }
Tensor relu6(const Tensor& x) { return hardtanh("relu6", x, 0, 6, nullptr); }
Tensor& relu6_(Tensor& self) { return hardtanh("relu6_", self, 0, 6, &self), self; }

static Tensor threshold(const char* name, const Tensor& x, double limit, double value, Tensor* self) {
  check_defined(name, "x", x);
  const Tensor from = number_operand(name, x, self);
  check_held(name, limit, x.dtype()), check_held(name, value, x.dtype());
  return unary_by_x(name, {UnaryOp::Threshold, limit, value}, from, self, [limit](const Tensor& g, const Tensor& x) {
    return Grads{fused_gradient("threshold_grad", {BinaryOp::ThresholdGrad, limit}, g, x, kNoBend)};
  });
}
Tensor threshold(const Tensor& x, double limit, double value) {
  return threshold("threshold", x, limit, value, nullptr);
}
Tensor& threshold_(Tensor& self, double limit, double value) {
  check_defined("threshold_", "self", self);
  Tensor places = each_place_once(self, self.dim());
  return threshold("threshold_", places, limit, value, &places), self;
}

static Tensor shrink(const char* name, UnaryOp op, const Tensor& x, double lambd) {
  check_defined(name, "x", x);
  return unary_by_x(name, {op, lambd}, float_only_operand(name, x, nullptr), nullptr,
                    [lambd](const Tensor& g, const Tensor& x) {
                      return Grads{fused_gradient("shrink_grad", {BinaryOp::ShrinkGrad, lambd}, g, x, kNoBend)};
                    });
}
Tensor hardshrink(const Tensor& x, double lambd) { return shrink("hardshrink", UnaryOp::Hardshrink, x, lambd); }
Tensor softshrink(const Tensor& x, double lambd) {
  check_defined("softshrink", "x", x);
  check(lambd >= 0, "[softshrink] expected lambd >= 0, got {}", lambd);
  return shrink("softshrink", UnaryOp::Softshrink, x, lambd);
}

/// One kernel of three operands of x's dtype, the first two of its shape.
static Tensor run_three(TernaryOp op, const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor y = empty_pointwise(b.shape(), b.dtype(), b.device(), {&b});
  const auto v = [&](const Tensor& t) { return view_as(t, b.shape(), b.dtype()); };
  backend(b).ternary(context(b), {y, v(a), v(b), v(c), {op}});
  return y;
}

/// g where x > 0, else w g: the gradient of prelu(x, w).
static Tensor prelu_grad(const Tensor& g, const Tensor& x, const Tensor& w) {
  return record("prelu_grad", run_three(TernaryOp::Prelu, g, x, w), {g, x, w}, save(g, x, w),
                [](Needs needs, const Tensor& u, const Tensor& g, const Tensor& x, const Tensor& w) {
                  return Grads{needs[0] ? prelu_grad(u, x, w) : Tensor(), Tensor(),
                               needs[2] ? masked_fill(mul(u, g), ge(x, 0), 0) : Tensor()};
                });
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  check_defined("prelu", "x", x, "weight", weight);
  TAPIR_AUTOCAST(prelu, x, weight);
  float_only_operand("prelu", x, nullptr);
  check(weight.dim() < 2, "[prelu] expected a weight of one dimension or none, got {}", weight);
  check(weight.dtype() == x.dtype(), "[prelu] expected a weight of dtype {}, got {}", x.dtype(), weight.dtype());
  common_device("prelu", {&x, &weight});
  const int64_t channels = x.dim() > 1 ? x.shape()[1] : 1;
  check(weight.numel() == 1 || weight.numel() == channels,
        "[prelu] expected a weight with 1 or {} elements (the channels of {}), got {}", channels, x.shape(), weight);
  Shape shape = Dims::filled(x.dim(), 1);
  if (weight.numel() != 1) shape[1] = channels;
  const Tensor w = view(weight, shape);
  return record(
      "prelu", run_three(TernaryOp::Prelu, x, x, w), {x, w}, save(x, w),
      [](Needs needs, const Tensor& g, const Tensor& x, const Tensor& w) {
        return Grads{needs[0] ? prelu_grad(g, x, w) : Tensor(), needs[1] ? mul(g, clamp_max(x, 0)) : Tensor()};
      });
}

/// g a s (1 - s), s = sigmoid(b): the gradient of gated(a, b) with respect to b.
static Tensor gate_slope(const Tensor& g, const Tensor& a, const Tensor& b) {
  return record("glu_grad", run_three(TernaryOp::GluGrad, g, a, b), {g, a, b}, save(g, a, b),
                [](Needs needs, const Tensor& u, const Tensor& g, const Tensor& a, const Tensor& b) {
                  const auto bend = [&] { return mul(gate_slope(mul(u, g), a, b), sub(1, sigmoid(b), 2)); };
                  return Grads{needs[0] ? gate_slope(u, a, b) : Tensor(), needs[1] ? gate_slope(u, g, b) : Tensor(),
                               needs[2] ? bend() : Tensor()};
                });
}
/// a sigmoid(b)
static Tensor gated(const Tensor& a, const Tensor& b) {
  return record("gate", Pointwise("glu", a, b).run(BinaryOp::Glu), {a, b}, save(a, b),
                [](Needs needs, const Tensor& g, const Tensor& a, const Tensor& b) {
                  return Grads{needs[0] ? gated(g, b) : Tensor(), needs[1] ? gate_slope(g, a, b) : Tensor()};
                });
}
Tensor glu(const Tensor& x, int64_t dim) {
  check_defined("glu", "x", x);
  float_only_operand("glu", x, nullptr);
  check(x.dim() > 0, "[glu] expected at least one dimension, whose size is even, got {}", x);
  dim = wrap_dim("glu", dim, x.dim());
  const int64_t n = x.shape()[dim] / 2;
  check(n * 2 == x.shape()[dim], "[glu] expected an even size of dimension {}, got shape {}", dim, x.shape());
  const auto run = [&] {
    NoGrad guard;
    return gated(narrow(x, dim, 0, n), narrow(x, dim, n, n));
  };
  return record("glu", run(), {x}, save(x), [dim, n](const Tensor& g, const Tensor& x) {
    const Tensor a = narrow(x, dim, 0, n), b = narrow(x, dim, n, n);
    return Grads{cat({gated(g, b), gate_slope(g, a, b)}, dim)};
  });
}

}  // namespace tapir::inline v0
