// What a refused call says.
#pragma once
#include <tapir/core/error.h>

#include <string>

/// The text of the ValueError that f throws, or nothing.
template <class F> std::string error_of(F&& f) {
  try {
    f();
  } catch (const tapir::ValueError& e) {
    return e.what();
  }
  return "";
}
