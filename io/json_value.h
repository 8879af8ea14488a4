#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "value.h"

// Settings in JSON (config.json, tokenizer.json): whole values, and fields that say where they stand when they are refused.
namespace tapir::inline v0::io {

inline constexpr size_t kMaxJsonKeys = 1000;  // of an object of settings

/// The key that was read last. RuntimeError where `object` has it already, or has kMaxJsonKeys.
std::string new_json_key(const JsonReader& json, const Value& object);
/// The rest of a value that began with `first`, as one: for settings, which are small. RuntimeError for keys that stand twice, for more
/// than kMaxJsonKeys of them and for numbers beyond a double.
Value read_json_value(JsonReader& json, JsonReader::Token first);
/// The object that a file of settings is; `op` begins every message.
Value read_json_file(std::string_view op, const std::string& path);

/// A part of the settings and its name in the file. A RuntimeError where it is not what it is read as.
struct JsonField {
  const std::string& where;
  std::string name;
  const Value& value;

  [[noreturn]] void refuse(std::string_view expected) const;
  bool is_none() const { return value.is_none(); }
  /// A member of an object, null where there is none.
  JsonField operator[](std::string_view key) const;
  std::vector<JsonField> items() const;
  const std::string& text() const;
  bool flag(bool otherwise) const;
  /// 0 or above.
  int64_t integer() const;
  int64_t integer(int64_t otherwise) const { return is_none() ? otherwise : integer(); }
  double number() const;
  double number(double otherwise) const { return is_none() ? otherwise : number(); }
  /// An object without other keys than these.
  void only(std::initializer_list<std::string_view> known) const;
};

}  // namespace tapir::inline v0::io
