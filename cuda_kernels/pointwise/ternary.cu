#include "../../core/formulas/ternary.h"

#include "../kernels.h"
#include "pointwise.h"

namespace tapir::inline v0::cuda_kernels {

using formulas::AnyTernary, formulas::Family;

template <class T> static void run(Context& ctx, V out, V a, V b, V c, const TernaryParams& p) {
  const auto numbers = formulas::numbers<T>(p.op, p);
  const TensorView* const in[] = {&a, &b, &c};
  const Family family = formulas::family_of(p.op);
  if (family == Family::Select)
    return run_pointwise<T, true, bool>(ctx, "ternary", out, in, AnyTernary<T, Family::Select>{p.op, numbers});
  if constexpr (formulas::kReal<T>)
    return run_pointwise<T>(ctx, "ternary", out, in, AnyTernary<T, Family::All, Family::Floats>{p.op, numbers});
  if (family == Family::All)
    return run_pointwise<T>(ctx, "ternary", out, in, AnyTernary<T, Family::All>{p.op, numbers});
  fail_dtype("ternary", dtype_of<T>);
}

void ternary(Context& ctx, const entry::Ternary& c) {
  const DType a = c.a.dtype, common = c.b.dtype == c.c.dtype ? c.b.dtype : promote_types(c.b.dtype, c.c.dtype);
  const bool where = c.params.op == TernaryOp::Where;
  const DType type = compute_type(where || a == common ? common : promote_types(a, common));
  for_compute("ternary", type, [&]<class T>() { run<T>(ctx, c.out, c.a, c.b, c.c, c.params); });
}

}  // namespace tapir::inline v0::cuda_kernels
