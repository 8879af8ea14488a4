#include "../core/formulas/unary.h"

#include "kernels.h"
#include "pointwise.h"

namespace tapir::inline v0::cuda_kernels {

using formulas::AnyUnary, formulas::Family;

template <class T> static void run(Context& ctx, V out, V x, UnaryOp op, const UnaryParams& p) {
  const auto numbers = formulas::numbers<T>(op, p);
  const TensorView* const in[] = {&x};
  const auto any = [&]<bool kPacks, Family... kFamilies>() {
    run_pointwise<T, kPacks>(ctx, "unary", out, in, AnyUnary<T, kFamilies...>{op, numbers});
  };
  const Family family = formulas::family_of(op);
  if (family == Family::Test) return any.template operator()<true, Family::Test>();
  if constexpr (formulas::kReal<T>) {
    switch (family) {
      case Family::All:
      case Family::Floats: return any.template operator()<true, Family::All, Family::Floats>();
      case Family::Activation: return any.template operator()<true, Family::Activation>();
      case Family::Math: return any.template operator()<true, Family::Math>();
      case Family::Angle: return any.template operator()<true, Family::Angle>();
      case Family::Power: return any.template operator()<true, Family::Power>();
      case Family::Special: return any.template operator()<false, Family::Special>();
      default: break;
    }
  } else {
    if (family == Family::All || family == Family::Integers)
      return any.template operator()<true, Family::All, Family::Integers>();
    if (family == Family::Power) return any.template operator()<false, Family::Power>();
  }
  fail_dtype("unary", x.dtype);
}

void unary(Context& ctx, const entry::Unary& c) {
  const DType type = compute_type(c.x.dtype);
  const UnaryOp op = is_floating(type) ? formulas::form_of(c.params) : c.params.op;
  for_compute("unary", type, [&]<class T>() { run<T>(ctx, c.out, c.x, op, c.params); });
}

}  // namespace tapir::inline v0::cuda_kernels
