#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

// Two operands, broadcast and promoted; at least one is a tensor.

/// a ^ b. ValueError for integers to a negative integer number.
Tensor pow(const Operand& a, const Operand& b);
Tensor& pow_(Tensor& self, const Operand& exponent);
/// The larger of both, a NaN where there is one; equal operands share the gradient.
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);
/// The same, but a number wins over a NaN; equal operands: the gradient is a's.
Tensor fmax(const Operand& a, const Operand& b);
Tensor fmin(const Operand& a, const Operand& b);
/// a - b floor(a / b): the sign of b, as in Python. ValueError for an integer divisor of 0.
Tensor remainder(const Operand& a, const Operand& b);
Tensor& remainder_(Tensor& self, const Operand& other);
inline Tensor operator%(const Tensor& a, const Operand& b) { return remainder(a, b); }
inline Tensor operator%(Scalar a, const Tensor& b) { return remainder(a, b); }
inline Tensor& operator%=(Tensor& a, const Operand& b) { return remainder_(a, b); }
/// a - b trunc(a / b): the sign of a, as in C.
Tensor fmod(const Operand& a, const Operand& b);
Tensor& fmod_(Tensor& self, const Operand& other);
/// floor(a / b)
Tensor floor_divide(const Operand& a, const Operand& b);
Tensor& floor_divide_(Tensor& self, const Operand& other);
/// The angle of (b, a), in (-pi, pi]; integers give float32.
Tensor atan2(const Operand& a, const Operand& b);
Tensor& atan2_(Tensor& self, const Operand& other);
/// sqrt(a^2 + b^2) without overflow; integers give float32.
Tensor hypot(const Operand& a, const Operand& b);
Tensor& hypot_(Tensor& self, const Operand& other);
/// |a| with the sign of b, that of zeros too; integers give float32.
Tensor copysign(const Tensor& a, const Operand& b);
Tensor& copysign_(Tensor& self, const Operand& other);
/// 0 where x < 0, values where x is 0, else 1. Both have one dtype.
Tensor heaviside(const Tensor& x, const Tensor& values);
Tensor& heaviside_(Tensor& self, const Tensor& values);
/// a ^ b in float64, whatever the operands are.
Tensor float_power(const Operand& a, const Operand& b);
Tensor& float_power_(Tensor& self, const Operand& exponent);

}  // namespace tapir::inline v0
