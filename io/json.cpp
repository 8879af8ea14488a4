#include "json.h"

#include <charconv>

#include "../core/error.h"
#include "file.h"

namespace tapir::inline v0::io {

using Token = JsonReader::Token;

namespace {
std::string_view name_of(Token token) {
  constexpr std::string_view names[] = {"an object", "the end of an object",
                                        "a list",    "the end of a list",
                                        "a key",     "a string",
                                        "a number",  "true",
                                        "false",     "null",
                                        "the end"};
  return names[int(token)];
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
}  // namespace

JsonReader::JsonReader(std::string_view text, std::string where, int max_depth, int64_t base)
    : text_(text), where_(std::move(where)), max_depth_(max_depth), base_(base) {
  check_internal(max_depth > 0 && max_depth <= 64, "[JsonReader] depth {}", max_depth);
  int64_t bad = 0;
  const bool utf8 = valid_utf8(text, &bad);
  check_runtime(utf8, "{}: expected JSON in UTF-8, got a wrong byte at byte {}", where_, base_ + bad);
}

void JsonReader::fail_at(std::string_view expected) const {
  const auto rest = start_ < text_.size() ? "\"" + shown(text_.substr(start_, 20)) + "\"" : std::string("the end");
  fail(ErrorKind::Runtime, "{}: expected {} at byte {}, got {}", where_, expected, offset(), rest);
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
}

Token JsonReader::next() {
  skip_space();
  start_ = at_;
  if (state_ == State::AfterValue) {
    if (depth_ == 0) {
      if (at_ < text_.size()) fail_at("nothing but spaces after the JSON value");
      return Token::End;
    }
    const bool object = in_object();
    if (at_ >= text_.size()) fail_at(object ? "',' or '}'" : "',' or ']'");
    if (text_[at_] == (object ? '}' : ']')) return end(object);
    if (text_[at_] != ',') fail_at(object ? "',' or '}'" : "',' or ']'");
    ++at_;
    skip_space();
    start_ = at_;
    if (object) return string_token(true);
    state_ = State::Value;
  }
  if (at_ >= text_.size()) fail_at("a JSON value");
  const char c = text_[at_];
  if (state_ == State::FirstKey) return c == '}' ? end(true) : string_token(true);
  if (state_ == State::FirstValue && c == ']') return end(false);
  switch (c) {
    case '{': return begin(true);
    case '[': return begin(false);
    case '"': return string_token(false);
    case 't': return word_token("true", Token::True);
    case 'f': return word_token("false", Token::False);
    case 'n': return word_token("null", Token::Null);
    default: return number_token();
  }
}

Token JsonReader::begin(bool object) {
  check_runtime(depth_ < max_depth_, "{}: expected at most {} levels of nesting, got more at byte {}", where_,
                max_depth_, offset());
  ++at_;
  objects_ = (objects_ & ~(uint64_t(1) << depth_)) | uint64_t(object) << depth_;
  ++depth_;
  state_ = object ? State::FirstKey : State::FirstValue;
  return object ? Token::BeginObject : Token::BeginArray;
}

Token JsonReader::end(bool object) {
  ++at_;
  --depth_;
  state_ = State::AfterValue;
  return object ? Token::EndObject : Token::EndArray;
}

Token JsonReader::string_token(bool key) {
  if (at_ >= text_.size() || text_[at_] != '"') fail_at(key ? "a key in quotes" : "a string");
  read_string();
  if (!key) {
    state_ = State::AfterValue;
    return Token::String;
  }
  skip_space();
  if (at_ >= text_.size() || text_[at_] != ':') fail_at("':' after the key");
  ++at_;
  state_ = State::AfterKey;
  return Token::Key;
}

void JsonReader::read_string() {
  const size_t first = ++at_;
  bool plain = true;
  for (;; ++at_) {
    if (at_ >= text_.size()) fail_at("a closing quote");
    const char c = text_[at_];
    if (c == '"') break;
    if (static_cast<unsigned char>(c) < 0x20) fail_at("a string without raw control characters");
    if (c != '\\') {
      if (!plain) unescaped_ += c;
      continue;
    }
    if (plain) unescaped_.assign(text_.substr(first, at_ - first)), plain = false;
    read_escape();
  }
  value_ = plain ? text_.substr(first, at_ - first) : std::string_view(unescaped_);
  ++at_;
}

unsigned JsonReader::read_hex4() {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = ++at_ < text_.size() ? text_[at_] : '\0';
    const int digit = is_digit(c)            ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) fail_at("four hexadecimal digits after \\u");
    code = code * 16 + unsigned(digit);
  }
  return code;
}

