#include <tapir/data/image.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const tapir::data::ImagePart part =
      size > 50 && data[50] % 2 ? tapir::data::ImagePart{data[20] % 8, data[21] % 8, 20, 20} : tapir::data::ImagePart{};
  for (const bool tolerate : {false, true}) {
    try {
      tapir::data::decode_image(bytes, {.part = part,
                                        .min_size = tolerate ? 16 : 0,
                                        .tolerate_truncated = tolerate,
                                        .max_pixels = 1 << 20,
                                        .max_scans = 50});
    } catch (const tapir::RuntimeError&) {}
  }
  return 0;
}
