#include "../core/formulas/ternary.h"

#include "kernels.h"
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

void ternary(Context& ctx, V out, V a, V b, V c, const TernaryParams& p) {
  const DType common = b.dtype == c.dtype ? b.dtype : promote_types(b.dtype, c.dtype);
  const bool where = p.op == TernaryOp::Where;
  const DType type = compute_type(where || a.dtype == common ? common : promote_types(a.dtype, common));
  for_compute("ternary", type, [&]<class T>() { run<T>(ctx, out, a, b, c, p); });
}

}  // namespace tapir::inline v0::cuda_kernels
