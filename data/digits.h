#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0::data {

/// uint8 images as float32, normalised by MNIST's mean and deviation.
Tensor normalize_digits(const Tensor& raw);

}  // namespace tapir::inline v0::data
