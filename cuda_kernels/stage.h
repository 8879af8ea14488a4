#pragma once
#include "kernels.h"

// Operands in another order than their own: small ones (weights, statistics) without strides, large ones as their neighbours lie.
namespace tapir::inline v0::cuda_kernels {

/// Elements in row-major order, of a dtype of their own; null where the operand is absent.
struct Flat {
  void* data = nullptr;
  DType dtype = kFloat32;
};

/// The view itself where it is in row-major order without gaps, else a copy in scratch; without `read`, only its place.
TensorView in_row_major(Context& ctx, V v, bool read = true);
Flat staged(Context& ctx, V v, bool read = true);
/// Brings what was written to a staged operand into the view, where that is another place.
void unstage(Context& ctx, V v, const Flat& from);
/// A copy of v in scratch that lies as `like` does, which has no gaps; else v itself.
TensorView ordered_as(Context& ctx, V v, V like);

}  // namespace tapir::inline v0::cuda_kernels
