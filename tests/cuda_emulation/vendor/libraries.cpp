#include "../../../cuda_kernels/vendor/libraries.h"

#include <algorithm>
#include <cstdlib>

// CUDA's libraries are always there, but for those that TAPIR_EMULATED_WITHOUT names.
namespace tapir::inline v0::cuda_kernels {

static constexpr const char* kNames[] = {"cuBLASLt", "cuBLAS", "cuSOLVER", "cuDNN"};

static bool is_hidden(std::string name) {
  const char* const hidden = std::getenv("TAPIR_EMULATED_WITHOUT");
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return char(c | 0x20); });
  return hidden && (std::string(",") + hidden + ',').find(',' + name + ',') != std::string::npos;
}

const std::string& why_not(Vendor library) {
  static const auto* const all = [] {
    auto* const words = new std::string[std::size(kNames)];
    for (size_t i = 0; i < std::size(kNames); ++i)
      if (is_hidden(kNames[i])) words[i] = std::string("no ") + kNames[i] + ": TAPIR_EMULATED_WITHOUT names it";
    return words;
  }();
  return all[size_t(library)];
}
std::string describe(Vendor library) {
  return why_not(library).empty() ? std::string(kNames[size_t(library)]) + ", emulated" : why_not(library);
}

}  // namespace tapir::inline v0::cuda_kernels
