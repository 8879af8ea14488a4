#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../core/tensor.h"
#include "shared.h"

namespace tapir::inline v0::data {

struct BPEModel;

struct BPEEncodeOptions {
  bool allow_special = true;       // special tokens in the text are tokens; else they are text like any other
  bool add_special_tokens = true;  // those that tokenizer.json puts around a text, such as Llama 3's <|begin_of_text|>
};
struct BPEDecodeOptions {
  bool skip_special_tokens = false;
};

/// Byte-level byte pair encoding: any bytes have tokens, and decode gives them back. Copies share the vocabulary, which
/// nothing changes: one tokenizer serves all threads. Sennrich et al. 2015, arXiv 1508.07909; Radford et al. 2019 (GPT-2).
class BPETokenizer {
 public:
  /// Hugging Face's tokenizer.json, of a byte-level BPE model with the word patterns of GPT-2, Llama 3 or Qwen 2.
  /// RuntimeError that names the field for what is not supported or does not fit together.
  explicit BPETokenizer(const std::string& tokenizer_json);
  /// GPT-2's vocab.json and merges.txt. Tokens of `special` that the vocabulary has are taken whole from texts.
  BPETokenizer(const std::string& vocab_json, const std::string& merges_txt,
               const std::vector<std::string>& special = {"<|endoftext|>"});
  /// The largest token and one: what an embedding needs.
  int64_t size() const;
  /// int64 (tokens,). ValueError for a byte that a vocabulary without all 256 lacks, where it names no unknown token.
  Tensor encode(std::string_view text, const BPEEncodeOptions& options = {}) const;
  /// The bytes of the tokens: UTF-8 where they are whole. ValueError for a number that is no token.
  std::string decode(const Tensor& tokens, const BPEDecodeOptions& options = {}) const;
  std::string decode(const std::vector<int64_t>& tokens, const BPEDecodeOptions& options = {}) const;
  std::string decode(int64_t token) const;
  /// The number of a token as the vocabulary writes it ("Ġthe"), or none.
  std::optional<int64_t> token_to_id(std::string_view token) const;
  /// The other way round. ValueError for a number that is no token.
  std::string id_to_token(int64_t token) const;

 private:
  Shared<const BPEModel> model_;
};

}  // namespace tapir::inline v0::data
