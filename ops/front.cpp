#include "front.h"

#include "cast.h"

namespace tapir::inline v0 {

DType result_type(std::initializer_list<const Operand*> operands) {
  std::optional<DType> level[3];  // tensors with dimensions, 0-dim tensors, numbers
  for (const Operand* o : operands) {
    if (o->is_tensor() && !o->tensor().defined()) continue;
    const int at = !o->is_tensor() ? 2 : o->tensor().dim() == 0 ? 1 : 0;
    const DType t = o->is_tensor() ? o->tensor().dtype() : o->scalar().dtype();
    level[at] = level[at] ? promote_types(*level[at], t) : t;
  }
  const auto combine = [](std::optional<DType> high, std::optional<DType> low) {
    if (!high || !low) return high ? high : low;
    if (is_floating(*high)) return high;
    if (*high == kBool || is_floating(*low)) return std::optional(promote_types(*high, *low));
    return high;
  };
  return combine(level[0], combine(level[1], level[2])).value_or(kFloat32);
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const int64_t rank = std::max(a.size(), b.size());
  Shape out = Dims::filled(rank, 1);
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t i = d - (rank - a.size()), j = d - (rank - b.size());
    const int64_t n = i < 0 ? 1 : a[i], m = j < 0 ? 1 : b[j];
    if (n != m && n != 1 && m != 1) {
      fail(ErrorKind::Value,
           "[{}] the size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension {}; got "
           "shapes {} and {}",
           op, n, m, d, a, b);
    }
    out[d] = n == 1 ? m : n;
  }
  return out;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (int64_t d = 0; d < from.size(); ++d)
    if (const int64_t n = from[d]; n != 1 && n != to[d + to.size() - from.size()]) return false;
  return true;
}

Device common_device(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined()) continue;
    if (!first) first = t;
    if (t->device() != first->device()) {
      fail(ErrorKind::Value,
           "[{}] expected all tensors to be on the same device, but found at least two devices, {} and {}", op,
           first->device(), t->device());
    }
  }
  return first ? first->device() : kCPU;
}

uint32_t reduce_mask(const char* op, const Dims& dims, const Tensor& x) {
  check_defined(op, "the input", x);
  const int64_t rank = x.dim();
  if (dims.empty()) return (1u << rank) - 1;
  uint32_t mask = 0;
  for (int64_t d : dims) {
    const int64_t w = wrap_dim(op, d, rank);
    check(!(mask >> w & 1), "[{}] dim {} appears multiple times in the list of dims {}", op, w, dims);
    mask |= 1u << w;
  }
  return rank == 0 ? 0 : mask;
}

Tensor empty_pointwise(const Shape& shape, DType dtype, Device device, std::initializer_list<const Tensor*> operands) {
  for (const Tensor* t : operands) {
    if (!t->defined() || !(t->shape() == shape)) continue;
    if (t->is_contiguous()) break;
    if (is_dense(shape, t->strides())) return empty_like(*t, {.dtype = dtype, .device = device});
  }
  return empty(shape, {.dtype = dtype, .device = device});
}

void check_can_cast(const char* op, DType from, DType to) {
  const auto category = [](DType t) { return is_floating(t) ? 2 : is_integral(t) ? 1 : 0; };
  check(category(from) <= category(to), "[{}] result type {} can't be cast to the desired output type {}", op, from,
        to);
}

/// May they have elements in common?
static bool share_memory(const Tensor& self, const Tensor& x) {
  if (self.numel() == 0 || x.numel() == 0) return false;
  const Storage &a = *self.impl().storage, &b = *x.impl().storage;  // two may be of the same memory
  const auto meet = [](const char* begin, const char* end, const char* other, const char* other_end) {
    return begin < other_end && other < end;
  };
  const auto bytes = [](const Storage& s) { return static_cast<const char*>(s.data); };
  if (!meet(bytes(a), bytes(a) + a.bytes, bytes(b), bytes(b) + b.bytes)) return false;
  const auto [alow, ahigh] = extent_of(self.shape(), self.strides());
  const auto [blow, bhigh] = extent_of(x.shape(), x.strides());
  const auto *p = static_cast<const char*>(self.data_ptr()), *q = static_cast<const char*>(x.data_ptr());
  const int64_t m = size_of(self.dtype()), n = size_of(x.dtype());
  return meet(p + alow * m, p + ahigh * m, q + blow * n, q + bhigh * n);
}
Tensor apart_from(const Tensor& self, const Tensor& x, bool elementwise) {
  const bool in_place =
      elementwise && self.data_ptr() == x.data_ptr() && self.shape() == x.shape() && self.strides() == x.strides();
  return !in_place && share_memory(self, x) ? clone(x.detach()) : x;
}
Operand old_value(const Tensor& self, const Operand& x, Tensor& held) {
  return x.is_tensor() && share_memory(self, x.tensor()) ? Operand(held = clone(x.tensor())) : x;
}

/// A number that happens to be a tensor on the CPU: it may meet operands of any device.
static bool follows(const Operand& x, const Operand& other) {
  return x.is_tensor() && other.is_tensor() && x.tensor().dim() == 0 && x.tensor().device().is_cpu() &&
         !other.tensor().device().is_cpu();
}
static Device device_of(const char* op, const Operand& x, const Operand& y, bool in_place) {
  if (follows(y, x)) return x.tensor().device();
  if (!in_place && follows(x, y)) return y.tensor().device();
  return common_device(op, {&x.tensor_or_undefined(), &y.tensor_or_undefined()});
}

static Operand cast_operand(const Operand& x, DType dtype, Device device, Tensor& held) {
  if (!x.is_tensor() || (x.tensor().dtype() == dtype && x.tensor().device() == device)) return x;
  held = to(to(x.tensor(), dtype), device);
  return held;
}

