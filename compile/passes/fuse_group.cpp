#include "fuse_group.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "../../core/formulas/binary.h"
#include "../../core/formulas/unary.h"
#include "../../core/generator.h"
#include "../program/overlap.h"
#include "../program/params.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Dropout, entry::Ternary, entry::Unary;

/// Dimensions of more than one element, innermost first by the strides of `out`: does `in` lie in the same order, or repeat? Where it
/// does not, a kernel of its own that works on blocks is faster than a fused one.
bool in_order(const View& out, const View& in) {
  int64_t inner = -1;
  for (int64_t d = 0; d < out.shape.size(); ++d)
    if (out.shape[d] > 1 && (inner < 0 || std::abs(out.strides[d]) <= std::abs(out.strides[inner]))) inner = d;
  if (inner < 0 || in.strides[inner] == 0) return true;
  for (int64_t d = 0; d < out.shape.size(); ++d)
    if (out.shape[d] > 1 && in.strides[d] != 0 && std::abs(in.strides[d]) < std::abs(in.strides[inner])) return false;
  return true;
}

template <class Op> bool gives_bool(Op op) {
  const formulas::Family family = formulas::family_of(op);
  return family == formulas::Family::Test || family == formulas::Family::Compare;
}

bool divides_integers(const Call& call) {
  const BinaryOp op = call.params<BinaryParams>().op;
  if (op != BinaryOp::TruncDiv && op != BinaryOp::FloorDiv && op != BinaryOp::Fmod && op != BinaryOp::Remainder)
    return false;
  const DType a = call[&Binary::a].dtype, b = call[&Binary::b].dtype;
  return !is_floating(a == b ? a : promote_types(a, b));
}

}  // namespace

GroupBuilder::GroupBuilder(const Shape& shape, int64_t row) : kept_(shape), row_(row) {
  group_.shape = shape;
  int64_t elements = 1;
  for (int64_t d = shape.size(); row && elements < row && d-- > 0;) {
    elements *= shape[d], kept_[d] = 1;
    ++group_.params.row_dims;
  }
  fits_ = !row || elements == row;
}

FusedGroup GroupBuilder::take() {
  const FusedStep* const steps = group_.params.steps;
  const auto reduces = [](const FusedStep& s) { return s.kind == FusedKind::Reduce; };
  if (std::none_of(steps, steps + group_.params.count, reduces)) group_.params.row_dims = 0;
  return std::move(group_);
}

/// The view as one of the group's shape; of calls on one element a row: repeated along the rows.
std::optional<View> GroupBuilder::fitted(const View& v) const {
  const View whole = expanded(v, from_);
  if (!row_) return reshaped(whole, group_.shape);
  auto view = reshaped(whole, numel_of(from_) == numel_of(group_.shape) ? group_.shape : kept_);
  if (!view) return {};
  view = expanded(*view, group_.shape);
  return view->kind != View::Kind::Memory || goes_by_rows(*view) ? view : std::nullopt;
}

int GroupBuilder::number(Scalar value, DType type) {
  const auto same = [&](const FusedStep& s) {
    const Scalar& n = s.numbers[0];
    if (s.kind != FusedKind::Number || s.type != type || n.kind() != value.kind()) return false;
    if (!n.is_float()) return n.to_int() == value.to_int();
    return std::bit_cast<uint64_t>(n.to_double()) == std::bit_cast<uint64_t>(value.to_double());
  };
  const FusedStep* const steps = group_.params.steps;
  const auto at = std::find_if(steps, steps + group_.params.count, same);
  if (at != steps + group_.params.count) return int(at - steps);
  return step({.kind = FusedKind::Number, .type = type, .numbers = {value}});
}

/// The value of what lies there, as `type`; kFull where it cannot be had.
int GroupBuilder::read(const View& v, DType type) {
  if (v.kind == View::Kind::Number) return number(v.number, type);
  const auto view = fitted(v);
  if (!view) return kFull;
  for (const FusedGroup::Place& p : group_.places) {
    if (same_place(p.view, *view)) return cast(p.value, type);
    if (p.written && overlap(p.view, *view)) return kFull;
  }
  if (group_.inputs.size() == kFusedInputs) return kFull;
  const int value = step({.kind = FusedKind::Load, .type = v.dtype, .operand = {uint8_t(group_.inputs.size())}});
  group_.places.push_back({.view = *view, .value = value});
  group_.inputs.push_back(*view);
  return cast(value, type);
}