/// at_ is on the backslash before, on the escape's last character after.
void JsonReader::read_escape() {
  constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
  const char c = ++at_ < text_.size() ? text_[at_] : '\0';
  if (const size_t k = from.find(c); c != '\0' && k != std::string_view::npos) {
    unescaped_ += to[k];
    return;
  }
  if (c != 'u') fail_at("a JSON escape");
  uint32_t code = read_hex4();
  if (code >= 0xD800 && code < 0xE000) {
    if (code >= 0xDC00 || text_.substr(at_ + 1, 2) != "\\u") fail_at("surrogates in pairs");
    at_ += 2;
    const uint32_t low = read_hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail_at("surrogates in pairs");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  if (code < 0x80) unescaped_ += char(code);
  else if (code < 0x800) unescaped_ += {char(0xC0 | code >> 6), char(0x80 | (code & 0x3F))};
  else if (code < 0x10000)
    unescaped_ += {char(0xE0 | code >> 12), char(0x80 | (code >> 6 & 0x3F)), char(0x80 | (code & 0x3F))};
  else
    unescaped_ += {char(0xF0 | code >> 18), char(0x80 | (code >> 12 & 0x3F)), char(0x80 | (code >> 6 & 0x3F)),
                   char(0x80 | (code & 0x3F))};
}

Token JsonReader::number_token() {
  const auto peek = [&] { return at_ < text_.size() ? text_[at_] : '\0'; };
  const auto digits = [&] {
    if (!is_digit(peek())) fail_at("a JSON value");
    while (is_digit(peek())) ++at_;
  };
  if (peek() == '-') ++at_;
  if (peek() == '0') ++at_;
  else digits();
  if (peek() == '.') ++at_, digits();
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    digits();
  }
  value_ = text_.substr(start_, at_ - start_);
  state_ = State::AfterValue;
  return Token::Number;
}

Token JsonReader::word_token(std::string_view word, Token token) {
  if (text_.substr(at_, word.size()) != word) fail_at("a JSON value");
  at_ += word.size();
  state_ = State::AfterValue;
  return token;
}

void JsonReader::skip(Token first) {
  if (first != Token::BeginObject && first != Token::BeginArray) return;
  for (const int outside = depth_ - 1; depth_ > outside;) next();
}

void JsonReader::expect(Token wanted, std::string_view what, std::string_view of) {
  if (next() == wanted) return;
  fail_at(of.data() ? tapir::format("{} as {} of \"{}\"", name_of(wanted), what, shown(of))
                    : tapir::format("{} as {}", name_of(wanted), what));
}

bool JsonReader::to_int(int64_t& out) const {
  if (value_.empty() || !is_digit(value_[0])) return false;
  const auto [end, error] = std::from_chars(value_.data(), value_.data() + value_.size(), out);
  return error == std::errc() && end == value_.data() + value_.size();
}

void append_json_string(std::string& out, std::string_view text) {
  check(valid_utf8(text), "[json] expected UTF-8, got \"{}\"", shown(text));
  constexpr std::string_view from = "\"\\\b\f\n\r\t", to = "\"\\bfnrt";
  out += '"';
  for (const char c : text) {
    if (const size_t k = from.find(c); k != std::string_view::npos) out += '\\', out += to[k];
    else if (static_cast<unsigned char>(c) >= 0x20) out += c;
    else out += "\\u00", out += "01"[c >> 4 & 1], out += "0123456789abcdef"[c & 15];
  }
  out += '"';
}

}  // namespace tapir::inline v0::io
