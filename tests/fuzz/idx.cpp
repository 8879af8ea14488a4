#include <tapir/io/idx.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz(data, size, [](const std::string& path) { tapir::io::read_idx(path); });
}
