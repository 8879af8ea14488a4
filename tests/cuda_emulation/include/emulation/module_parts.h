// What the library that loads a kernel (../../vendor/nvrtc.cpp) hands over to it.
#pragma once
#include "launch.h"

namespace cuda_emulation {
struct ModuleParts {
  uint3 *thread_index, *block_index;
  dim3 *block_size, *grid_size;
  void *barrier, *exchange, *note_fence, *trap, *access;
};
}  // namespace cuda_emulation
