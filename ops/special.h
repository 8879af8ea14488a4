#pragma once
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

// Special functions, element by element; integers and bool give float32.

/// 1 - erf(x), exact where it is tiny.
Tensor erfc(const Tensor& x);
/// The y with erf(y) = x; NaN outside [-1, 1].
Tensor erfinv(const Tensor& x);
/// ln |Gamma(x)|
Tensor lgamma(const Tensor& x);
/// The derivative of ln Gamma(x).
Tensor digamma(const Tensor& x);
/// The n-th derivative of digamma; n >= 0.
Tensor polygamma(int64_t n, const Tensor& x);
/// sin(pi x) / (pi x), 1 at 0.
Tensor sinc(const Tensor& x);
/// ln(x / (1 - x)); with eps x is clamped to [eps, 1 - eps] first.
Tensor logit(const Tensor& x, std::optional<double> eps = {});

Tensor& erfc_(Tensor& self);
Tensor& erfinv_(Tensor& self);
Tensor& lgamma_(Tensor& self);
Tensor& digamma_(Tensor& self);
Tensor& polygamma_(Tensor& self, int64_t n);
Tensor& sinc_(Tensor& self);
Tensor& logit_(Tensor& self, std::optional<double> eps = {});

/// a ln b, 0 where a is 0 (and b is no NaN).
Tensor xlogy(const Operand& a, const Operand& b);
Tensor& xlogy_(Tensor& self, const Operand& other);
/// ln(e^a + e^b) without overflow.
Tensor logaddexp(const Operand& a, const Operand& b);
/// log2(2^a + 2^b) without overflow.
Tensor logaddexp2(const Operand& a, const Operand& b);

}  // namespace tapir::inline v0
