#pragma once
#include "../dnn.h"

namespace tapir::inline v0::cpu::dnn {

/// The weight gradient of a float32 convolution on small planes as products of matrices, whose right sides are gathered: what each pixel of
/// dy read at a kernel position. False: not this shape.
bool weight_gradient_as_product(Context& ctx, const Conv& c);

}  // namespace tapir::inline v0::cpu::dnn
