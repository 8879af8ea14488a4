#pragma once
#include <string>

// The version of these headers. CMake reads it here: this is the one place where it stands.
#define TAPIR_VERSION_MAJOR 0
#define TAPIR_VERSION_MINOR 1
#define TAPIR_VERSION_PATCH 0

namespace tapir::inline v0 {

/// "0.1.0": the version of the library that the program runs with, which may be another than that of the headers.
std::string version();

}  // namespace tapir::inline v0
