// The functions of the driver that Tapir calls itself, before NCCL takes the CUDA device of its thread: for emulated devices.
#include <cstdint>

#include "../../cuda_emulation/beside.h"

extern "C" int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(intptr_t(device) + 1);
  return 0;
}
extern "C" int cuCtxGetCurrent(void** context) {
  const auto* devices = cuda_emulation::beside();
  return devices ? (*context = reinterpret_cast<void*>(intptr_t(devices->current_device()) + 1), 0) : 201;
}
extern "C" int cuCtxSetCurrent(void* context) {
  const auto* devices = cuda_emulation::beside();
  return devices && devices->set_device(int(reinterpret_cast<intptr_t>(context)) - 1) ? 0 : 201;  // no such context
}
