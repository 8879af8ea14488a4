#pragma once
#include <string>

#include "../core/tensor.h"

namespace tapir::inline v0::io {

/// A PNG file of an image (C, H, W) or (H, W), C = 1 (grey), 3 (RGB) or 4 (RGBA): uint8, or floats in [0, 1], clamped, NaN as 0.
/// ValueError for another shape or dtype, and for no pixels. Format: PNG (W3C, third edition), 8 bits, no interlacing.
std::string encode_png(const Tensor& image);
/// The same into a file, which appears whole or not at all.
void save_png(const std::string& path, const Tensor& image);
/// Images (N, C, H, W) side by side in rows of `columns`, with `padding` pixels of `value` between them: (C, H', W').
Tensor make_grid(const Tensor& images, int64_t columns = 8, int64_t padding = 2, double value = 0);

}  // namespace tapir::inline v0::io
