#pragma once
#include "kernels.h"

// Small operands (weights, statistics), for kernels that want them without strides.
namespace tapir::inline v0::cuda_kernels {

/// Elements in row-major order, of a dtype of their own; null where the operand is absent.
struct Flat {
  void* data = nullptr;
  DType dtype = kFloat32;
};

/// The view's own memory where it has no gaps, else a copy in scratch; without `read`, only its place.
Flat staged(Context& ctx, V v, bool read = true);
/// Brings what was written to a staged operand into the view, where that is another place.
void unstage(Context& ctx, V v, const Flat& from);

}  // namespace tapir::inline v0::cuda_kernels
