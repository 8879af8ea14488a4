#pragma once
#include "../core/checks.h"

namespace tapir::inline v0::nn {

/// ValueError for a number of layers that is negative, or that nobody can mean: they are made one by one.
inline void check_layers(std::string_view op, std::string_view what, int64_t n, int64_t least = 0) {
  constexpr int64_t kMost = 1 << 16;
  check(n >= least && n <= kMost, "[{}] expected {} from {} to {}, got {}", op, what, least, kMost, n);
}

}  // namespace tapir::inline v0::nn
