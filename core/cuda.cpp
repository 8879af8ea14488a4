#include "cuda.h"

namespace tapir::inline v0::cuda {

bool is_available() { return false; }
int device_count() { return 0; }
std::string why_not() { return "Tapir was built without CUDA"; }

}  // namespace tapir::inline v0::cuda
