#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

// One operand, element by element. Integers and bool give float32, except for abs, sign, square and the roundings,
// which keep integers. In place an integer tensor cannot take a float: ValueError.
Tensor abs(const Tensor& x);
/// -1, 0 or 1; 0 for NaN.
Tensor sign(const Tensor& x);
Tensor exp(const Tensor& x);
/// e^x - 1, exact for small x.
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
/// ln(1 + x), exact for small x.
Tensor log1p(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor sqrt(const Tensor& x);
/// 1 / sqrt(x)
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor square(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
/// To the nearest integer, halves to the even one.
Tensor round(const Tensor& x);
Tensor trunc(const Tensor& x);

Tensor& abs_(Tensor& self);
Tensor& sign_(Tensor& self);
Tensor& exp_(Tensor& self);
Tensor& expm1_(Tensor& self);
Tensor& log_(Tensor& self);
Tensor& log1p_(Tensor& self);
Tensor& log2_(Tensor& self);
Tensor& log10_(Tensor& self);
Tensor& sqrt_(Tensor& self);
Tensor& rsqrt_(Tensor& self);
Tensor& reciprocal_(Tensor& self);
Tensor& square_(Tensor& self);
Tensor& sin_(Tensor& self);
Tensor& cos_(Tensor& self);
Tensor& tan_(Tensor& self);
Tensor& asin_(Tensor& self);
Tensor& acos_(Tensor& self);
Tensor& atan_(Tensor& self);
Tensor& sinh_(Tensor& self);
Tensor& cosh_(Tensor& self);
Tensor& erf_(Tensor& self);
Tensor& floor_(Tensor& self);
Tensor& ceil_(Tensor& self);
Tensor& round_(Tensor& self);
Tensor& trunc_(Tensor& self);

// Tests of each element; the result is bool.
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

}  // namespace tapir::inline v0
