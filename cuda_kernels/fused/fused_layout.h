#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../../core/fused.h"

// How the operands of a fused call lie: what its kernel's text depends on, and what that kernel is given when it runs. No CUDA in it.
namespace tapir::inline v0::cuda_kernels {

/// Where W neighbours of an operand are, along the innermost dimension.
enum class Place : uint8_t {
  Pack,    // in a line that loads of up to 16 bytes may take
  Spread,  // a stride apart
  Same,    // all in one element
  Row,     // in the one element that the whole row has (rows alone)
  One,     // in the one element that the operand has
};

/// Operands are outputs, then inputs. Dimension 0 is the innermost; those that all operands step through evenly are one. The first
/// `columns` dimensions make up a row; without reductions all do.
struct FusedLayout {
  FusedLayout(std::span<const TensorView> outs, std::span<const TensorView> ins, const FusedParams& params);

  int operands = 0, outputs = 0;
  int rank = 0, columns = 0;
  int width = 1;  // elements that a thread takes at once
  bool rows = false;
  bool block = false;                                       // a row is a block's work, not a warp's
  bool wide = false;                                        // elements are counted in 64 bits
  int64_t line = 1;                                         // elements of a row, or of all
  int64_t packs = 1;                                        // of a row, or of all
  int64_t count_rows = 1;                                   // 1 without reductions
  int64_t sizes[kMaxRank];                                  // dimension 0 in packs
  int64_t strides[kFusedOutputs + kFusedInputs][kMaxRank];  // in elements; of dimension 0 from pack to pack
  int64_t step[kFusedOutputs + kFusedInputs];               // from an element of a pack to the next
  Place place[kFusedOutputs + kFusedInputs];
  bool flat[kFusedOutputs + kFusedInputs];  // element i lies at offset i
  DType type[kFusedOutputs + kFusedInputs];
  void* data[kFusedOutputs + kFusedInputs];

 private:
  void join(std::span<const TensorView> outs, std::span<const TensorView> ins, int64_t from, int64_t to, bool reorder);
  void order(int first);
  bool is_pack(int k, int width) const;
  void choose_width(bool draws);
  void choose_places();
};

/// A number of a step: a word among the kernel's arguments, or where it is one of a few a part of its text, which compilers simplify.
struct FusedNumber {
  enum class Kind : uint8_t { Argument, Zero, One, MinusOne };
  DType type = kFloat32;
  Kind kind = Kind::Argument;
  uint64_t bits = 0;
};
/// The numbers of a step, as the formulas take them (numbers() of core/formulas/): at most five.
struct FusedNumbers {
  int count = 0;
  FusedNumber of[5];
};
/// `type`: what the step computes in.
FusedNumbers numbers_of(const FusedStep& step, DType type);
/// The type that step i computes in; ValueError where there is no formula for it.
DType computes_in(const FusedParams& params, int i);
/// The operation whose formula computes the step.
int formula_of(const FusedStep& step, DType type);

// Words of a kernel's arguments, behind the operands' addresses: what the counts are, then dimensions, strides, numbers.
inline constexpr int kWordLine = 0, kWordPacks = 1, kWordRows = 2, kWordDims = 3;
inline int dim_word(int d) { return kWordDims + 2 * d; }
inline int stride_word(const FusedLayout& l, int operand, int d) {
  return kWordDims + 2 * l.rank + operand * (l.rank + 1) + d;
}
inline int step_word(const FusedLayout& l, int operand) { return stride_word(l, operand, l.rank); }
inline int number_word(const FusedLayout& l) { return stride_word(l, l.operands, 0); }

/// A call, told apart from others by its signature: calls of one signature run one kernel, each with its arguments.
struct FusedCall {
  std::string signature;
  std::vector<uint64_t> arguments;  // addresses, then words
};
FusedCall call_of(const FusedLayout& layout, const FusedParams& params);

}  // namespace tapir::inline v0::cuda_kernels
