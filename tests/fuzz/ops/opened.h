// The constants of a line of the table of operations, open to the fuzzer: argument(k, v) is v, or what stands for it in this call.
// open_arguments writes these calls into a copy of tests/op_cases.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <variant>

namespace ops_fuzz {

using Argument = std::variant<int64_t, double, bool, std::string>;
using Arguments = std::map<int, Argument>;

/// What this thread's calls take instead of constants; null: nothing. `seen`, where it is set, is filled with the constants.
struct Opened {
  const Arguments* instead = nullptr;
  Arguments* seen = nullptr;
};
inline thread_local Opened opened;

template <class T> T argument_as(int k, T v) {
  if (opened.seen) {
    if constexpr (std::is_same_v<T, const char*>) opened.seen->emplace(k, std::string(v));
    else opened.seen->emplace(k, v);
  }
  if (!opened.instead) return v;
  const auto found = opened.instead->find(k);
  if (found == opened.instead->end()) return v;
  if constexpr (std::is_same_v<T, const char*>) {
    if (const auto* text = std::get_if<std::string>(&found->second)) return text->c_str();
  } else if (const T* value = std::get_if<T>(&found->second)) return *value;
  return v;
}
inline int64_t argument(int k, int v) { return argument_as(k, int64_t(v)); }
inline double argument(int k, double v) { return argument_as(k, v); }
inline bool argument(int k, bool v) { return argument_as(k, v); }
inline const char* argument(int k, const char* v) { return argument_as(k, v); }

}  // namespace ops_fuzz

namespace op_cases {
using ops_fuzz::argument;
}
