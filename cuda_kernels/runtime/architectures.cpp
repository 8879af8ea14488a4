#include "architectures.h"

#include <algorithm>
#include <charconv>

namespace tapir::inline v0::cuda_kernels {

bool has_code(std::string_view architectures, int capability) {
  bool any = false;
  while (!architectures.empty()) {
    architectures.remove_prefix(std::min(architectures.find_first_not_of(", "), architectures.size()));
    const size_t end = std::min(architectures.find(','), architectures.size());
    const std::string_view one = architectures.substr(0, end);
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
    int number = 0;
    const auto [rest, error] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (error != std::errc()) continue;
    any = true;
    const std::string_view kind(rest, size_t(one.data() + one.size() - rest));
    const bool later = number <= capability, same_major = later && number / 10 == capability / 10;
    if (kind.starts_with('a') ? number == capability : kind.starts_with('f') || kind == "-real" ? same_major : later)
      return true;
  }
  return !any;
}

}  // namespace tapir::inline v0::cuda_kernels
