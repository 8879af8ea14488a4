#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

// Element by element, broadcast, in the promoted dtype; the result is bool. In place 0 or 1 is written in self's own
// dtype.
Tensor eq(const Operand& a, const Operand& b);
Tensor ne(const Operand& a, const Operand& b);
Tensor lt(const Operand& a, const Operand& b);
Tensor le(const Operand& a, const Operand& b);
Tensor gt(const Operand& a, const Operand& b);
Tensor ge(const Operand& a, const Operand& b);
// What is not 0 is true.
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_xor(const Operand& a, const Operand& b);
Tensor logical_not(const Tensor& x);

struct IsCloseOptions {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};
/// |a - b| <= atol + rtol |b|, or equal (infinities). Both have one dtype.
Tensor isclose(const Tensor& a, const Tensor& b, const IsCloseOptions& options = {});
/// Whether that holds for all elements; broadcast.
bool allclose(const Tensor& a, const Tensor& b, const IsCloseOptions& options = {},
              SourceLocation where = SourceLocation::current());
/// Whether both have one shape and the same elements; a NaN equals nothing.
bool equal(const Tensor& a, const Tensor& b, SourceLocation where = SourceLocation::current());

Tensor& eq_(Tensor& self, const Operand& other);
Tensor& ne_(Tensor& self, const Operand& other);
Tensor& lt_(Tensor& self, const Operand& other);
Tensor& le_(Tensor& self, const Operand& other);
Tensor& gt_(Tensor& self, const Operand& other);
Tensor& ge_(Tensor& self, const Operand& other);
Tensor& logical_and_(Tensor& self, const Operand& other);
Tensor& logical_or_(Tensor& self, const Operand& other);
Tensor& logical_xor_(Tensor& self, const Operand& other);
Tensor& logical_not_(Tensor& self);

// As in PyTorch: `x > 0` is a tensor of bools; is_same() asks whether two handles are one tensor.
inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
inline Tensor operator==(const Tensor& a, Scalar b) { return eq(a, b); }
inline Tensor operator==(Scalar a, const Tensor& b) { return eq(a, b); }
inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
inline Tensor operator!=(const Tensor& a, Scalar b) { return ne(a, b); }
inline Tensor operator!=(Scalar a, const Tensor& b) { return ne(a, b); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<(const Tensor& a, Scalar b) { return lt(a, b); }
inline Tensor operator<(Scalar a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator<=(const Tensor& a, Scalar b) { return le(a, b); }
inline Tensor operator<=(Scalar a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>(const Tensor& a, Scalar b) { return gt(a, b); }
inline Tensor operator>(Scalar a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, b); }
inline Tensor operator>=(Scalar a, const Tensor& b) { return ge(a, b); }

}  // namespace tapir::inline v0
