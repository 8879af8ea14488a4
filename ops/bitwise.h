#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

// The bits of integers, broadcast, in the promoted dtype; the logic of bool. ValueError for floating point.
Tensor bitwise_and(const Operand& a, const Operand& b);
Tensor bitwise_or(const Operand& a, const Operand& b);
Tensor bitwise_xor(const Operand& a, const Operand& b);
Tensor bitwise_not(const Tensor& x);
/// Integers only. A count that is negative, or no smaller than the dtype has bits, moves all bits out: 0, or -1 for a negative
/// number moved to the right.
Tensor bitwise_left_shift(const Operand& a, const Operand& b);
Tensor bitwise_right_shift(const Operand& a, const Operand& b);

Tensor& bitwise_and_(Tensor& self, const Operand& other);
Tensor& bitwise_or_(Tensor& self, const Operand& other);
Tensor& bitwise_xor_(Tensor& self, const Operand& other);
Tensor& bitwise_not_(Tensor& self);
Tensor& bitwise_left_shift_(Tensor& self, const Operand& other);
Tensor& bitwise_right_shift_(Tensor& self, const Operand& other);

inline Tensor operator&(const Tensor& a, const Operand& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Operand& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Operand& b) { return bitwise_xor(a, b); }
inline Tensor operator<<(const Tensor& a, const Operand& b) { return bitwise_left_shift(a, b); }
inline Tensor operator>>(const Tensor& a, const Operand& b) { return bitwise_right_shift(a, b); }
inline Tensor operator&(Scalar a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(Scalar a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(Scalar a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator<<(Scalar a, const Tensor& b) { return bitwise_left_shift(a, b); }
inline Tensor operator>>(Scalar a, const Tensor& b) { return bitwise_right_shift(a, b); }
inline Tensor& operator&=(Tensor& a, const Operand& b) { return bitwise_and_(a, b); }
inline Tensor& operator|=(Tensor& a, const Operand& b) { return bitwise_or_(a, b); }
inline Tensor& operator^=(Tensor& a, const Operand& b) { return bitwise_xor_(a, b); }
inline Tensor& operator<<=(Tensor& a, const Operand& b) { return bitwise_left_shift_(a, b); }
inline Tensor& operator>>=(Tensor& a, const Operand& b) { return bitwise_right_shift_(a, b); }
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }

}  // namespace tapir::inline v0
