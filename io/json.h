#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tapir::inline v0::io {

/// Reads JSON token by token, in memory that does not grow with the text. Strict (RFC 8259): the text must be UTF-8,
/// escapes must be whole, nothing may follow the value but spaces. Anything else is a RuntimeError that names the byte.
/// Duplicate keys are the caller's to refuse: only it knows which objects it keeps.
class JsonReader {
 public:
  enum class Token : uint8_t {
    BeginObject,
    EndObject,
    BeginArray,
    EndArray,
    Key,
    String,
    Number,
    True,
    False,
    Null,
    End
  };

  /// `where` begins every message: "[load_safetensors] model.safetensors". `base` is added to the offsets named.
  /// At most `max_depth` (64 or less) objects and arrays inside one another.
  JsonReader(std::string_view text, std::string where, int max_depth, int64_t base = 0);
  Token next();
  /// Of Key and String the text without escapes, of Number its digits as written; valid until the next token.
  std::string_view text() const { return value_; }
  /// Passes over the rest of the value that began with `first`.
  void skip(Token first);
  /// The next token, which must be `wanted`; for the message: `what` stands there, a part of the item named `of`.
  void expect(Token wanted, std::string_view what, std::string_view of = {});
  /// The last Number as an integer in [0, 2^63): digits only. False for a sign, a fraction, an exponent or more.
  bool to_int(int64_t& out) const;
  [[noreturn]] void fail_at(std::string_view expected) const;
  int64_t offset() const { return base_ + int64_t(start_); }
  const std::string& where() const { return where_; }

 private:
  Token begin(bool object);
  Token end(bool object);
  Token string_token(bool key);
  Token number_token();
  Token word_token(std::string_view word, Token token);
  void read_string();
  void read_escape();
  unsigned read_hex4();
  void skip_space();
  bool in_object() const { return objects_ >> (depth_ - 1) & 1; }

  std::string_view text_, value_;
  std::string where_, unescaped_;
  size_t at_ = 0, start_ = 0;
  uint64_t objects_ = 0;  // bit d: level d is an object, not an array
  int depth_ = 0, max_depth_;
  int64_t base_;
  enum class State : uint8_t { Value, FirstValue, FirstKey, AfterKey, AfterValue } state_ = State::Value;
};

/// Appends `text` as a JSON string, with quotes; ValueError when it is not UTF-8.
void append_json_string(std::string& out, std::string_view text);

}  // namespace tapir::inline v0::io
