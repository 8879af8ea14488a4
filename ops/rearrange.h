#pragma once
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

// Views.

/// Dimensions `source` moved to the places `destination`; the others keep their order.
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
inline Tensor moveaxis(const Tensor& x, const Dims& source, const Dims& destination) {
  return movedim(x, source, destination);
}
/// transpose under its other names.
Tensor swapaxes(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor& swapaxes_(Tensor& self, int64_t dim0, int64_t dim1);
Tensor& swapdims_(Tensor& self, int64_t dim0, int64_t dim1);
/// Dimension `dim` split into several; one size may be -1.
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);
/// One dimension; a copy where a view is not possible.
Tensor ravel(const Tensor& x);
Tensor view_as(const Tensor& x, const Tensor& other);
Tensor reshape_as(const Tensor& x, const Tensor& other);
Tensor expand_as(const Tensor& x, const Tensor& other);
Tensor broadcast_to(const Tensor& x, const Shape& shape);
/// All of them expanded to their common shape.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
/// Windows of `size` positions, `step` apart, along dim, each as a new last dimension.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
/// At least 1, 2 or 3 dimensions: (n) -> (1, n) -> (1, n, 1), (m, n) -> (m, n, 1).
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);
std::vector<Tensor> atleast_1d(const std::vector<Tensor>& tensors);
std::vector<Tensor> atleast_2d(const std::vector<Tensor>& tensors);
std::vector<Tensor> atleast_3d(const std::vector<Tensor>& tensors);
/// `sections` parts whose sizes differ by at most 1, or parts that end before each of the given positions.
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim = 0);
/// tensor_split along dimension 1 (0 for a vector), 0, and 2; equal parts where a number is given.
std::vector<Tensor> hsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices);
std::vector<Tensor> vsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices);
std::vector<Tensor> dsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices);
/// Grids of the vectors' values; the first varies along dimension 0 ("ij") or 1 ("xy").
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing = "ij");

// Copies.

/// Reversed along dims.
Tensor flip(const Tensor& x, const Dims& dims);
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);
/// Moved by shifts along dims, what leaves at the end comes in at the front; no dims: of the flattened tensor.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims = {});
/// Turned by k quarters from dims[0] towards dims[1].
Tensor rot90(const Tensor& x, int64_t k = 1, const Dims& dims = {0, 1});
/// counts[d] times along each dimension; counts may lead with new dimensions.
Tensor repeat(const Tensor& x, const Dims& counts);
/// The same, where counts of 1 are put before those that are too few.
Tensor tile(const Tensor& x, const Dims& counts);
/// Each element (of the flattened tensor: no dim) `repeats` times, one number or one for each position along dim.
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim = {});
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim = {});
/// Position i, repeats[i] times.
Tensor repeat_interleave(const Tensor& repeats);
/// Joined along dimension 0, 1 (0 for vectors) and 2 after atleast_2d, _1d and _3d.
Tensor vstack(const std::vector<Tensor>& tensors);
Tensor hstack(const std::vector<Tensor>& tensors);
Tensor dstack(const std::vector<Tensor>& tensors);
/// Vectors as columns, matrices side by side.
Tensor column_stack(const std::vector<Tensor>& tensors);
/// All tuples of elements of the vectors, one a row.
Tensor cartesian_prod(const std::vector<Tensor>& tensors);
/// x with `source` in place of the part that select or slice names.
Tensor select_scatter(const Tensor& x, const Tensor& source, int64_t dim, int64_t index);
Tensor slice_scatter(const Tensor& x, const Tensor& source, int64_t dim = 0, std::optional<int64_t> start = {},
                     std::optional<int64_t> end = {}, int64_t step = 1);

}  // namespace tapir::inline v0
