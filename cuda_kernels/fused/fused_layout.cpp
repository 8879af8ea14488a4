#include "fused_layout.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "../../core/dispatch.h"
#include "../../core/formulas/binary.h"
#include "../../core/formulas/ternary.h"
#include "../../core/formulas/unary.h"
#include "../../core/generator.h"
#include "../divider.h"

namespace tapir::inline v0::cuda_kernels {

namespace {

constexpr int64_t kWarpRow = 1024;  // elements: a longer row is a block's work

bool draws(const FusedParams& p) {
  return std::any_of(p.steps, p.steps + p.count, [](const FusedStep& s) { return s.kind == FusedKind::Keep; });
}

}  // namespace

FusedLayout::FusedLayout(std::span<const TensorView> outs, std::span<const TensorView> ins, const FusedParams& params)
    : operands(int(outs.size() + ins.size())), outputs(int(outs.size())), rows(params.row_dims > 0) {
  check_internal(params.count <= kFusedSteps && outputs <= kFusedOutputs && int(ins.size()) <= kFusedInputs,
                 "[fused] expected at most {} steps, got {}", kFusedSteps, params.count);
  const TensorView& first = outs[0];
  check_internal(params.row_dims <= first.rank, "[fused] expected rows of at most {} dimensions, got {}", first.rank,
                 params.row_dims);
  for (int k = 0; k < operands; ++k) {
    const TensorView& v = k < outputs ? outs[size_t(k)] : ins[size_t(k - outputs)];
    type[k] = v.dtype, data[k] = v.data;
  }
  const bool ordered = draws(params);
  const int64_t outer = rows ? first.rank - params.row_dims : 0;
  join(outs, ins, outer, first.rank, !ordered);
  columns = rank;
  for (int d = 0; d < columns; ++d) line *= sizes[d];
  join(outs, ins, 0, outer, !ordered);
  for (int d = columns; d < rank; ++d) count_rows *= sizes[d];
  choose_places();
  choose_width(ordered);
  wide = std::max({packs, count_rows}) >= (int64_t(1) << 31);
  block = rows && line > kWarpRow;
}

/// Adds the dimensions [from, to) of the shape, the innermost first: extents of 1 are left out, neighbours that are one merged.
void FusedLayout::join(std::span<const TensorView> outs, std::span<const TensorView> ins, int64_t from, int64_t to,
                       bool reorder) {
  const TensorView& shape = outs[0];
  const int first = rank;
  for (int64_t d = to; d-- > from;) {
    if (shape.sizes[d] == 1) continue;
    for (int k = 0; k < operands; ++k) {
      const TensorView& v = k < outputs ? outs[size_t(k)] : ins[size_t(k - outputs)];
      const int64_t own = d - (shape.rank - v.rank);
      strides[k][rank] = own < 0 || v.sizes[own] == 1 ? 0 : v.strides[own];
    }
    sizes[rank++] = shape.sizes[d];
  }
  if (reorder) order(first);
  int kept = first;
  for (int d = first + 1; d < rank; ++d) {
    bool one = true;
    for (int k = 0; k < operands; ++k) one &= strides[k][d] == strides[k][kept] * sizes[kept];
    if (one) {
      sizes[kept] *= sizes[d];
      continue;
    }
    ++kept;
    sizes[kept] = sizes[d];
    for (int k = 0; k < operands; ++k) strides[k][kept] = strides[k][d];
  }
  if (rank > first) rank = kept + 1;
}

/// Dimensions from `first` on in the order of memory: the first operand's whose strides differ decides, strides of 0 are outside.
void FusedLayout::order(int first) {
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v > 0 ? v : INT64_MAX; };
  const auto inside = [&](int i, int j) {
    for (int k = 0; k < operands; ++k)
      if (const int64_t a = magnitude(strides[k][i]), b = magnitude(strides[k][j]); a != b) return a < b;
    return false;
  };
  for (int i = first + 1; i < rank; ++i)
    for (int j = i; j > first && inside(j, j - 1); --j) {
      std::swap(sizes[j - 1], sizes[j]);
      for (int k = 0; k < operands; ++k) std::swap(strides[k][j - 1], strides[k][j]);
    }
}

