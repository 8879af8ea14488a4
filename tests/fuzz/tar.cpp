#include <tapir/data/tar.h>

#include "fuzz.h"

namespace {
struct Everything final : tapir::data::TarVisitor {
  bool wanted(std::string_view) override { return true; }
  void visit(std::string_view, std::string_view) override {}
};
}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz(data, size, [](const std::string& path) {
    Everything everything;
    tapir::data::read_tar("fuzz", path, everything, 1 << 20);
  });
}
