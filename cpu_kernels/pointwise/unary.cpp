#include "../kernels.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

Choice unary_arithmetic(UnaryOp op, DType type) {
  return for_compute("unary", type, [&]<class T>() {
    if constexpr (std::floating_point<T>) return choose<T, Family::All, Family::Floats>(op);
    else return choose<T, Family::All, Family::Integers, Family::Power>(op);
  });
}
Choice unary_test(UnaryOp op, DType type) {
  return for_compute("unary", type, [&]<class T>() { return choose<T, Family::Test>(op); });
}

Choice choice_for(const UnaryParams& p, DType type) {
  const UnaryOp op = is_floating(type) ? formulas::form_of(p) : p.op;
  return first_choice("unary", op, type, unary_arithmetic, unary_math, unary_activation, unary_special, unary_test);
}

void unary(Context&, const entry::Unary& c) {
  const DType type = compute_type(c.x.dtype), types[] = {result_of(c.params.op, type), type};
  const Choice choice = choice_for(c.params, type);
  const TensorView* const views[] = {&c.out, &c.x};
  pointwise(views, types, choice.kernel, &c.params, choice.cost);
}

}  // namespace tapir::inline v0::cpu