bool GroupBuilder::write(const View& v, int value, size_t index) {
  const auto view = fitted(v);
  if (!view || value < 0 || (value = cast(value, v.dtype)) < 0) return false;
  FusedGroup::Place* there = nullptr;
  for (FusedGroup::Place& p : group_.places) {
    if (same_place(p.view, *view)) there = &p;
    else if (overlap(p.view, *view)) return false;
  }
  if (!there) there = &group_.places.emplace_back(FusedGroup::Place{.view = *view});
  there->value = value, there->written = true, there->writer = index;
  return true;
}

/// The types are those of the eager kernels: cpu_kernels/pointwise/unary.cpp, binary.cpp, ternary.cpp.
int GroupBuilder::compute(const Call& call) {
  const DType out = call.result().dtype;
  FusedStep s;
  const auto take = [&](int k, const View& v, DType type) {
    const int value = read(v, type);
    s.operand[k] = uint8_t(value);
    return value >= 0;
  };
  const auto result = [&](bool test, DType type) {
    s.type = test ? kBool : type;
    return step(s);
  };
  if (is<entry::Copy>(call)) {
    const View& x = call[&entry::Copy::x];
    return read(x, x.kind == View::Kind::Number ? out : x.dtype);
  }
  if (is<entry::Fill>(call)) return number(call.params<Scalar>(), out);
  if (is<Unary>(call)) {
    const auto p = call.params<UnaryParams>();
    const DType type = compute_type(call[&Unary::x].dtype);
    s.kind = FusedKind::Unary, s.op = uint8_t(p.op), s.numbers[0] = p.a, s.numbers[1] = p.b, s.numbers[2] = p.c;
    return take(0, call[&Unary::x], type) ? result(gives_bool(p.op), type) : kFull;
  }
  if (is<Binary>(call)) {
    const auto p = call.params<BinaryParams>();
    const View &a = call[&Binary::a], &b = call[&Binary::b];
    const DType type = compute_type(a.dtype == b.dtype ? a.dtype : promote_types(a.dtype, b.dtype));
    s.kind = FusedKind::Binary, s.op = uint8_t(p.op);
    s.numbers[0] = p.alpha, s.numbers[1] = p.beta, s.numbers[2] = p.gamma;
    return take(0, a, type) && take(1, b, type) ? result(gives_bool(p.op), type) : kFull;
  }
  const auto p = call.params<TernaryParams>();
  const bool where = p.op == TernaryOp::Where;
  const View &a = call[&Ternary::a], &b = call[&Ternary::b], &c = call[&Ternary::c];
  const DType common = b.dtype == c.dtype ? b.dtype : promote_types(b.dtype, c.dtype);
  const DType type = compute_type(where || a.dtype == common ? common : promote_types(a.dtype, common));
  s.kind = FusedKind::Ternary, s.op = uint8_t(p.op), s.numbers[0] = p.alpha;
  return take(0, a, where ? kBool : type) && take(1, b, type) && take(2, c, type) ? result(false, type) : kFull;
}

/// y = keep ? x / (1 - p) : 0, as cpu_kernels/random/dropout.cpp computes it; the mask, where it is wanted, is written here.
int GroupBuilder::drop(const Call& call, size_t index) {
  const auto p = call.params<DropoutParams>();
  const View &mask = call[&Dropout::mask], &x = call[&Dropout::x], &base = call[&Dropout::base];
  const DType type = compute_type(call[&Dropout::y].dtype);
  const int value = read(x, type);
  int offset = kFull;
  if (base.kind == View::Kind::Memory && (offset = read(base, kInt64)) < 0) return kFull;
  FusedStep s{.kind = FusedKind::Keep, .type = kBool};
  s.numbers[0] = p.p, s.numbers[1] = int64_t(p.seed), s.numbers[2] = int64_t(p.offset);
  s.operand[0] = uint8_t(offset < 0 ? group_.params.count : offset);
  const int keep = step(s), scale = number(Philox::keep_scale(p.p), type), zero = number(0.0, type);
  if (value < 0 || keep < 0 || scale < 0 || zero < 0) return kFull;
  if (mask.kind == View::Kind::Memory && !write(mask, keep, index)) return kFull;
  const int scaled = step({.kind = FusedKind::Binary,
                           .op = uint8_t(BinaryOp::Mul),
                           .type = type,
                           .operand = {uint8_t(value), uint8_t(scale)},
                           .numbers = {1}});
  if (scaled < 0) return kFull;
  return step({.kind = FusedKind::Ternary,
               .op = uint8_t(TernaryOp::Where),
               .type = type,
               .operand = {uint8_t(keep), uint8_t(scaled), uint8_t(zero)},
               .numbers = {1}});
}

