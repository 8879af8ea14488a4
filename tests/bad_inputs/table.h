// A table of bad inputs, an entry a line:
//     V(701, ("LSTM", "num_layers"), nn::LSTM(3, 4, {.num_layers = kLeast}))
// The call throws ValueError (R: RuntimeError, O: OutOfMemoryError), and its text holds the words. FINE: it throws nothing, and what it
// expects holds. After each entry a correct call gives what it should. README.md is the list of all entries: table_test.cpp.
#pragma once
#include <filesystem>
#include <limits>

#include "../ops/helpers.h"

namespace bad_inputs {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();

enum class Outcome : uint8_t { Value, Runtime, OutOfMemory, Fine };
struct Entry {
  int id;
  Outcome outcome;
  const char* input;
  std::vector<const char*> words;
  void (*run)();
};
/// All entries of all files.
std::vector<Entry>& entries();
struct Registered {
  explicit Registered(Entry e) { entries().push_back(std::move(e)); }
};

/// For FINE entries: leaves by an exception that the table reports.
void expect(bool holds, const char* what = "a value");
/// In a folder that is removed at the end.
std::string temporary(const std::string& name);
/// A variable of the environment, for a scope.
class Variable {
 public:
  Variable(const char* name, const std::string& value);
  ~Variable();
  Variable(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace bad_inputs

#define BAD_INPUT_WORDS(...) \
  { __VA_ARGS__ }
#define BAD_INPUT(id, outcome, text, words, ...)  \
  static const bad_inputs::Registered entry_##id( \
      {id, bad_inputs::Outcome::outcome, text, BAD_INPUT_WORDS words, [] { __VA_ARGS__; }});
#define V(id, words, ...) BAD_INPUT(id, Value, #__VA_ARGS__, words, __VA_ARGS__)
#define R(id, words, ...) BAD_INPUT(id, Runtime, #__VA_ARGS__, words, __VA_ARGS__)
#define O(id, words, ...) BAD_INPUT(id, OutOfMemory, #__VA_ARGS__, words, __VA_ARGS__)
#define FINE(id, ...) BAD_INPUT(id, Fine, #__VA_ARGS__, (), __VA_ARGS__)
