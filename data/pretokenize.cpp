#include "pretokenize.h"

#include <algorithm>
#include <span>
#include <vector>

#include "unicode_tables.h"

namespace tapir::inline v0::data {

namespace {

/// Code points [first, first + 1, ..., end) of one kind.
struct Range {
  uint32_t first, end;
  CharKind kind;
};

std::vector<Range> unpack_tables() {
  std::vector<Range> out;
  const auto add = [&](std::span<const uint16_t> pairs, CharKind kind) {
    uint32_t at = 0;
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const uint32_t first = at + pairs[i];
      at = first + pairs[i + 1];
      out.push_back({first, at, kind});
    }
  };
  add(kLetters, CharKind::Letter), add(kNumbers, CharKind::Number);
  std::sort(out.begin(), out.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  return out;
}

CharKind kind_of(uint32_t code) {
  if (code < 0x80) {
    if ((code | 0x20) - 'a' < 26) return CharKind::Letter;
    if (code - '0' < 10) return CharKind::Number;
    return code == ' ' || code - '\t' < 5 ? CharKind::Space : CharKind::Other;
  }
  if (code == 0x85 || code == 0xA0 || code == 0x1680 || code - 0x2000 < 11 || code == 0x2028 || code == 0x2029 ||
      code == 0x202F || code == 0x205F || code == 0x3000)
    return CharKind::Space;
  static const std::vector<Range> ranges = unpack_tables();
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](uint32_t c, const Range& range) { return c < range.first; });
  return after != ranges.begin() && code < after[-1].end ? after[-1].kind : CharKind::Other;
}

bool is_newline(char c) { return c == '\n' || c == '\r'; }

size_t skip(std::string_view text, size_t at, CharKind kind) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (c.kind != kind) break;
    at += c.bytes;
  }
  return at;
}

/// \s+(?!\S)|\s+: the last space of several stays with the word behind it.
size_t end_of_spaces(std::string_view text, size_t at) {
  size_t last = at, end = at;
  while (end < text.size()) {
    const Char c = char_at(text, end);
    if (c.kind != CharKind::Space) break;
    last = end, end += c.bytes;
  }
  return end == text.size() || last == at ? end : last;
}

/// The bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`, else 0.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  if (text[at] != '\'') return 0;
  const auto letter = [&](size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
  };
  const char a = letter(1), b = letter(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return any_case && text.substr(at + 1).starts_with("\xC5\xBF") ? 3 : 0;  // the long s is an s of another case
}

size_t gpt2_end(std::string_view text, size_t at) {
  if (const size_t n = contraction(text, at, false)) return at + n;
  const size_t word = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  const CharKind kind = char_at(text, word).kind;
  return kind == CharKind::Space ? end_of_spaces(text, at) : skip(text, word, kind);
}

size_t llama3_end(std::string_view text, size_t at, int digits) {
  if (const size_t n = contraction(text, at, true)) return at + n;
  const Char c = char_at(text, at);
  const size_t next = at + c.bytes;
  if (c.kind == CharKind::Letter) return skip(text, next, CharKind::Letter);
  if (c.kind == CharKind::Number) {
    size_t end = next;
    for (int i = 1; i < digits && end < text.size(); ++i) {
      const Char d = char_at(text, end);
      if (d.kind != CharKind::Number) break;
      end += d.bytes;
    }
    return end;
  }
  const bool more = next < text.size();
  const CharKind kind = more ? char_at(text, next).kind : CharKind::Space;
  if (kind == CharKind::Letter && !is_newline(text[at])) return skip(text, next, CharKind::Letter);
  if (c.kind == CharKind::Other || (text[at] == ' ' && kind == CharKind::Other)) {
    size_t end = skip(text, next, CharKind::Other);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const size_t last = text.substr(at, skip(text, next, CharKind::Space) - at).find_last_of("\r\n");
  return last != text.npos ? at + last + 1 : end_of_spaces(text, at);
}

size_t digits_end(std::string_view text, size_t at, bool runs) {
  const Char c = char_at(text, at);
  if (c.kind == CharKind::Number) return runs ? skip(text, at, CharKind::Number) : at + c.bytes;
  for (at += c.bytes; at < text.size();) {
    const Char d = char_at(text, at);
    if (d.kind == CharKind::Number) break;
    at += d.bytes;
  }
  return at;
}

}  // namespace

Char char_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? uint8_t(text[at + i]) : uint8_t(0); };
  const uint32_t a = byte(0);
  if (a < 0x80) return {a, 1, kind_of(a)};
  const uint32_t bytes = a < 0xE0 ? 2 : a < 0xF0 ? 3 : 4;
  uint32_t code = a & (0x7Fu >> bytes);
  bool good = a >= 0xC2 && a <= 0xF4;
  for (uint32_t i = 1; i < bytes; ++i) good = good && (byte(i) & 0xC0) == 0x80, code = code << 6 | (byte(i) & 0x3Fu);
  good = good && (bytes < 3 || code >= (bytes == 3 ? 0x800u : 0x10000u)) && code < 0x110000 && (code >> 11) != 0x1B;
  if (!good) return {a, 1, CharKind::Other};
  return {code, bytes, kind_of(code)};
}

std::optional<SplitPattern> split_pattern(std::string_view expression) {
  constexpr std::string_view words = R"(| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  if (expression.ends_with(words)) {
    const auto before = expression.substr(0, expression.size() - words.size());
    if (before == "'s|'t|'re|'ve|'m|'ll|'d" || before == "'(?:[sdmt]|ll|ve|re)") return SplitPattern::GPT2;
  }
  constexpr std::string_view begin = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})",
                             end = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (expression.size() >= begin.size() + end.size() && expression.starts_with(begin) && expression.ends_with(end)) {
    const auto between = expression.substr(begin.size(), expression.size() - begin.size() - end.size());
    if (between == "{1,3}") return SplitPattern::Llama3;
    if (between.empty()) return SplitPattern::Qwen2;
  }
  return std::nullopt;
}

size_t word_end(SplitPattern pattern, std::string_view text, size_t at) {
  switch (pattern) {
    case SplitPattern::GPT2: return gpt2_end(text, at);
    case SplitPattern::Llama3: return llama3_end(text, at, 3);
    case SplitPattern::Qwen2: return llama3_end(text, at, 1);
    case SplitPattern::Digits: return digits_end(text, at, false);
    default: return digits_end(text, at, true);
  }
}

}  // namespace tapir::inline v0::data
