#pragma once
// Note [Fused calls]
// A straight list of steps that a kernel runs for each element: one pass over memory in place of many. Step i makes value i, which later
// steps name as an operand; a Store makes none. It gives bit by bit what the entries do that it stands for: operands of Unary, Binary and
// Ternary have the type that is computed in (never a 16-bit float: those are cast before and after, as they would be rounded in memory).
// The elements are those of the outputs, which have one shape; inputs broadcast to it. An output may be an input's very view: a store
// is seen by no load. Other than so they do not overlap.
// Where steps reduce, the last `row_dims` dimensions of the shape are a row. A Store of a row's number goes to an output with stride 0
// along the row. Such calls give what they stand for within rounding.
#include <cstdint>

#include "backend.h"

namespace tapir::inline v0 {

enum class FusedKind : uint8_t {
  Load,     // operand[0]: the input; as it lies in memory
  Number,   // numbers[0]
  Cast,     // of operand[0] to `type`, as BackendTable::copy does
  Unary,    // op: UnaryOp; numbers: a, b, c
  Binary,   // op: BinaryOp; numbers: alpha, beta, gamma. No integer division, which would have to report zeros
  Ternary,  // op: TernaryOp; numbers: alpha
  Keep,  // bool: what dropout keeps; numbers: p, seed, offset (bits); operand[0]: an int64 value added to the offset, or this step
  Store,   // of value operand[0] to output operand[1]
  Reduce,  // of value operand[0] over each row; op: ReduceOp Sum or Max (NaN wins). One number a row, for any later step
};

struct FusedStep {
  FusedKind kind = FusedKind::Load;
  uint8_t op = 0;
  DType type = kFloat32;  // of the value
  uint8_t operand[3] = {};
  Scalar numbers[3] = {};

  UnaryParams unary() const {
    return {UnaryOp(op), numbers[0].to_double(), numbers[1].to_double(), numbers[2].to_double()};
  }
  BinaryParams binary() const { return {BinaryOp(op), numbers[0], numbers[1], numbers[2]}; }
  TernaryParams ternary() const { return {TernaryOp(op), numbers[0]}; }
  /// How many values it takes.
  int arity() const {
    switch (kind) {
      case FusedKind::Load:
      case FusedKind::Number:
      case FusedKind::Keep: return 0;
      case FusedKind::Binary: return 2;
      case FusedKind::Ternary: return 3;
      default: return 1;
    }
  }
};

inline constexpr int kFusedSteps = 64, kFusedInputs = 24, kFusedOutputs = 16;

struct FusedParams {
  int64_t count = 0;
  int64_t row_dims = 0;  // 0: no step reduces
  FusedStep steps[kFusedSteps];
};

}  // namespace tapir::inline v0
