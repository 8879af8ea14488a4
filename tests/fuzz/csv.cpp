#include <tapir/io/csv.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const bool header : {false, true})
    fuzz(data, size, [&](const std::string& path) {
      tapir::io::read_csv(path, {.dtype = size % 2 ? tapir::kFloat64 : tapir::kInt32,
                                 .columns = size % 3 ? std::vector<std::string>{} : std::vector<std::string>{"x"},
                                 .header = header,
                                 .delimiter = size % 5 ? ',' : ';',
                                 .missing = size % 7 ? std::optional<double>(0) : std::nullopt,
                                 .max_line = 1 << 10});
    });
  return 0;
}