/// As if one element was taken at a time.
void FusedLayout::choose_places() {
  for (int k = 0; k < operands; ++k) {
    bool one = true, row = true;
    for (int d = 0; d < rank; ++d) one &= strides[k][d] == 0, row &= d >= columns || strides[k][d] == 0;
    flat[k] = !rows && (rank == 0 || (rank == 1 && strides[k][0] == 1));
    if (!rows && rank > 1) {
      int64_t next = 1;
      flat[k] = true;
      for (int d = 0; d < rank; ++d) flat[k] &= strides[k][d] == next, next *= sizes[d];
    }
    step[k] = columns > 0 ? strides[k][0] : 0;
    if (k < outputs) place[k] = rows && columns > 0 && row ? Place::Row : Place::Spread;
    else place[k] = one ? Place::One : rows && row ? Place::Row : Place::Spread;
  }
}

/// May W elements of the operand be taken from one place on?
bool FusedLayout::is_pack(int k, int w) const {
  const int64_t size = size_of(type[k]), together = std::min<int64_t>(16, w * size);
  if (step[k] != 1 || reinterpret_cast<uintptr_t>(data[k]) % uintptr_t(together) != 0) return false;
  for (int d = 1; d < rank; ++d)
    if (strides[k][d] * size % together != 0) return false;
  return true;
}

/// Sets width and places: as wide as 16 bytes of the smallest floats are, less where there are many operands to be held, 1 where an
/// output is no line of packs.
void FusedLayout::choose_width(bool ordered) {
  const bool narrow = std::any_of(type, type + operands, [](DType t) { return size_of(t) == 2; }) ||
                      std::all_of(type, type + operands, [](DType t) { return size_of(t) == 1; });
  width = operands <= 8 && narrow ? 8 : operands <= 16 ? 4 : 2;
  const auto fits = [&] {
    if (columns == 0 || sizes[0] < width || (columns > 1 && sizes[0] % width != 0)) return false;
    if (rows && ordered && line % width != 0) return false;
    bool any = false;
    for (int k = 0; k < operands; ++k) {
      if (place[k] != Place::Spread) continue;
      if (k < outputs && !is_pack(k, width)) return false;
      any |= is_pack(k, width);
    }
    return any;
  };
  while (width > 1 && !fits()) width /= 2;
  if (ordered && width == 2) width = 1;  // words come by four
  packs = line;
  if (columns > 0) {
    packs = line / sizes[0] * ((sizes[0] + width - 1) / width);
    sizes[0] = (sizes[0] + width - 1) / width;
  }
  for (int k = 0; k < operands; ++k) {
    if (place[k] == Place::Spread && step[k] == 0 && k >= outputs) place[k] = Place::Same;
    if (place[k] == Place::Spread && width > 1 && is_pack(k, width)) place[k] = Place::Pack;
    if (columns > 0) strides[k][0] *= width;
  }
}

// ---- numbers ----

namespace {

template <class T> uint64_t bits_of(T v) {
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<uint64_t>(v);
  else if constexpr (std::is_same_v<T, float>) return std::bit_cast<uint32_t>(v);
  else if constexpr (is_half<T>) return v.bits;
  else return uint64_t(v);
}
template <class T> void add(FusedNumbers& to, T v) {
  FusedNumber& n = to.of[to.count++];
  n.type = dtype_of<T>, n.bits = bits_of(v);
  if constexpr (!is_half<T>) {
    if (n.bits == bits_of(T(0))) n.kind = FusedNumber::Kind::Zero;
    else if (n.bits == bits_of(T(1))) n.kind = FusedNumber::Kind::One;
    else if (n.bits == bits_of(T(-1))) n.kind = FusedNumber::Kind::MinusOne;
  }
}

template <class Op> bool has_formula(Op op, DType type) {
  using formulas::Family;
  switch (formulas::family_of(op)) {
    case Family::None: return false;
    case Family::All:
    case Family::Power:
    case Family::Test:
    case Family::Compare:
    case Family::Select: return true;
    case Family::Integers:
    case Family::Bitwise: return !is_floating(type);
    case Family::Shift: return is_integral(type);
    default: return is_floating(type);
  }
}

}  // namespace

int formula_of(const FusedStep& s, DType type) {
  if (s.kind == FusedKind::Unary) return int(is_floating(type) ? formulas::form_of(s.unary()) : s.unary().op);
  if (s.kind == FusedKind::Binary) return int(formulas::form_of(s.binary()));
  return s.op;
}

