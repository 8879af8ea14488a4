#pragma once
#include <optional>
#include <string_view>

#include "../autograd/arith.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// a + alpha b
Tensor add(const Operand& a, const Operand& b, Scalar alpha);
/// a - alpha b
Tensor sub(const Operand& a, const Operand& b, Scalar alpha = 1);
Tensor mul(const Operand& a, const Operand& b);
/// a / b; integers give float32. rounding: "" (none), "trunc" or "floor", which keep integers.
Tensor div(const Operand& a, const Operand& b, std::string_view rounding = "");
Tensor neg(const Tensor& x);

Tensor& add_(Tensor& self, const Operand& other, Scalar alpha = 1);
Tensor& sub_(Tensor& self, const Operand& other, Scalar alpha = 1);
Tensor& mul_(Tensor& self, const Operand& other);
Tensor& div_(Tensor& self, const Operand& other, std::string_view rounding = "");
Tensor& neg_(Tensor& self);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor& operator+=(Tensor& a, const Operand& b) { return add_(a, b); }
inline Tensor& operator-=(Tensor& a, const Operand& b) { return sub_(a, b); }
inline Tensor& operator*=(Tensor& a, const Operand& b) { return mul_(a, b); }
inline Tensor& operator/=(Tensor& a, const Operand& b) { return div_(a, b); }

}  // namespace tapir::inline v0
