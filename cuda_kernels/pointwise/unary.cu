#include "../../core/formulas/unary.h"

#include "../kernels.h"
#include "pointwise.h"

namespace tapir::inline v0::cuda_kernels {

using formulas::AnyUnary, formulas::Family;

template <class T> static void run(Context& ctx, V out, V x, UnaryOp op, const UnaryParams& p) {
  const auto numbers = formulas::numbers<T>(op, p);
  const TensorView* const in[] = {&x};
  const auto any = [&]<bool kPacks, Family... kFamilies>(FamilyGroup<kPacks, kFamilies...>) {
    run_pointwise<T, kPacks>(ctx, "unary", out, in, AnyUnary<T, kFamilies...>{op, numbers});
  };
  const Family family = formulas::family_of(op);
  bool found = run_group_of<FamilyGroup<true, Family::Test>>(family, any);
  if constexpr (formulas::kReal<T>)
    found = found || run_group_of<FamilyGroup<true, Family::All, Family::Floats>, FamilyGroup<true, Family::Activation>,
                                  FamilyGroup<true, Family::Math>, FamilyGroup<true, Family::Angle>,
                                  FamilyGroup<true, Family::Power>, FamilyGroup<false, Family::Special>>(family, any);
  else
    found = found || run_group_of<FamilyGroup<true, Family::All, Family::Integers>, FamilyGroup<false, Family::Power>>(
                         family, any);
  if (!found) fail_dtype("unary", x.dtype);
}

void unary(Context& ctx, const entry::Unary& c) {
  const DType type = compute_type(c.x.dtype);
  const UnaryOp op = is_floating(type) ? formulas::form_of(c.params) : c.params.op;
  for_compute("unary", type, [&]<class T>() { run<T>(ctx, c.out, c.x, op, c.params); });
}

}  // namespace tapir::inline v0::cuda_kernels