DType computes_in(const FusedParams& params, int i) {
  const FusedStep& s = params.steps[i];
  const auto type_of = [&](int k) { return params.steps[s.operand[k]].type; };
  DType type = s.type;
  bool known = true;
  if (s.kind == FusedKind::Unary) type = type_of(0), known = has_formula(UnaryOp(formula_of(s, type)), type);
  if (s.kind == FusedKind::Binary) type = type_of(0), known = has_formula(BinaryOp(formula_of(s, type)), type);
  if (s.kind == FusedKind::Ternary) type = type_of(1), known = has_formula(TernaryOp(s.op), type);
  if (s.kind == FusedKind::Reduce) known = ReduceOp(s.op) == ReduceOp::Sum || ReduceOp(s.op) == ReduceOp::Max;
  if (s.kind != FusedKind::Unary && s.kind != FusedKind::Binary && s.kind != FusedKind::Ternary &&
      s.kind != FusedKind::Reduce)
    return type;
  if (!known || type != compute_type(type)) fail_dtype("fused", type);
  return type;
}

FusedNumbers numbers_of(const FusedStep& s, DType type) {
  FusedNumbers to;
  if (s.kind == FusedKind::Number) for_all("fused", s.type, [&]<class T>() { add(to, cast<T>(s.numbers[0])); });
  if (s.kind == FusedKind::Keep)
    for (const int64_t v :
         {s.numbers[1].to_int(), s.numbers[2].to_int(), int64_t(Philox::drop_limit(s.numbers[0].to_double()))})
      to.of[to.count++] = {.type = kInt64, .bits = uint64_t(v)};
  if (s.kind != FusedKind::Unary && s.kind != FusedKind::Binary && s.kind != FusedKind::Ternary) return to;
  for_compute("fused", type, [&]<class T>() {
    if (s.kind == FusedKind::Unary) {
      const auto n = formulas::numbers<T>(UnaryOp(formula_of(s, type)), s.unary());
      add(to, n.a), add(to, n.b), add(to, n.c), add(to, n.power);
    } else if (s.kind == FusedKind::Binary) {
      const auto n = formulas::numbers<T>(BinaryOp(formula_of(s, type)), s.binary());
      add(to, n.alpha), add(to, n.beta), add(to, n.gamma), add(to, n.rtol), add(to, n.atol);
    } else {
      add(to, formulas::numbers<T>(TernaryOp(s.op), s.ternary()).alpha);
    }
  });
  return to;
}

// ---- what a launch is given, and by what its kernel is found ----

FusedCall call_of(const FusedLayout& l, const FusedParams& params) {
  FusedCall call;
  std::vector<uint64_t>& words = call.arguments;
  words.reserve(size_t(l.operands + number_word(l)) + 16);
  for (int k = 0; k < l.operands; ++k) words.push_back(reinterpret_cast<uintptr_t>(l.data[k]));
  for (const int64_t n : {l.line, l.packs, l.count_rows}) words.push_back(uint64_t(n));
  for (int d = 0; d < l.rank; ++d) {
    const Divider by(l.wide ? 1 : uint32_t(l.sizes[d]));
    words.push_back(l.wide ? uint64_t(l.sizes[d]) : uint64_t(by.magic) << 32 | by.d);
    words.push_back(by.shift);
  }
  for (int k = 0; k < l.operands; ++k) {
    for (int d = 0; d < l.rank; ++d) words.push_back(uint64_t(l.strides[k][d]));
    words.push_back(uint64_t(l.step[k]));
  }
  std::string& signature = call.signature;
  signature.reserve(size_t(16 + 3 * l.operands + 12 * params.count));
  const auto put = [&](auto... v) { (signature.push_back(char(v)), ...); };
  put(l.operands, l.outputs, l.rank, l.columns, l.width, l.rows, l.block, l.wide);
  for (int k = 0; k < l.operands; ++k) put(l.place[k], l.flat[k], l.type[k]);
  for (int i = 0; i < int(params.count); ++i) {
    const FusedStep& s = params.steps[i];
    const DType type = computes_in(params, i);
    put(s.kind, formula_of(s, type), s.type, s.operand[0], s.operand[1], s.operand[2]);
    const FusedNumbers n = numbers_of(s, type);
    for (int k = 0; k < n.count; ++k) {
      put(n.of[k].kind);
      if (n.of[k].kind == FusedNumber::Kind::Argument) words.push_back(n.of[k].bits);
    }
  }
  return call;
}

}  // namespace tapir::inline v0::cuda_kernels
