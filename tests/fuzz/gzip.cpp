#include <tapir/io/gzip.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz(data, size, [](const std::string& path) {
    tapir::io::GzipReader gzip("fuzz", path);
    char out[1000];
    for (int i = 0; i < 1000 && gzip.read(out, sizeof out) == sizeof out; ++i) {}
  });
}
