#include "../special.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "../activation.h"
#include "../arithmetic.h"
#include "../compare.h"
#include "../ternary.h"
#include "../unary.h"
#include "unary_front.h"

namespace tapir::inline v0 {

static constexpr double kPi = std::numbers::pi, kInvSqrtPi = std::numbers::inv_sqrtpi;

/// sinc'' = -pi^2 sinc - 2 sinc' / x, and -pi^2 / 3 at 0.
static Tensor sinc_bend(const Tensor& x) {
  const Tensor zero = eq(x, 0), safe = masked_fill(x, zero, 1), s = sinc(safe);
  const Tensor slope = div(sub(cos(mul(safe, kPi)), s), safe);
  return masked_fill(sub(mul(s, -kPi * kPi), div(mul(slope, 2), safe)), zero, -kPi * kPi / 3);
}
TAPIR_UNARY(erfc, Erfc, float, x, mul(g, mul(exp(neg(square(x))), -2 * kInvSqrtPi)))
TAPIR_UNARY(erfinv, Erfinv, float, y, mul(g, mul(exp(square(y)), 0.5 / kInvSqrtPi)))
TAPIR_UNARY(lgamma, Lgamma, float, x, mul(g, digamma(x)))
TAPIR_UNARY(digamma, Digamma, float, x, mul(g, polygamma(1, x)))
TAPIR_UNARY(sinc, Sinc, float, x, fused_gradient("sinc_grad", {BinaryOp::SincGrad}, g, x, sinc_bend))

static Tensor polygamma(const char* name, int64_t n, const Tensor& x, Tensor* self) {
  check(n >= 0, "[{}] expected an order n that is not negative, got {}", name, n);
  return unary_by_x(name, {UnaryOp::Polygamma, double(n)}, float_operand(name, x, self), self,
                    [n](const Tensor& g, const Tensor& x) { return Grads{mul(g, polygamma(n + 1, x))}; });
}
Tensor polygamma(int64_t n, const Tensor& x) { return polygamma("polygamma", n, x, nullptr); }
Tensor& polygamma_(Tensor& self, int64_t n) { return polygamma("polygamma_", n, self, &self), self; }

// Clamped elements have no gradient; those outside [0, 1] have none that is a number.
static Tensor logit(const char* name, const Tensor& x, std::optional<double> eps, Tensor* self) {
  const double low = eps.value_or(-1);
  return unary_by_x(name, {UnaryOp::Logit, low}, float_operand(name, x, self), self,
                    [low](const Tensor& g, const Tensor& x) {
                      const Tensor inside = logical_and(ge(x, std::max(low, 0.0)), le(x, 1 - std::max(low, 0.0)));
                      return Grads{where(inside, div(g, mul(x, sub(1, x))), low < 0 ? NAN : 0.0)};
                    });
}
Tensor logit(const Tensor& x, std::optional<double> eps) { return logit("logit", x, eps, nullptr); }
Tensor& logit_(Tensor& self, std::optional<double> eps) { return logit("logit_", self, eps, &self), self; }

/// Is a ln b taken as 0 although ln b is no number?
static Tensor without_log(const Tensor& gradient, const Operand& a, const Operand& b) {
  if (b.is_tensor()) return masked_fill(gradient, logical_and(eq(a, 0), le(b, 0)), 0);
  return b.scalar().to_double() <= 0 ? masked_fill(gradient, eq(a, 0), 0) : gradient;
}
static Tensor xlogy(const char* name, const Operand& a, const Operand& b, Tensor* self = nullptr) {
  return binary_by_operands(
      name, BinaryOp::XLogY, a, b, self, Promote::Float,
      [](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
        return Grads{needs[0] ? without_log(xlogy(g, b), a, b) : Tensor(), needs[1] ? div(mul(g, a), b) : Tensor()};
      });
}
Tensor xlogy(const Operand& a, const Operand& b) { return xlogy("xlogy", a, b); }
Tensor& xlogy_(Tensor& self, const Operand& b) { return xlogy("xlogy_", self, b, &self), self; }

static Tensor log_sum(const char* name, BinaryOp op, double ln_base, const Operand& a, const Operand& b) {
  return binary_by_operands(name, op, a, b, nullptr, Promote::Float,
                            [ln_base](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                              const auto share = [&](const Operand& x, const Operand& y) {
                                return mul(g, sigmoid(ln_base == 1 ? sub(x, y) : mul(sub(x, y), ln_base)));
                              };
                              return Grads{needs[0] ? share(a, b) : Tensor(), needs[1] ? share(b, a) : Tensor()};
                            });
}
Tensor logaddexp(const Operand& a, const Operand& b) { return log_sum("logaddexp", BinaryOp::LogAddExp, 1, a, b); }
Tensor logaddexp2(const Operand& a, const Operand& b) {
  return log_sum("logaddexp2", BinaryOp::LogAddExp2, std::numbers::ln2, a, b);
}

}  // namespace tapir::inline v0
