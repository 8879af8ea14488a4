#include "version.h"

#include "error.h"

namespace tapir::inline v0 {

std::string version() {
  return tapir::format("{}.{}.{}", TAPIR_VERSION_MAJOR, TAPIR_VERSION_MINOR, TAPIR_VERSION_PATCH);
}

}  // namespace tapir::inline v0
