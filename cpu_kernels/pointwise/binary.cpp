#include <algorithm>
#include <cstring>

#include "../../core/dispatch.h"
#include "../kernels.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

bool is_integer_division(const BinaryParams& p, DType type) {
  if (is_floating(type)) return false;
  return p.op == BinaryOp::TruncDiv || p.op == BinaryOp::FloorDiv || p.op == BinaryOp::Remainder ||
         p.op == BinaryOp::Fmod;
}

/// Reports the first 0 among the divisors by its position in `out`.
void check_divisors(Context& ctx, V out, V b) {
  if (out.numel() == 0) return;
  if (b.is_scalar) {
    if (!b.scalar.to_bool()) ctx.bad_value(0, 0, 0);
    return;
  }
  // Row-major over the axes along which b varies: elsewhere the first is at index 0.
  Space space(2);
  const int64_t size = size_of(b.dtype);
  int64_t place = 1;
  for (int64_t d = 0; d < out.rank; ++d) place *= out.sizes[d];
  for (int64_t d = 0; d < out.rank; ++d) {
    place /= out.sizes[d];
    const int64_t from = d - (out.rank - b.rank);
    if (from < 0 || b.sizes[from] == 1 || b.strides[from] == 0) continue;
    const int64_t strides[] = {b.strides[from] * size, place};
    space.add(out.sizes[d], strides);
  }
  const Converter to_bool = converter(kBool, b.dtype);
  alignas(64) char raw[kTile * kMaxElementSize];
  bool nonzero[kTile];
  for (int64_t flat = 0; flat < space.numel; flat += kTile) {
    const int64_t n = std::min(kTile, space.numel - flat);
    gather(space, 0, b.as<char>(), flat, n, size, raw);
    to_bool(n, nonzero, raw);
    if (const void* zero = std::memchr(nonzero, 0, size_t(n)))
      return ctx.bad_value(space.offset(1, flat + (static_cast<const bool*>(zero) - nonzero)), 0, 0);
  }
}

}  // namespace

Choice choice_for(const BinaryParams& p, DType type) {
  const BinaryOp op = formulas::form_of(p);
  return first_choice("binary", op, type, binary_arithmetic, binary_division, binary_math, binary_bitwise, binary_grad,
                      binary_compare);
}

void binary(Context& ctx, const entry::Binary& c) {
  const DType type = compute_type(c.a.dtype == c.b.dtype ? c.a.dtype : promote_types(c.a.dtype, c.b.dtype));
  const DType types[] = {result_of(c.params.op, type), type, type};
  const Choice choice = choice_for(c.params, type);
  if (is_integer_division(c.params, type)) check_divisors(ctx, c.out, c.b);
  const TensorView* const views[] = {&c.out, &c.a, &c.b};
  pointwise(views, types, choice.kernel, &c.params, choice.cost);
}

}  // namespace tapir::inline v0::cpu
