#pragma once
// Checks of what callers give, for any folder: one place for each rule.
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "error.h"

namespace tapir::inline v0 {

class StateDict;

/// ValueError for a count below `least`: check_count("LSTM", "num_layers", n, 1).
inline void check_count(std::string_view op, std::string_view what, int64_t n, int64_t least = 0) {
  check(n >= least, "[{}] expected {} of at least {}, got {}", op, what, least, n);
}
/// ValueError for a name that occurs twice: whoever reads the dict would see the first alone.
void check_names(std::string_view op, const StateDict& state);
/// Can that dtype hold the number? Floats: without overflow; fractions are cut off or rounded. See check_fits().
bool fits(Scalar v, DType dtype);

/// n values on the host. Where there is no room for them, what leaves is an OutOfMemoryError in the name of `op`, not the library's exception.
template <class T> std::vector<T> host_vector(std::string_view op, int64_t n) {
  try {
    return std::vector<T>(static_cast<size_t>(n));
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {}
  fail(ErrorKind::OutOfMemory, "[{}] expected room for {} values of {} bytes on the host, there is none", op, n,
       sizeof(T));
}

}  // namespace tapir::inline v0
