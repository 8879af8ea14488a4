#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct PadOptions {
  std::string_view mode = "constant";  // or "reflect", "replicate", "circular"
  std::optional<Scalar> value = {};    // of "constant": 0
};

/// x with elements added before and after each of its last dimensions, the last one first: {left, right, top, bottom, ...}; negative
/// numbers cut. "constant" pads any dimensions; the others the last one, two or three of a tensor with at most two more. ValueError for
/// lists that do not fit, results of negative size, and mirrored or repeated parts that are longer than what there is.
Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, const PadOptions& options = {});

}  // namespace tapir::inline v0
