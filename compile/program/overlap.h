#pragma once
// Which elements views name: what hazards between calls are made of.
#include <optional>

#include "program.h"

namespace tapir::inline v0::ir {

/// May the two name a common byte? False only where that is certain: disjoint ranges, or boxes of one grid that do not meet (the
/// columns of a matrix, the gates of a state).
bool overlap(const View& a, const View& b);
/// Does element i of both lie in one place of their blocks, and have one type?
bool same_form(const View& a, const View& b);
/// Does element i of both, in row-major order of one shape, lie in one place and have one type?
bool same_place(const View& a, const View& b);
/// The view broadcast to a shape: stride 0 where it repeats.
View expanded(const View& v, const Shape& shape);
/// The same elements, in the same order, as a view of another shape of as many elements; nothing where that needs a copy.
std::optional<View> reshaped(const View& v, const Shape& shape);
/// The elements that `v` names as a view of another block, where `there` holds what `here` does, element by element. Nothing where that
/// takes more than an exchange of dimensions or another shape.
std::optional<View> through(const View& v, const View& here, const View& there);

}  // namespace tapir::inline v0::ir
