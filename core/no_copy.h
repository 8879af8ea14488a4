#pragma once

namespace tapir::inline v0 {

/// The base of what is neither copied nor moved.
struct NoCopy {
  NoCopy() = default;
  NoCopy(const NoCopy&) = delete;
  NoCopy& operator=(const NoCopy&) = delete;
};

}  // namespace tapir::inline v0
