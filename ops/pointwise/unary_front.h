#pragma once
// What functions of one operand share (ops/pointwise/unary.cpp, ops/pointwise/activation.cpp). `self` is set in place, and is then x.
#include "../../autograd/record.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../front.h"

namespace tapir::inline v0 {

/// x as an operand of a kernel that computes in floats: integers become float32, or in place are refused.
inline Tensor float_operand(const char* name, const Tensor& x, const Tensor* self) {
  check_defined(name, "the input", x);
  if (!self) return to(x, float_type(x.dtype()));
  check_can_cast(name, float_type(x.dtype()), x.dtype());
  check_inplace(name, x, wants_grad({x}));
  return x;
}
/// x as it is, for kernels that keep integers; bool is refused.
inline Tensor number_operand(const char* name, const Tensor& x, const Tensor* self) {
  check_defined(name, "the input", x);
  check(x.dtype() != kBool, "[{}] expected a tensor of numbers, got {}", name, x);
  if (self) check_inplace(name, x, wants_grad({x}));
  return x;
}

/// y = op(x), whose gradient is a function of g and y.
template <class F>
Tensor unary_by_y(const char* name, const UnaryParams& params, const Tensor& x, const Tensor* self, const F& gradient) {
  const Tensor y = run_unary(x, params, self);
  return record(name, y, {x}, save(y), gradient);
}
/// y = op(x), whose gradient is a function of g and x; in place a copy of x is kept where it will be needed.
template <class F>
Tensor unary_by_x(const char* name, const UnaryParams& params, const Tensor& x, const Tensor* self, const F& gradient) {
  const Tensor old = self && wants_grad({x}) ? clone(x) : Tensor();
  const Tensor y = run_unary(x, params, self);
  return record(name, y, {x}, save(old.defined() ? old : x), gradient);
}

// A line gives name, kernel, operand (float: integers become float32; number: they stay), what the gradient is a
// function of, and it.
#define TAPIR_UNARY(name, op, operand, saved, gradient)                                                             \
  static Tensor name(const char* label, const Tensor& x, Tensor* self) {                                            \
    return unary_by_##saved(label, {UnaryOp::op}, operand##_operand(label, x, self), self,                          \
                            [](const Tensor& g, [[maybe_unused]] const Tensor& saved) { return Grads{gradient}; }); \
  }                                                                                                                 \
  Tensor name(const Tensor& x) {                                                                                    \
    TAPIR_AUTOCAST(name, x);                                                                                        \
    return name(#name, x, nullptr);                                                                                 \
  }                                                                                                                 \
  Tensor& name##_(Tensor& self) { return name(#name "_", self, &self), self; }

// Note [Fused gradients]
// The gradient of an activation is one kernel of g and a saved value v (x or y), so that a backward pass reads and
// writes memory once. That kernel is a recorded operation of its own, g times a function of v, whose derivative
// slope(v) is made of plain operations and so is differentiable as often as one likes (undefined: it is 0).
template <class Slope>
Tensor fused_gradient(const char* name, const BinaryParams& params, const Tensor& g, const Tensor& v, Slope slope) {
  Pointwise p(name, g, v);
  return record(name, p.run(params), {g, v}, save(g, v),
                [=](Needs needs, const Tensor& gg, const Tensor& g, const Tensor& v) {
                  const Tensor bend = needs[1] ? slope(v) : Tensor();
                  return Grads{needs[0] ? fused_gradient(name, params, gg, v, slope) : Tensor(),
                               bend.defined() ? mul(mul(gg, g), bend) : Tensor()};
                });
}
/// g gelu'(x)
Tensor gelu_gradient(const Tensor& g, const Tensor& x, bool by_tanh);
/// For what is linear in pieces.
inline constexpr auto kNoBend = [](const Tensor&) { return Tensor(); };

}  // namespace tapir::inline v0
