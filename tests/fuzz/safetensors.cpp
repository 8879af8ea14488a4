#include <tapir/io/safetensors.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz(data, size, [](const std::string& path) {
    tapir::io::Metadata metadata;
    tapir::io::load_safetensors(path, &metadata);
  });
}