static DType promoted(const Operand& a, const Operand& b, Promote promote) {
  if (a.is_tensor() && b.is_tensor() && a.tensor().dtype() == b.tensor().dtype() && is_floating(a.tensor().dtype()))
    return a.tensor().dtype();
  const DType t = result_type({&a, &b});
  return promote == Promote::Float ? float_type(t) : t;
}

static Shape shape_of(const char* op, const Operand& a, const Operand& b) {
  if (!a.is_tensor()) return b.tensor_or_undefined().shape();
  return b.is_tensor() ? broadcast_shapes(op, a.tensor().shape(), b.tensor().shape()) : a.tensor().shape();
}

static const char* check_operands(const char* op, const Operand& x, const Operand& y) {
  check_defined(op, "the first operand", x), check_defined(op, "the second operand", y);
  return op;
}

Pointwise::Pointwise(const char* op, const Operand& x, const Operand& y, const Tensor* self, Promote promote)
    : op_(check_operands(op, x, y)), self_(self), dtype(promoted(x, y, promote)),
      device(device_of(op, x, y, self != nullptr)), shape(shape_of(op, x, y)),
      a(cast_operand(x, dtype, device, cast_a_)), b(cast_operand(y, dtype, device, cast_b_)) {
  if (!self) return;
  check(shape == self->shape(), "[{}] output with shape {} doesn't match the broadcast shape {}", op, self->shape(),
        shape);
  check_can_cast(op, dtype, self->dtype());
  cast_back = dtype != self->dtype();
  if (cast_back) check_inplace(op, *self, wants_grad({a, b}));
}

/// Note [Numbers that do not fit]
/// An integer kernel casts a number to its dtype, which wraps. So before any kernel, and before a recording: sums, products and bitwise
/// operations stay, being right modulo 2^n; a comparison with what no element reaches becomes one with the end of the range on
/// that side, which holds everywhere or nowhere; a shift by it is one by the greatest number, which shifts everything out; others refuse it.
static Scalar bring_inside(const char* op, BinaryParams& p, DType dtype, Scalar v, bool second) {
  if (fits(v, dtype)) return v;
  const bool above = v.to_double() > 0;
  const int64_t half = int64_t(1) << (int(size_of(dtype)) * 8 - 1);
  const int64_t least = dtype == kUInt8 ? 0 : -half, greatest = dtype == kUInt8 ? 255 : half - 1;
  switch (p.op) {
    case BinaryOp::Add:
    case BinaryOp::Sub:
    case BinaryOp::Mul:
    case BinaryOp::BitwiseAnd:
    case BinaryOp::BitwiseOr:
    case BinaryOp::BitwiseXor: return v;
    case BinaryOp::LogicalAnd:
    case BinaryOp::LogicalOr:
    case BinaryOp::LogicalXor: return 1;
    case BinaryOp::ShiftLeft:
    case BinaryOp::ShiftRight:
      if (second) return greatest;
      break;
    case BinaryOp::Eq:
    case BinaryOp::Ne:
    case BinaryOp::Lt:
    case BinaryOp::Le:
    case BinaryOp::Gt:
    case BinaryOp::Ge: {
      const bool less = p.op == BinaryOp::Lt || p.op == BinaryOp::Le, equal = p.op == BinaryOp::Eq;
      const bool largest = above == second;  // is the right-hand side
      const bool holds = p.op == BinaryOp::Ne || (!equal && less == largest);
      p.op = largest ? (holds ? BinaryOp::Le : BinaryOp::Gt) : (holds ? BinaryOp::Ge : BinaryOp::Lt);
      return above ? greatest : least;
    }
    default: break;
  }
  check_fits(op, v, dtype);
  return v;
}

Tensor Pointwise::run(const BinaryParams& given, std::optional<DType> result) {
  BinaryParams params = given;
  entry::In va = view_as(a, shape, dtype), vb = view_as(b, shape, dtype);
  if (a.is_tensor() != b.is_tensor() && !is_floating(dtype)) {
    entry::In& number = a.is_tensor() ? vb : va;
    number = TensorView(bring_inside(op_, params, dtype, (a.is_tensor() ? b : a).scalar(), a.is_tensor()), dtype);
  }
  Tensor apart, y;
  if (self_) {
    check_inplace(op_, *self_, wants_grad({a, b}));
    if (b.is_tensor()) apart = apart_from(*self_, b.tensor(), true), vb = view_as(apart, shape, dtype);
    y = *self_;
  } else
    y = empty_pointwise(shape, result.value_or(dtype), device, {&a.tensor_or_undefined(), &b.tensor_or_undefined()});
  Context& ctx = context(device);
  backend(device).binary(ctx, {y, va, vb, params});
  if (ctx.error.set) [[unlikely]]
    fail_values(ctx.error,
                tapir::format("[{}] ZeroDivisionError: the integer divisor at position {position} is {value}", op_));
  return y;
}

std::pair<Operand, Operand> Pointwise::old_values(bool for_b) {
  if (!self_ || !wants_grad({a, b})) return {a, b};
  return {for_b && !wants_grad({b}) ? a : old_value(*self_, a, old_a_), old_value(*self_, b, old_b_)};
}

Tensor run_unary(const Tensor& x, const UnaryParams& params, const Tensor* self) {
  const bool predicate = params.op >= UnaryOp::LogicalNot;
  Tensor y = self ? *self : empty_pointwise(x.shape(), predicate ? kBool : x.dtype(), x.device(), {&x});
  backend(x).unary(context(x), {y, x, params});
  return y;
}

}  // namespace tapir::inline v0
