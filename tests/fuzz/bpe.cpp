#include <tapir/data/bpe.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return fuzz(data, size, [&](const std::string& path) {
    const tapir::data::BPETokenizer tokenizer(path);
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
      tokenizer.decode(tokenizer.encode(text, {.allow_special = size % 2 == 0}));
    } catch (const tapir::ValueError&) {}  // a byte that the vocabulary lacks
  });
}
