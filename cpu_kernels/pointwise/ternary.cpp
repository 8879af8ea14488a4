#include "../kernels.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

Choice choice_for(const TernaryParams& p, DType type) {
  const Choice choice = for_compute("ternary", type, [&]<class T>() {
    if constexpr (std::floating_point<T>) return choose<T, Family::All, Family::Floats, Family::Select>(p.op);
    else return choose<T, Family::All, Family::Select>(p.op);
  });
  if (!choice.kernel) fail_dtype("ternary", type);
  return choice;
}

void ternary(Context&, const entry::Ternary& call) {
  V out = call.out, a = call.a, b = call.b, c = call.c;
  const TernaryParams& p = call.params;
  const bool where = p.op == TernaryOp::Where;
  const DType common = b.dtype == c.dtype ? b.dtype : promote_types(b.dtype, c.dtype);
  const DType type = compute_type(where || a.dtype == common ? common : promote_types(a.dtype, common));
  const Choice choice = choice_for(p, type);
  const DType types[] = {type, where ? kBool : type, type, type};
  const TensorView* const views[] = {&out, &a, &b, &c};
  pointwise(views, types, choice.kernel, &p, choice.cost);
}

}  // namespace tapir::inline v0::cpu
