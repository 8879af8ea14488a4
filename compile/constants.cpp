#include <cmath>
#include <cstring>
#include <optional>

#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Fill;

/// The number as elements of that dtype hold it; nothing for those that would round it.
std::optional<Scalar> as_held(Scalar number, DType dtype) {
  if (dtype == kFloat64) return Scalar(number.to_double());
  if (dtype == kFloat32) return Scalar(double(float(number.to_double())));
  if (dtype == kInt64 && !number.is_float()) return Scalar(number.to_int());
  return {};
}

std::optional<Scalar> filled_with(const Call& call, const Program& p) {
  if (!is<Fill>(call) || call[&Fill::out].block < 0 || !covers(call[&Fill::out], p)) return {};
  return as_held(call.params<Scalar>(), call[&Fill::out].dtype);
}

}  // namespace

void take_constants(Program& p) {
  const Uses uses(p);
  std::vector<std::optional<std::pair<Scalar, DType>>> number(p.blocks.size());
  for (Call& call : p.calls) {
    if (const auto value = filled_with(call, p)) {
      const size_t block = size_t(call[&Fill::out].block);
      if (p.blocks[block].kind == Block::Kind::Temporary && uses.writes[block] == 1)
        number[block] = {*value, call[&Fill::out].dtype};
      continue;
    }
    if (!is<Binary>(call) || call.params<BinaryParams>().op > BinaryOp::Div) continue;
    for (const bool second : {true, false}) {
      View &a = call[&Binary::a], &b = call[&Binary::b], &v = second ? b : a, &other = second ? a : b;
      if (v.kind != View::Kind::Memory || v.block < 0 || other.kind != View::Kind::Memory) continue;
      const auto& known = number[size_t(v.block)];
      if (!known || known->second != v.dtype) continue;
      View scalar;
      scalar.kind = View::Kind::Number, scalar.number = known->first, scalar.dtype = v.dtype, scalar.device = v.device;
      v = scalar;
    }
  }
}

}  // namespace tapir::inline v0::ir
