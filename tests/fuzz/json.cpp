#include <tapir/io/json.h>

#include "fuzz.h"

using tapir::io::JsonReader;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    JsonReader json({reinterpret_cast<const char*>(data), size}, "[fuzz]", 64);
    for (int64_t number; json.next() != JsonReader::Token::End;) json.to_int(number);
  } catch (const tapir::RuntimeError&) {}
  return 0;
}
