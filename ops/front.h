#pragma once
// Note [Front functions]
// What operations of a kind share before they call a kernel: checks, type promotion, broadcasting. The kernel gets operands
// that fit. Casts are recorded `to` operations, so that a saved operand keeps its history; broadcasting is only a stride.
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "../autograd/record.h"
#include "../core/backend.h"
#include "../core/checks.h"
#include "../core/fail_as.h"
#include "../core/tensor.h"
#include "cast.h"

namespace tapir::inline v0 {

/// PyTorch's result type: tensors with dimensions decide, unless a 0-dim tensor, or after it a number, is of a higher category
/// (bool < integer < float). Undefined tensors are skipped.
DType result_type(std::initializer_list<const Operand*> operands);
/// float32 for integers and bool, the type itself otherwise.
inline DType float_type(DType t) { return is_floating(t) ? t : kFloat32; }
/// The shape both broadcast to; ValueError names the sizes and the dimension.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);
bool broadcasts_to(const Shape& from, const Shape& to);
/// All defined tensors on one device, or ValueError.
Device common_device(const char* op, std::initializer_list<const Tensor*> tensors);
namespace detail {
inline void check_argument(const char* op, const char* argument, const Tensor& x) {
  check(x.defined(), "[{}] expected a tensor for {}, got an undefined one", op, argument);
}
inline void check_argument(const char* op, const char* argument, const Operand& x) {
  if (x.is_tensor()) check_argument(op, argument, x.tensor());
}
inline void check_argument(const char* op, const char* argument, std::span<const Tensor> list) {
  for (size_t i = 0; i < list.size(); ++i)
    check(list[i].defined(), "[{}] expected a tensor for {}[{}], got an undefined one", op, argument, i);
}
}  // namespace detail
/// ValueError that names the argument, where a tensor must not be absent: check_defined("gather", "x", x, "index", index).
template <class T, class... More>
void check_defined(const char* op, const char* argument, const T& x, const More&... more) {
  detail::check_argument(op, argument, x);
  if constexpr (sizeof...(more) > 0) check_defined(op, more...);
}
/// x's dimensions wrapped, as a bit mask; all of them when the list is empty. ValueError for a dimension twice.
uint32_t reduce_mask(const char* op, const Dims& dims, const Tensor& x);
/// Memory for the result of a pointwise operation: laid out like the first operand of that shape that is dense.
Tensor empty_pointwise(const Shape& shape, DType dtype, Device device, std::initializer_list<const Tensor*> operands);
/// x as it stands for one operand of a pointwise kernel.
inline entry::In view_as(const Operand& x, const Shape& shape, DType dtype) {
  if (!x.is_tensor()) return TensorView(x.scalar(), dtype);
  if (x.tensor().shape() == shape) return x.tensor();
  return TensorView(x.tensor()).expand(shape);
}
/// ValueError for a number that integers of that dtype cannot hold: a kernel would wrap it. Floats round, to infinity too.
inline void check_held(const char* op, const Operand& x, DType dtype) {
  if (!x.is_tensor() && !is_floating(dtype)) check_fits(op, x.scalar(), dtype);
}
/// ValueError for limits that leave no number of an integer dtype: the result would be one that it cannot hold. One that no number reaches is none.
inline void check_limits(const char* op, const Operand& min, const Operand& max, DType dtype) {
  if (!min.is_tensor() && min.scalar().to_double() > 0) check_held(op, min, dtype);
  if (!max.is_tensor() && max.scalar().to_double() < 0) check_held(op, max, dtype);
}
/// PyTorch's rule for a factor (alpha, beta, value) of what is added: integers take integers.
inline void check_factor(const char* op, const char* argument, Scalar factor, DType dtype) {
  check(!factor.is_float() || is_floating(dtype),
        "[{}] for integral input tensors, argument {} must not be a floating point number, got {}", op, argument,
        factor);
}
/// ValueError for more views than anybody means: they would take all memory, for hours.
inline void check_parts(const char* op, int64_t parts) {
  constexpr int64_t most = 1 << 24;
  check(parts <= most, "[{}] expected at most {} parts, got {}", op, most, parts);
}
/// ValueError where a result of dtype `from` may not be stored in a tensor of dtype `to` (a float in integers).
void check_can_cast(const char* op, DType from, DType to);
/// x as it may be read while self is written: a copy where their memory overlaps, but not, for elementwise operations, where
/// every element of x lies at its place in self.
Tensor apart_from(const Tensor& self, const Tensor& x, bool elementwise = false);
/// x as the gradient of an operation in place may save it, to be asked for before the kernel writes: a copy, in `held`, if self shares x's memory.
Operand old_value(const Tensor& self, const Operand& x, Tensor& held);

/// y, of an operation that is never recorded: a profile has its name all the same.
inline Tensor noted(const char* op, Tensor y) {
  profiler::note_operation(op);
  return y;
}

enum class Promote : uint8_t { Common, Float };  // Float: integers become float32

/// Two operands of a pointwise operation, promoted and broadcast.
///     Pointwise p("mul", a, b, self);
///     if (p.cast_back) return copy_(*self, mul(a, b));
///     const auto [old_a, old_b] = p.old_values();
///     Tensor y = p.run(BinaryOp::Mul);
///     return record("mul", y, {p.a, p.b}, save(old_a, old_b), ...);
/// With `self` (in place) y is *self, and p.a stands for it.
class Pointwise {
 public:
  Pointwise(const char* op, const Operand& a, const Operand& b, const Tensor* self = nullptr,
            Promote promote = Promote::Common);
  /// Runs the kernel into a new tensor of the promoted dtype (or of `result`), or into self.
  Tensor run(const BinaryParams& params, std::optional<DType> result = {});
  Tensor run(BinaryOp op, Scalar alpha = 1, std::optional<DType> result = {}) {
    return run(BinaryParams{op, alpha}, result);
  }
  /// a and b as the closure saves them, to be asked for before run(): old_value() of each where the operation will be recorded. for_b: only
  /// the gradient of b needs a, so that it is kept where b wants one.
  std::pair<Operand, Operand> old_values(bool for_b = false);

 private:
  const char* op_;
  const Tensor* self_;
  Tensor cast_a_, cast_b_, old_a_, old_b_;

 public:
  DType dtype;
  Device device;
  Shape shape;
  bool cast_back = false;  // in place, and the promoted dtype is not self's: compute apart, then copy_
  Operand a, b;
};

/// y = op(a, b), whose gradient is a function of g, a and b; in place their old values are kept.
template <class F> Tensor binary_by_operands(const char* name, BinaryOp op, const Operand& a, const Operand& b,
                                             Tensor* self, Promote promote, const F& gradient) {
  Pointwise p(name, a, b, self, promote);
  if (p.cast_back) return copy_(*self, binary_by_operands(name, op, a, b, nullptr, promote, gradient));
  const auto [old_a, old_b] = p.old_values();
  const Tensor y = p.run(op);
  return record(name, y, {p.a, p.b}, save(old_a, old_b), gradient);
}
/// By Maximum or Minimum. The gradient goes to the winner; both get half where they are equal, and all of it with a NaN.
Tensor extreme(const char* name, BinaryOp op, const Operand& a, const Operand& b, Tensor* self = nullptr);

/// y = op(x) by one kernel, into a new tensor (bool for predicates) or into self.
Tensor run_unary(const Tensor& x, const UnaryParams& params, const Tensor* self = nullptr);

}  // namespace tapir::inline v0
