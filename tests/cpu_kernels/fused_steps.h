#pragma once
#include <vector>

#include <tapir/core/fused.h>
#include <tapir/tapir.h>

namespace tapir_tests {

using namespace tapir;

/// Writes steps down; each returns its value.
struct Steps {
  FusedParams params;
  std::vector<TensorView> ins, outs;

  uint8_t add(const FusedStep& s) {
    params.steps[params.count] = s;
    return uint8_t(params.count++);
  }
  uint8_t load(const Tensor& x) {
    ins.push_back(x);
    return add({.type = x.dtype(), .operand = {uint8_t(ins.size() - 1)}});
  }
  uint8_t number(Scalar v, DType type) { return add({.kind = FusedKind::Number, .type = type, .numbers = {v}}); }
  uint8_t cast(uint8_t x, DType type) { return add({.kind = FusedKind::Cast, .type = type, .operand = {x}}); }
  uint8_t unary(UnaryOp op, uint8_t x, DType type = kFloat32) {
    return add({.kind = FusedKind::Unary, .op = uint8_t(op), .type = type, .operand = {x}});
  }
  uint8_t binary(BinaryOp op, uint8_t a, uint8_t b, DType type = kFloat32) {
    return add({.kind = FusedKind::Binary, .op = uint8_t(op), .type = type, .operand = {a, b}, .numbers = {1}});
  }
  uint8_t where(uint8_t mask, uint8_t a, uint8_t b, DType type) {
    return add({.kind = FusedKind::Ternary,
                .op = uint8_t(TernaryOp::Where),
                .type = type,
                .operand = {mask, a, b},
                .numbers = {1}});
  }
  uint8_t keep(double p) {
    return add({.kind = FusedKind::Keep, .type = kBool, .operand = {uint8_t(params.count)}, .numbers = {p, 9, 11}});
  }
  void store(uint8_t value, const Tensor& out) {
    outs.push_back(out);
    add({.kind = FusedKind::Store, .type = out.dtype(), .operand = {value, uint8_t(outs.size() - 1)}});
  }
  void run() {
    const Tensor t = zeros({1});
    backend(t).fused(context(t), {.outs = outs, .ins = ins, .params = &params});
  }
};

}  // namespace tapir_tests
