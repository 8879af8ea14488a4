#include "activation.h"

#include <cmath>
#include <numbers>

#include "arithmetic.h"
#include "unary.h"
#include "unary_front.h"

namespace tapir::inline v0 {

static Tensor relu(const char* name, const Tensor& x, Tensor* self) {
  return unary_by_y(name, {UnaryOp::Relu}, number_operand(name, x, self), self, [](const Tensor& g, const Tensor& y) {
    return Grads{fused_gradient("relu_grad", {BinaryOp::ReluGrad}, g, y, kNoBend)};
  });
}
Tensor relu(const Tensor& x) { return relu("relu", x, nullptr); }
Tensor& relu_(Tensor& self) { return relu("relu_", self, &self), self; }

static Tensor float_only(const char* name, const Tensor& x, Tensor* self) {
  check(is_floating(x.dtype()), "[{}] expected a tensor of floating point dtype, got {}", name, x);
  return float_operand(name, x, self);
}

static Tensor leaky_relu(const char* name, const Tensor& x, double slope, Tensor* self) {
  const auto gradient = [slope](const Tensor& g, const Tensor& v) {
    return Grads{fused_gradient("leaky_relu_grad", {BinaryOp::LeakyReluGrad, slope}, g, v, kNoBend)};
  };
  const Tensor from = float_only(name, x, self);
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
Tensor gelu(const Tensor& x, std::string_view approximate) {
  const bool by_tanh = approximate == "tanh";
  check(by_tanh || approximate == "none", "[gelu] approximate argument must be either none or tanh, got \"{}\"",
        approximate);
  return unary_by_x("gelu", {UnaryOp::Gelu, double(by_tanh)}, float_only("gelu", x, nullptr), nullptr,
                    [by_tanh](const Tensor& g, const Tensor& x) {
                      return Grads{fused_gradient("gelu_grad", {BinaryOp::GeluGrad, by_tanh}, g, x,
                                                  [by_tanh](const Tensor& x) { return gelu_bend(x, by_tanh); })};
                    });
}

// With s = sigmoid(x): silu'' = s (1 - s) (2 + x (1 - 2 s)).
static Tensor silu_bend(const Tensor& x) {
  const Tensor s = sigmoid(x);
  return mul(mul(s, sub(1, s)), add(mul(x, sub(1, s, 2)), 2));
}
static Tensor silu(const char* name, const Tensor& x, Tensor* self) {
  return unary_by_x(name, {UnaryOp::Silu}, float_only(name, x, self), self, [](const Tensor& g, const Tensor& x) {
    return Grads{fused_gradient("silu_grad", {BinaryOp::SiluGrad}, g, x, silu_bend)};
  });
}
Tensor silu(const Tensor& x) { return silu("silu", x, nullptr); }
Tensor& silu_(Tensor& self) { return silu("silu_", self, &self), self; }

static Tensor sigmoid(const char* name, const Tensor& x, Tensor* self) {
  return unary_by_y(name, {UnaryOp::Sigmoid}, float_operand(name, x, self), self, [](const Tensor& g, const Tensor& y) {
    return Grads{
        fused_gradient("sigmoid_grad", {BinaryOp::SigmoidGrad}, g, y, [](const Tensor& y) { return sub(1, y, 2); })};
  });
}
Tensor sigmoid(const Tensor& x) { return sigmoid("sigmoid", x, nullptr); }
Tensor& sigmoid_(Tensor& self) { return sigmoid("sigmoid_", self, &self), self; }

static Tensor tanh(const char* name, const Tensor& x, Tensor* self) {
  return unary_by_y(name, {UnaryOp::Tanh}, float_operand(name, x, self), self, [](const Tensor& g, const Tensor& y) {
    return Grads{fused_gradient("tanh_grad", {BinaryOp::TanhGrad}, g, y, [](const Tensor& y) { return mul(y, -2); })};
  });
}
Tensor tanh(const Tensor& x) { return tanh("tanh", x, nullptr); }
Tensor& tanh_(Tensor& self) { return tanh("tanh_", self, &self), self; }

}  // namespace tapir::inline v0
