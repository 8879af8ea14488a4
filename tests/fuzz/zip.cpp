#include <tapir/io/npy.h>
#include <tapir/io/zip.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz(data, size, [](const std::string& path) { tapir::io::load_npz(path); });
  return fuzz(data, size, [](const std::string& path) {
    tapir::io::ZipReader zip("fuzz", path);
    for (const auto& member : zip.members()) zip.read(member, 1 << 24);
  });
}
