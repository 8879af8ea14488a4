#include "../../core/formulas/binary.h"

#include "../kernels.h"
#include "pointwise.h"

namespace tapir::inline v0::cuda_kernels {

using formulas::AnyBinary, formulas::Family;

static bool is_integer_division(BinaryOp op, DType type) {
  return !is_floating(type) && formulas::family_of(op) == Family::Division;
}

/// One element of b each; where it is 0 its position in `out` is reported.
static __global__ void divisors_kernel(Layout<2> l, const void* b, DType dtype, LateError* error) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[2];
    l.offsets(i, at);
    if (!load_any<bool>(b, at[0], dtype)) report_bad_value(error, at[1], 0, 0);
  }
}

/// Reports the first 0 among the divisors by its position in `out`.
static void check_divisors(Context& ctx, V out, V b) {
  if (out.numel() == 0) return;
  if (b.is_scalar) {
    if (!b.scalar.to_bool()) ctx.bad_value(0, 0, 0);
    return;
  }
  // Over the axes along which b varies: elsewhere the first is at index 0.
  TensorView from = b.expand(out.shape()), place = from;
  int64_t next = 1;
  for (int64_t d = out.rank - 1; d >= 0; --d) {
    place.strides[d] = next, next *= out.sizes[d];
    if (from.strides[d] == 0) from.sizes[d] = place.sizes[d] = 1;
  }
  const TensorView* const views[] = {&from, &place};
  const Layout<2> l = layout_of(views);
  launch(ctx, "binary", grid_of(l.numel), divisors_kernel, l, b.data, b.dtype, late_error(ctx));
}

template <class T> static void run(Context& ctx, V out, V a, V b, BinaryOp op, const BinaryParams& p) {
  const auto numbers = formulas::numbers<T>(op, p);
  const TensorView* const in[] = {&a, &b};
  const auto any = [&]<bool kPacks, Family... kFamilies>(FamilyGroup<kPacks, kFamilies...>) {
    run_pointwise<T, kPacks>(ctx, "binary", out, in, AnyBinary<T, kFamilies...>{op, numbers});
  };
  const Family family = formulas::family_of(op);
  using Divisions = FamilyGroup<false, Family::Division, Family::Power>;
  bool found = run_group_of<FamilyGroup<true, Family::Compare>>(family, any);
  if constexpr (formulas::kReal<T>)
    found = found || run_group_of<FamilyGroup<true, Family::All, Family::Floats>, FamilyGroup<true, Family::Gradient>,
                                  FamilyGroup<true, Family::Math>, FamilyGroup<true, Family::Division>,
                                  FamilyGroup<true, Family::Power>, FamilyGroup<false, Family::Special>>(family, any);
  else found = found || run_group_of<FamilyGroup<true, Family::All, Family::Bitwise>, Divisions>(family, any);
  if constexpr (!formulas::kReal<T> && !std::is_same_v<T, bool>)
    found = found || run_group_of<FamilyGroup<false, Family::Shift>>(family, any);
  if (!found) fail_dtype("binary", dtype_of<T>);
}

void binary(Context& ctx, const entry::Binary& c) {
  const TensorView &out = c.out, &a = c.a, &b = c.b;
  const BinaryParams& p = c.params;
  const DType type = compute_type(a.dtype == b.dtype ? a.dtype : promote_types(a.dtype, b.dtype));
  if (is_integer_division(p.op, type)) check_divisors(ctx, out, b);
  for_compute("binary", type, [&]<class T>() { run<T>(ctx, out, a, b, formulas::form_of(p), p); });
}

}  // namespace tapir::inline v0::cuda_kernels
