#include <tapir/core/version.h>

#include "../catch.h"
#include "source_dir.h"

using namespace tapir;

TEST_CASE("review 14: the version, as text and as numbers, is CMake's") {
  CHECK(version() == TAPIR_PROJECT_VERSION);
  CHECK(version() == std::to_string(TAPIR_VERSION_MAJOR) + "." + std::to_string(TAPIR_VERSION_MINOR) + "." +
                         std::to_string(TAPIR_VERSION_PATCH));
  static_assert(TAPIR_VERSION_MAJOR * 10000 + TAPIR_VERSION_MINOR * 100 + TAPIR_VERSION_PATCH >= 100);
}
