#pragma once
// Fused calls written by hand, and what they stand for: the same steps as calls of the device's own entries.
#include <tapir/core/fused.h>
#include <tapir/tapir.h>

#include <cstring>
#include <string>
#include <vector>

#include "cuda.h"

namespace tapir_tests {
using namespace tapir;

/// Makes FusedParams step by step; each function gives the number of its value.
struct Steps {
  FusedParams params;
  uint8_t add(FusedStep s) {
    params.steps[params.count] = s;
    return uint8_t(params.count++);
  }
  uint8_t load(int input, DType t) { return add({.kind = FusedKind::Load, .type = t, .operand = {uint8_t(input)}}); }
  uint8_t number(Scalar v, DType t) { return add({.kind = FusedKind::Number, .type = t, .numbers = {v}}); }
  uint8_t cast(uint8_t x, DType t) { return add({.kind = FusedKind::Cast, .type = t, .operand = {x}}); }
  DType type(uint8_t v) const { return params.steps[v].type; }
  uint8_t unary(UnaryOp op, uint8_t x, Scalar a = 0.0, Scalar b = 0.0, Scalar c = 0.0) {
    const bool tests = op >= UnaryOp::LogicalNot && op <= UnaryOp::SignBit;
    return add({FusedKind::Unary, uint8_t(op), tests ? kBool : type(x), {x}, {a, b, c}});
  }
  uint8_t binary(BinaryOp op, uint8_t x, uint8_t y, Scalar a = 1, Scalar b = 0, Scalar c = 0) {
    const bool compares = op >= BinaryOp::Eq && op <= BinaryOp::IsClose;
    return add({FusedKind::Binary, uint8_t(op), compares ? kBool : type(x), {x, y}, {a, b, c}});
  }
  uint8_t ternary(TernaryOp op, uint8_t x, uint8_t y, uint8_t z, Scalar a = 1) {
    return add({FusedKind::Ternary, uint8_t(op), type(y), {x, y, z}, {a}});
  }
  uint8_t keep(double p, int64_t seed, int64_t offset, int base = -1) {
    const auto own = uint8_t(params.count);
    return add({FusedKind::Keep, 0, kBool, {base < 0 ? own : uint8_t(base)}, {p, seed, offset}});
  }
  uint8_t reduce(ReduceOp op, uint8_t x) { return add({FusedKind::Reduce, uint8_t(op), type(x), {x}}); }
  void store(uint8_t x, int output) { add({FusedKind::Store, 0, type(x), {x, uint8_t(output)}}); }
};

inline std::vector<TensorView> views_of(const std::vector<Tensor>& list) { return {list.begin(), list.end()}; }

inline void run_fused(const FusedParams& params, const std::vector<Tensor>& outs, const std::vector<Tensor>& ins) {
  const auto o = views_of(outs), i = views_of(ins);
  backend(kCUDA).fused(context(kCUDA), {o, i, &params});
}

/// The mask of a call that draws: by dropout of ones.
inline Tensor mask_of(const FusedStep& s, const Shape& shape, const Tensor& base) {
  const Tensor x = ones(shape, {.device = kCUDA}), y = empty_like(x),
               mask = empty(shape, {.dtype = kBool, .device = kCUDA});
  const DropoutParams p{s.numbers[0].to_double(), uint64_t(s.numbers[1].to_int()), uint64_t(s.numbers[2].to_int())};
  backend(kCUDA).dropout(context(kCUDA), {y, mask, x, base, p});
  return mask;
}

/// Every step by an entry of its own, over whole tensors; stores are seen by no load.
inline void run_steps(const FusedParams& params, const std::vector<Tensor>& outs, const std::vector<Tensor>& ins) {
  NoGrad guard;
  const BackendTable& table = backend(kCUDA);
  const Shape shape = outs[0].shape();
  std::vector<Tensor> values;
  for (int i = 0; i < int(params.count); ++i) {
    const FusedStep& s = params.steps[i];
    const auto x = [&](int k) { return TensorView(values[s.operand[k]]); };
    Tensor v = empty(shape, {.dtype = s.type, .device = kCUDA});
    Context& ctx = context(kCUDA);
    switch (s.kind) {
      case FusedKind::Load: table.copy(ctx, {v, TensorView(ins[s.operand[0]]).expand(shape)}); break;
      case FusedKind::Number: table.fill(ctx, {v, s.numbers[0]}); break;
      case FusedKind::Cast: table.copy(ctx, {v, x(0)}); break;
      case FusedKind::Unary: table.unary(ctx, {v, x(0), s.unary()}); break;
      case FusedKind::Binary: table.binary(ctx, {v, x(0), x(1), s.binary()}); break;
      case FusedKind::Ternary: table.ternary(ctx, {v, x(0), x(1), x(2), s.ternary()}); break;
      case FusedKind::Keep: {
        Tensor base;
        if (s.operand[0] != i) base = values[s.operand[0]].flatten().narrow(0, 0, 1).reshape({});
        v = mask_of(s, shape, base);
        break;
      }
      case FusedKind::Reduce: {
        Shape reduced = shape;
        uint32_t dims = 0;
        for (int64_t d = shape.size() - params.row_dims; d < shape.size(); ++d) reduced[d] = 1, dims |= 1u << d;
        const Tensor row = empty(reduced, {.dtype = s.type, .device = kCUDA});
        table.reduce(ctx, {row, x(0), {ReduceOp(s.op), dims}});
        v = expand(row, shape).contiguous();
        break;
      }
      case FusedKind::Store: break;
    }
    values.push_back(v);
  }
  for (int i = 0; i < int(params.count); ++i) {
    const FusedStep& s = params.steps[i];
    if (s.kind != FusedKind::Store) continue;
    const Tensor& to = outs[s.operand[1]];
    TensorView out = to, from = values[s.operand[0]];
    for (int64_t d = 0; d < out.rank; ++d)  // along a row it is one number
      if (out.strides[d] == 0) out.sizes[d] = from.sizes[d] = 1;
    backend(kCUDA).copy(context(kCUDA), {out, from});
  }
}

/// The first difference, or nothing. tolerance 0: bit by bit, but for the bits of a NaN, where the compiler chooses an operand.
inline std::string difference(const Tensor& a, const Tensor& b, double tolerance = 0) {
  const Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  const int64_t size = size_of(x.dtype());
  if (std::memcmp(x.data_ptr(), y.data_ptr(), size_t(x.numel() * size)) == 0) return "";
  const auto p = x.to(kFloat64).to_vector<double>(), q = y.to(kFloat64).to_vector<double>();
  for (size_t i = 0; i < p.size(); ++i) {
    const bool bits = std::memcmp(static_cast<char*>(x.data_ptr()) + int64_t(i) * size,
                                  static_cast<char*>(y.data_ptr()) + int64_t(i) * size, size_t(size)) == 0;
    const bool near = tolerance > 0 && std::abs(p[i] - q[i]) <= tolerance * (1 + std::abs(p[i]));
    const bool same = bits || near || (std::isnan(p[i]) && std::isnan(q[i]));
    if (!same) return tapir::format("{} at {}: steps {}, fused {}", name_of(x.dtype()), int64_t(i), p[i], q[i]);
  }
  return "";
}

/// Memory and views on it. Two copies of them are alike.
struct Operands {
  struct Place {
    size_t base;
    Shape shape;
    Strides strides;
    int64_t offset;
  };
  std::vector<Tensor> bases;
  std::vector<Place> outs, ins;

