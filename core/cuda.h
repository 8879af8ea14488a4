#pragma once
#include <string>

namespace tapir::inline v0::cuda {

/// Is there a CUDA device that Tapir can use? Never throws.
bool is_available();
int device_count();
/// Why is_available() is false; empty when it is true.
std::string why_not();

}  // namespace tapir::inline v0::cuda
