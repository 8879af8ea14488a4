#pragma once
// Pointwise calls as one fused call: the steps, and where their values are in memory.
#include <optional>
#include <span>
#include <vector>

#include "../../core/fused.h"
#include "../program/program.h"

namespace tapir::inline v0::ir {

/// Can the call be part of a fused one?
bool is_pointwise(const Call& call);

inline constexpr int64_t kLongestRow = 8192;  // elements: those of all values of a row stay in the second-level cache

/// Can it be part of one as steps on rows? Note [Calls on rows] in rows.cpp.
bool is_row_call(const Call& call);
/// Is the group that it joins faster than its own kernel and the rest of the group? By measurement: Note [Rows on the CPU] in rows.cpp.
bool is_worth_fusing(const Call& call);
/// How many elements its rows have; 0: it is no such call.
int64_t row_of(const Call& call);
/// The shape of the elements that the call works on: of what it reads where it reduces, else of what it writes.
const Shape& elements_of(const Call& call);
/// Do the elements lie in the order of the shape, or repeat? Other rows are not gathered: the calls' own kernels do that better.
bool goes_by_rows(const View& view);

/// Calls that become one, before it is known which results other calls read.
struct FusedGroup {
  struct Place {
    View view;
    int value = -1;  // the step that made it, or -1 as long as nobody asked for it
    bool written = false;
    size_t writer = 0;  // the last call, an index of the list given
  };
  Shape shape;
  FusedParams params;
  std::vector<View> inputs;
  std::vector<Place> places;
};
/// The calls, in their order, pointwise ones and such on rows; nothing where they do not fit into one: too many steps, shapes that do not agree, or a result that
/// overlaps another operand without being in its very place. Stores are not among the steps yet.
std::optional<FusedGroup> fused_group(std::span<const Call* const> calls);

/// Makes the steps of a group, call by call. fuse_group.cpp: pointwise calls; rows.cpp: calls that work on rows.
class GroupBuilder {
 public:
  /// Elements of that shape; row: of how many of them one row is, or 0 where nothing is done by rows. It must be that many of the last
  /// dimensions: fits().
  GroupBuilder(const Shape& shape, int64_t row);
  bool fits() const { return fits_; }
  bool add(const Call& call, size_t index);
  FusedGroup take();

 private:
  static constexpr int kFull = -1;
  int step(const FusedStep& s) {
    if (group_.params.count == kFusedSteps) return kFull;
    group_.params.steps[group_.params.count] = s;
    return int(group_.params.count++);
  }
  int number(Scalar value, DType type);
  int cast(int value, DType type) {
    if (value < 0 || type_of(value) == type) return value;
    return step({.kind = FusedKind::Cast, .type = type, .operand = {uint8_t(value)}});
  }
  DType type_of(int value) const { return group_.params.steps[value].type; }
  int read(const View& v, DType type);
  bool write(const View& v, int value, size_t index);
  std::optional<View> fitted(const View& v) const;
  int compute(const Call& call);
  int drop(const Call& call, size_t index);

  // Of rows. An operand that is kFull makes the result kFull.
  int unary(UnaryOp op, int x);
  int binary(BinaryOp op, int a, int b);
  int reduce(ReduceOp op, int x);
  int mean(int x) { return binary(BinaryOp::Div, reduce(ReduceOp::Sum, x), number(double(row_), type_of_or(x))); }
  DType type_of_or(int value) const { return value < 0 ? kFloat32 : type_of(value); }
  bool add_rows(const Call& call, size_t index);
  bool add_softmax(const Call& call, size_t index);
  bool add_softmax_backward(const Call& call, size_t index);
  bool add_norm(const Call& call, size_t index);
  bool add_norm_backward(const Call& call, size_t index);
  bool add_reduce(const Call& call, size_t index);

  Shape from_;  // the shape of the call that is added
  Shape kept_;  // the group's, of one element a row
  int64_t row_;
  bool fits_ = true;
  FusedGroup group_;
};

/// Leaves of a fused call's results those in such blocks (one flag for each block).
void keep_stores(Call& fused, const std::vector<bool>& blocks);
/// Removes steps that no Store needs, and inputs that no step loads.
void remove_dead_steps(FusedParams& params, std::vector<View>& inputs);

}  // namespace tapir::inline v0::ir