  /// New memory of n elements, with some that are special.
  size_t memory(DType t, int64_t n, int seed) {
    std::vector<double> values(size_t(std::max<int64_t>(n, 1)));
    uint32_t state = uint32_t(seed) * 747796405u + 1;
    for (double& v : values) {
      state = state * 1664525u + 1013904223u;
      v = double(int32_t(state >> 8) % 4000) / 500;
    }
    const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1.0, -1.0};
    for (size_t i = size_t(seed) % 5, k = 0; is_floating(t) && i < values.size() && k < 7; i += 9)
      values[i] = special[k++];
    bases.push_back(tensor(values).to(kFloat64).to(t).cuda());
    return bases.size() - 1;
  }
  /// Operands without gaps, dimensions in `order` from the outermost in memory to the innermost; those in `repeated` have stride 0.
  Place place(size_t base, const Shape& shape, std::vector<int> order, std::vector<int> repeated, int64_t offset) {
    Strides strides = shape;
    if (order.empty())
      for (int d = 0; d < int(shape.size()); ++d) order.push_back(d);
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const bool repeats = std::find(repeated.begin(), repeated.end(), order[i]) != repeated.end();
      strides[order[i]] = repeats ? 0 : step;
      step *= repeats ? 1 : shape[order[i]];
    }
    return {base, shape, strides, offset};
  }
  Operands& in(DType t, const Shape& shape, std::vector<int> order = {}, std::vector<int> repeated = {},
               int64_t offset = 0) {
    ins.push_back(place(memory(t, numel_of(shape) + offset, int(3 + ins.size())), shape, order, repeated, offset));
    return *this;
  }
  Operands& out(DType t, const Shape& shape, std::vector<int> order = {}, std::vector<int> repeated = {},
                int64_t offset = 0) {
    outs.push_back(place(memory(t, numel_of(shape) + offset, 77), shape, order, repeated, offset));
    return *this;
  }
  /// An output in the very place of an input.
  Operands& out_is_in(size_t input) {
    outs.push_back(ins[input]);
    return *this;
  }
  std::vector<Tensor> views(const std::vector<Place>& places, const std::vector<Tensor>& from) const {
    std::vector<Tensor> list;
    for (const Place& p : places) list.push_back(as_strided(from[p.base], p.shape, p.strides, p.offset));
    return list;
  }
  std::vector<Tensor> copies() const {
    std::vector<Tensor> list;
    for (const Tensor& t : bases) list.push_back(t.clone());
    return list;
  }
};

/// Runs the steps apart and as one call on copies of the operands; the first difference in any memory, or nothing.
inline std::string differs(const Steps& steps, const Operands& operands, double tolerance = 0) {
  const std::vector<Tensor> a = operands.copies(), b = operands.copies();
  run_steps(steps.params, operands.views(operands.outs, a), operands.views(operands.ins, a));
  run_fused(steps.params, operands.views(operands.outs, b), operands.views(operands.ins, b));
  for (size_t i = 0; i < a.size(); ++i)
    if (const std::string text = difference(a[i], b[i], tolerance); !text.empty())
      return "memory " + std::to_string(i) + ": " + text;
  return "";
}

}  // namespace tapir_tests