bool GroupBuilder::add(const Call& call, size_t index) {
  if (is_row_call(call)) return add_rows(call, index);
  from_ = call.result().shape;
  const int64_t elements = numel_of(from_), all = numel_of(group_.shape);
  const bool drops = is<Dropout>(call);
  if (elements != all && (!row_ || elements * row_ != all || drops)) return false;
  const int value = drops ? drop(call, index) : compute(call);
  return value >= 0 && write(call.result(), value, index);
}

bool is_pointwise(const Call& call) {
  if (!is<Unary, Binary, Ternary, entry::Copy, entry::Fill, Dropout>(call)) return false;
  const View& out = call.result();
  if (out.kind != View::Kind::Memory || out.block < 0 || (is<Binary>(call) && divides_integers(call))) return false;
  for (const Operand& o : call.operands) {
    if (o.kind != TraceArg::Kind::View || o.views[0].kind != View::Kind::Memory) continue;
    if (o.views[0].device != out.device || !in_order(out, expanded(o.views[0], out.shape))) return false;
  }
  return true;
}

std::optional<FusedGroup> fused_group(std::span<const Call* const> calls) {
  int64_t row = 0, elements = 0;
  for (const Call* call : calls) {
    if (const int64_t length = row_of(*call); length && row && length != row) return {};
    else row = std::max(row, length);
    elements = std::max(elements, numel_of(elements_of(*call)));
  }
  std::vector<Shape> tried;
  for (const Call* of : calls) {
    const Shape& shape = elements_of(*of);
    if (numel_of(shape) != elements || std::find(tried.begin(), tried.end(), shape) != tried.end()) continue;
    if (tried.size() == 4) break;
    tried.push_back(shape);
    GroupBuilder builder(shape, row);
    size_t i = 0;
    while (builder.fits() && i < calls.size() && builder.add(*calls[i], i)) ++i;
    if (i == calls.size()) return builder.take();
  }
  return {};
}

void remove_dead_steps(FusedParams& p, std::vector<View>& inputs) {
  bool live[kFusedSteps] = {};
  for (int i = int(p.count); i-- > 0;) {
    const FusedStep& s = p.steps[i];
    live[i] |= s.kind == FusedKind::Store;
    if (!live[i]) continue;
    for (int k = 0; k < s.arity(); ++k) live[s.operand[k]] = true;
    if (s.kind == FusedKind::Keep) live[s.operand[0]] = true;
  }
  FusedParams out;
  out.row_dims = p.row_dims;
  std::vector<View> used;
  uint8_t place[kFusedSteps] = {};
  for (int i = 0; i < int(p.count); ++i) {
    if (!live[i]) continue;
    FusedStep s = p.steps[i];
    place[i] = uint8_t(out.count);
    if (s.kind == FusedKind::Load) {
      used.push_back(inputs[s.operand[0]]);
      s.operand[0] = uint8_t(used.size() - 1);
    } else {
      const int values = s.kind == FusedKind::Keep ? 1 : s.arity();
      for (int k = 0; k < values; ++k) s.operand[k] = place[s.operand[k]];
    }
    out.steps[out.count++] = s;
  }
  p = out, inputs = std::move(used);
}

void keep_stores(Call& call, const std::vector<bool>& blocks) {
  auto params = call.params<FusedParams>();
  std::vector<View> kept;
  for (FusedStep& s : std::span(params.steps, size_t(params.count))) {
    if (s.kind != FusedKind::Store) continue;
    const View& out = call[&entry::Fused::outs][s.operand[1]];
    s.operand[1] = uint8_t(kept.size());
    if (blocks[size_t(out.block)]) kept.push_back(out);
    else s = {.kind = FusedKind::Number};  // that nobody uses
  }
  call[&entry::Fused::outs] = std::move(kept);
  remove_dead_steps(params, call[&entry::Fused::ins]);
  set_params<entry::Fused>(call, params);
}

}  // namespace tapir::inline v0::ir
