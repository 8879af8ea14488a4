#include "program.h"

#include <bit>

#include "../../core/trace_call.h"

namespace tapir::inline v0::ir {
namespace {

const char* name_of_kind(Block::Kind kind) {
  return kind == Block::Kind::Temporary ? "temporary" : kind == Block::Kind::Outside ? "outside" : "constant";
}

std::string list_of(const std::vector<View>& views) {
  std::string s;
  for (const View& v : views) s += (s.empty() ? "" : ", ") + to_string(v);
  return s;
}

std::string to_string(const Operand& o) {
  if (o.kind == TraceArg::Kind::View) return to_string(o.views[0]);
  if (o.kind == TraceArg::Kind::List) return "[" + list_of(o.views) + "]";
  return tapir::format("{} bytes", int64_t(o.bytes.size()));
}

std::string to_string(const Block& b, int64_t number) {
  std::string s = tapir::format("%{}: {}, {} bytes on {}", number, name_of_kind(b.kind), b.bytes, b.device);
  if (b.kind == Block::Kind::Outside) return s + (b.read ? ", read" : "") + (b.written ? ", written" : "");
  return s + tapir::format(", before {} to {}", b.birth,
                           b.death < 0 ? "the end and after" : "before " + std::to_string(b.death));
}

}  // namespace

/// By their bits: -0 is not 0, and a NaN is itself.
static bool same(Scalar a, Scalar b) {
  if (a.kind() != b.kind()) return false;
  return a.is_float() ? std::bit_cast<uint64_t>(a.to_double()) == std::bit_cast<uint64_t>(b.to_double())
                      : a.to_int() == b.to_int();
}
bool same(const View& a, const View& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.device != b.device) return false;
  if (a.kind == View::Kind::Number) return same(a.number, b.number);
  return a.block == b.block && a.offset == b.offset && a.shape == b.shape && a.strides == b.strides;
}
bool same(const Call& a, const Call& b) {
  const auto same_operand = [](const Operand& x, const Operand& y) {
    const auto all = [](const View& v, const View& w) { return same(v, w); };
    return x.bytes == y.bytes && std::equal(x.views.begin(), x.views.end(), y.views.begin(), y.views.end(), all);
  };
  return a.entry == b.entry && a.device == b.device && a.modes == b.modes &&
         std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(), same_operand);
}

std::string to_string(const View& v) {
  if (v.kind == View::Kind::Absent) return "-";
  if (v.kind == View::Kind::Number) return tapir::format("{}", v.number);
  std::string s = v.block < 0 ? "%empty" : tapir::format("%{}", int64_t(v.block));
  s += tapir::format(" {} {}", v.dtype, v.shape);
  if (numel_of(v.shape) && !is_contiguous(v.shape, v.strides)) s += tapir::format(" strides {}", v.strides);
  return v.offset ? s + tapir::format(" at {}", v.offset) : s;
}

/// The operations of a fused call: "(Mul Add Relu)".
static std::string steps_of(const Call& call) {
  const auto p = call.params<FusedParams>();
  std::string s;
  for (const FusedStep& step : std::span(p.steps, size_t(p.count))) {
    const std::string_view name = step.kind == FusedKind::Unary     ? detail::name_of_op(UnaryOp(step.op))
                                  : step.kind == FusedKind::Binary  ? detail::name_of_op(BinaryOp(step.op))
                                  : step.kind == FusedKind::Ternary ? detail::name_of_op(TernaryOp(step.op))
                                  : step.kind == FusedKind::Cast    ? name_of(step.type)
                                  : step.kind == FusedKind::Reduce  ? detail::name_of_op(ReduceOp(step.op))
                                  : step.kind == FusedKind::Keep    ? "Keep"
                                                                    : "";
    if (!name.empty()) s.append(s.empty() ? "(" : " ").append(name);
  }
  return s + (s.empty() ? "" : ")");
}

std::string label_of(const Call& call) {
  std::string s = entry::name_of(call.entry);
  for (const Operand& o : call.operands)
    if (o.op >= 0) s += std::string("(") + o.op_name + ")";
  return s;
}

/// "binary(Mul): %2 float32 (3,) <- %0 float32 (3,), 2": what is written, what is read; * marks what is both.
std::string to_string(const Call& call) {
  std::string written, read, name = label_of(call);
  if (is<entry::Fused>(call)) name += steps_of(call);
  for (const Operand& o : call.operands) {
    if (o.kind == TraceArg::Kind::Bytes) continue;
    std::string& side = o.access == Access::Read ? read : written;
    side += (side.empty() ? "" : ", ") + to_string(o) + (o.access == Access::Update ? "*" : "");
  }
  return name + ": " + written + " <- " + read;
}

std::string to_string(const Program& p) {
  std::string s =
      tapir::format("program of {} calls and {} blocks\n", int64_t(p.calls.size()), int64_t(p.blocks.size()));
  s += "inputs: " + list_of(p.inputs) + "\noutputs: " + list_of(p.outputs) + "\n";
  for (size_t i = 0; i < p.blocks.size(); ++i) s += to_string(p.blocks[i], int64_t(i)) + "\n";
  for (size_t i = 0; i < p.calls.size(); ++i) s += tapir::format("{}  ", int64_t(i)) + to_string(p.calls[i]) + "\n";
  return s;
}

}  // namespace tapir::inline v0::ir
