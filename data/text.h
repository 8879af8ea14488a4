#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::data {

/// Texts as numbers, one per character (of UTF-8), numbered in the order of their code points.
class CharVocabulary {
 public:
  CharVocabulary() = default;
  /// The characters of a text. RuntimeError where it is not UTF-8.
  explicit CharVocabulary(std::string_view text);
  int64_t size() const { return int64_t(characters_.size()); }
  /// int64 (characters,). ValueError for a character that is not in the vocabulary.
  Tensor encode(std::string_view text) const;
  /// ValueError for a token beyond the vocabulary.
  std::string decode(const Tensor& tokens) const;
  std::string decode(int64_t token) const;

 private:
  std::vector<uint32_t> characters_;  // sorted
};

/// Windows of `context` tokens of a text and the same one token on: x, y int64 (context,).
class CharDataset {
 public:
  using Sample = std::array<Tensor, 2>;
  /// ValueError where the text is shorter than one window and a token.
  CharDataset(const Tensor& tokens, int64_t context);
  int64_t size() const { return tokens_.numel() - context_; }
  Sample get(int64_t i) const;

 private:
  Tensor tokens_;
  int64_t context_;
};

struct TokenFileOptions {
  DType dtype = kInt16;    // of a token in the file, read without sign: kInt16 or kInt32
  int64_t vocabulary = 0;  // tokens from there on are errors; 0: any
  int64_t stride = 1;      // from window to window
  bool map = false;        // through a memory map instead of read(); its file must not be cut short meanwhile
};
/// Windows of a file of tokens (numbers of 2 or 4 bytes, little-endian), which is never read whole: x, y int64 (context,).
class TokenFile {
 public:
  using Sample = std::array<Tensor, 2>;
  /// RuntimeError for a missing file, a size that is no whole number of tokens, fewer than one window and a token.
  TokenFile(const std::string& path, int64_t context, const TokenFileOptions& options = {});
  TokenFile(TokenFile&& o) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();
  int64_t size() const { return (tokens_ - context_ - 1) / options_.stride + 1; }
  int64_t tokens() const { return tokens_; }
  /// RuntimeError for a token beyond the vocabulary, and where the file has shrunk.
  Sample get(int64_t i) const;

 private:
  template <class T> void widen(int64_t first, const Tensor& x, const Tensor& y) const;
  std::string path_;
  TokenFileOptions options_;
  int64_t context_, tokens_ = 0;
  int fd_ = -1;
  void* map_ = nullptr;
};

/// Writes a file that TokenFile reads, atomically. ValueError for a token that the dtype cannot hold.
void write_tokens(const std::string& path, const Tensor& tokens, DType dtype = kInt16);

}  // namespace tapir::inline v0::data
