#pragma once
#include <string>

namespace tapir_tests {

/// The text of the E that f throws; "nothing" when it throws nothing. Other exceptions pass.
template <class E, class F> std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing";
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace tapir_tests
