// A call of a line of the table, with its arguments, as a line of text: what is found is printed so, kept so, and replayed.
//     pointwise/add: add(x[0], x[1]) ; op ; own float32 (2,3) (1,2) 0 case 17 ; same 0
// The parts: the line of the table; op, twin, reduce or pair; each input; each constant that is replaced, as 0=i-1, 0=d0.5, 0=b1, 0=sabc.
// An input is "own DTYPE SHAPE STRIDES OFFSET FILL SEED [grad]", "undefined", "moved", "same K" (the tensor of input K) or
// "view K SHAPE STRIDES OFFSET" (of the memory of input K).
#pragma once
#include <string>
#include <vector>

#include "../../op_cases/case.h"
#include "opened.h"

namespace ops_fuzz {
using namespace tapir;
using op_cases::Case;
using op_cases::List;
using op_cases::Table;

/// Case: as the line of the table asks for. Special: NaN, infinities, zeros of both signs. Extreme: the largest and smallest numbers.
enum class Fill : uint8_t { Case, Small, Special, Extreme, Zero };
enum class Kind : uint8_t { Own, Undefined, Moved, Same, View };
/// Twin: in place. Reduce: the line's function with other dimensions. Pair: with a number for an operand.
enum class Form : uint8_t { Op, Twin, Reduce, Pair };

struct Input {
  Kind kind = Kind::Own;
  int of = 0;  // Same, View: the input before this one
  DType dtype = kFloat32;
  Shape shape = {};
  Strides strides = {};
  int64_t offset = 0;
  Fill fill = Fill::Case;
  uint32_t seed = 0;
  bool grad = false;
};

struct Call {
  const Case* line = nullptr;
  Form form = Form::Op;
  std::vector<Input> inputs;
  Arguments arguments;
};

/// The table, with a name for each line.
class Lines {
 public:
  Lines();
  const std::vector<Case>& cases() const { return table_.cases(); }
  const std::string& name(const Case& line) const { return names_[size_t(&line - cases().data())]; }
  /// The lines of each operation.
  const std::vector<std::vector<const Case*>>& operations() const { return operations_; }
  std::string text(const Call& call) const;
  /// ValueError where the text is not a call.
  Call parse(const std::string& text) const;

 private:
  Table table_;
  std::vector<std::string> names_;
  std::vector<std::vector<const Case*>> operations_;
};

/// The storage that the input needs, in elements; behind them lie kSpare more.
inline constexpr int64_t kSpare = 3;
int64_t extent_of(const Input& input);
bool overlaps(const Input& input);
inline bool is_contiguous(const Input& input) {
  return input.offset == 0 && input.strides == contiguous_strides(input.shape);
}

}  // namespace ops_fuzz
