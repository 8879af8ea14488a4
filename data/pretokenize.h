#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace tapir::inline v0::data {

/// The kinds of characters that tokenizers tell apart: \p{L}, \p{N}, \s and the rest (Unicode 16).
enum class CharKind : uint8_t { Letter, Number, Space, Other };
/// A character of UTF-8; a byte that is part of none counts as one of kind Other.
struct Char {
  uint32_t code;
  uint32_t bytes;
  CharKind kind;
};
/// The character at byte `at`, which must lie inside the text.
Char char_at(std::string_view text, size_t at);

/// How texts are cut into words before pairs are merged.
enum class SplitPattern : uint8_t {
  GPT2,       // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  Llama3,     // (?i:'s|..)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  Qwen2,      // the same with \p{N}
  Digits,     // each \p{N} alone
  DigitRuns,  // \p{N}+ alone
};
/// The pattern whose regular expression a tokenizer.json gives so.
std::optional<SplitPattern> split_pattern(std::string_view expression);
/// Where the word that begins at byte `at` of the text ends.
size_t word_end(SplitPattern pattern, std::string_view text, size_t at);

}  // namespace tapir::inline v0::data
