#pragma once
#include <span>

#include "../core/tensor.h"

// What the engine itself needs of the operations; defined in ops/, below which it stands.
namespace tapir::inline v0 {

Tensor add(const Operand& a, const Operand& b, Scalar alpha = 1);
/// x summed to `shape`, which broadcasts to x's shape: the reverse of expand.
Tensor sum_to(const Tensor& x, const Shape& shape);
Tensor to(const Tensor& x, DType dtype);
Tensor clone(const Tensor& x, MemoryFormat format = kPreserve);
Tensor zeros_like(const Tensor& x, const LikeOptions& options = {});
Tensor select(const Tensor& x, int64_t dim, int64_t index);
Tensor stack(std::span<const Tensor> tensors, int64_t dim);

/// Where a view's elements lie among those of its base; `offset` counts from the base's first element.
struct ViewGeometry {
  Shape base_shape;
  Strides base_strides;
  Shape shape;
  Strides strides;
  int64_t offset = 0;
};
/// The elements of x (of base_shape, any strides) that the view names.
Tensor strided_gather(const Tensor& x, const ViewGeometry& view);
/// base_shape zeros with x (of the view's shape) added where the view lies: the adjoint of strided_gather.
Tensor strided_scatter(const Tensor& x, const ViewGeometry& view);
/// x (of base_shape) with zeros where the view lies.
Tensor strided_zero(const Tensor& x, const ViewGeometry& view);

}  // namespace tapir::inline v0
