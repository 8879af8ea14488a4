#include <tapir/io/npy.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz(data, size, [](const std::string& path) { tapir::io::load_npy(path).contiguous(); });
}
