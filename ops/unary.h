#pragma once
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

// One operand, element by element. Integers and bool give float32, except for abs, sign, square and the roundings,
// which keep integers. In place an integer tensor cannot take a float: ValueError.
Tensor abs(const Tensor& x);
/// -1, 0 or 1; 0 for NaN.
Tensor sign(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);
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
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
/// To the nearest integer, halves to the even one; or to a number of decimals, which may be negative (floating point only).
Tensor round(const Tensor& x, int64_t decimals = 0);
Tensor trunc(const Tensor& x);
/// x - trunc(x). Floating point only.
Tensor frac(const Tensor& x);
/// x itself.
Tensor positive(const Tensor& x);
Tensor deg2rad(const Tensor& x);
Tensor rad2deg(const Tensor& x);
/// What stands for NaN, inf and -inf; the last two are the dtype's largest and least number by default.
struct NanToNumOptions {
  double nan = 0;
  std::optional<double> posinf = {}, neginf = {};
};
Tensor nan_to_num(const Tensor& x, const NanToNumOptions& options = {});

Tensor& abs_(Tensor& self);
Tensor& sign_(Tensor& self);
Tensor& exp_(Tensor& self);
Tensor& exp2_(Tensor& self);
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
Tensor& asinh_(Tensor& self);
Tensor& acosh_(Tensor& self);
Tensor& atanh_(Tensor& self);
Tensor& erf_(Tensor& self);
Tensor& floor_(Tensor& self);
Tensor& ceil_(Tensor& self);
Tensor& round_(Tensor& self, int64_t decimals = 0);
Tensor& trunc_(Tensor& self);
Tensor& frac_(Tensor& self);
Tensor& deg2rad_(Tensor& self);
Tensor& rad2deg_(Tensor& self);
Tensor& nan_to_num_(Tensor& self, const NanToNumOptions& options = {});

// Tests of each element; the result is bool.
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
/// Is the sign bit set: also of -0 and of some NaNs.
Tensor signbit(const Tensor& x);

}  // namespace tapir::inline v0
