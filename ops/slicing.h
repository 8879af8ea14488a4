#pragma once
#include <optional>
#include <span>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// The part at `index` along dim, without that dimension; a view.
Tensor select(const Tensor& x, int64_t dim, int64_t index);
/// `length` positions from `start` along dim; a view.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
/// Positions start, start + step, ... before end; out-of-range ends are clamped, negative ones count from the end; a view.
Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
             int64_t step = 1);
/// Parts of `size` (the last may be smaller), or of the given sizes; views.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
/// At most `chunks` parts of equal size (the last may be smaller); views.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
/// Every part along dim; views.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);
/// Joined along an existing dimension; dtypes are promoted, empty tensors of shape (0,) are skipped.
Tensor cat(std::span<const Tensor> tensors, int64_t dim = 0);
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0) { return cat(std::span(tensors), dim); }
inline Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim = 0) {
  return cat(std::span(tensors.begin(), tensors.size()), dim);
}
/// Joined along a new dimension.
Tensor stack(std::span<const Tensor> tensors, int64_t dim = 0);
inline Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0) { return stack(std::span(tensors), dim); }
inline Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim = 0) {
  return stack(std::span(tensors.begin(), tensors.size()), dim);
}

}  // namespace tapir::inline v0
