#include <cmath>
#include <cstring>
#include <optional>

#include "passes.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

/// The number as elements of that dtype hold it; nothing for those that would round it.
std::optional<Scalar> as_held(Scalar number, DType dtype) {
  if (dtype == kFloat64) return Scalar(number.to_double());
  if (dtype == kFloat32) return Scalar(double(float(number.to_double())));
  if (dtype == kInt64 && !number.is_float()) return Scalar(number.to_int());
  return {};
}

std::optional<Scalar> filled_with(const Call& call, const Program& p) {
  if (!is(call, "fill") || call.view(0).block < 0 || !covers(call.view(0), p)) return {};
  return as_held(call.params<Scalar>(), call.view(0).dtype);
}

}  // namespace

void take_constants(Program& p) {
  const Uses uses(p);
  std::vector<std::optional<std::pair<Scalar, DType>>> number(p.blocks.size());
  for (Call& call : p.calls) {
    if (const auto value = filled_with(call, p)) {
      const size_t block = size_t(call.view(0).block);
      if (p.blocks[block].kind == Block::Kind::Temporary && uses.writes[block] == 1)
        number[block] = {*value, call.view(0).dtype};
      continue;
    }
    if (!is(call, "binary") || call.params<BinaryParams>().op > BinaryOp::Div) continue;
    for (size_t i : {size_t(2), size_t(1)}) {
      View &v = call.operands[i].views[0], &other = call.operands[3 - i].views[0];
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
