#pragma once
// Note [Calls on rows]
// Softmax, layer and rms norm, their gradients and sums, means and maxima along the last dimensions are steps of a fused call too (Note
// [Fused calls] in core/fused.h), together with the pointwise calls around them: what lies between them is never written. Their results
// are those of the single calls within rounding. Alone they stay what they are: their own kernels are faster.
#include "program.h"

namespace tapir::inline v0::ir {

inline constexpr int64_t kLongestRow = 8192;  // elements: those of all values of a row stay in the second-level cache

/// Can it be part of a fused call as steps on rows?
bool is_row_call(const Call& call);
/// Is the group that it joins faster than its own kernel and the rest of the group? By measurement: Note [Rows on the CPU] in rows.cpp.
bool is_worth_fusing(const Call& call);
/// How many elements its rows have; 0: it is no such call.
int64_t row_of(const Call& call);
/// The shape of the elements that the call works on: of what it reads where it reduces, else of what it writes.
const Shape& elements_of(const Call& call);
/// Do the elements lie in the order of the shape, or repeat? Other rows are not gathered: the calls' own kernels do that better.
bool goes_by_rows(const View& view);

}  // namespace tapir::inline v0::ir
