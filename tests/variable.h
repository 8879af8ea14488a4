#pragma once
#include <cstdlib>
#include <string>

namespace tapir_tests {

/// An environment variable for a scope; null: unset.
struct Variable {
  const char* name;
  std::string before;
  bool was_set;
  Variable(const char* name, const char* value) : name(name), was_set(getenv(name) != nullptr) {
    if (was_set) before = getenv(name);
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { was_set ? setenv(name, before.c_str(), 1) : unsetenv(name); }
};

}  // namespace tapir_tests
