// What a BPETokenizer holds, filled by bpe_read.cpp and used by bpe.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pretokenize.h"

namespace tapir::inline v0::data {

// Note [Byte-level tokens]
// A vocabulary is text, so each byte is written as one printable character: 33..126, 161..172 and 174..255 as themselves, the others, in
// order, as code points from 256 on; a space is U+0120. A token of such characters alone means their bytes; any other (added tokens,
// mostly) means its own UTF-8.

struct BPEToken {
  std::string text, bytes;  // as the vocabulary writes it; what it means
  int32_t id;
  bool special = false;
};

/// A token that is found in texts before they are cut into words.
struct AddedToken {
  std::string content;
  int32_t id;
  bool special, lstrip, rstrip;  // lstrip, rstrip: spaces beside it belong to it
};

/// Added tokens by their bytes; the longest that begins at a place is found in one walk.
class AddedTokens {
 public:
  void add(AddedToken token);
  /// The longest token that begins at byte `at` of the text, or null.
  const AddedToken* longest_at(std::string_view text, size_t at) const;

 private:
  std::vector<AddedToken> tokens_;
  std::vector<int32_t> token_of_ = {-1};         // of a node
  std::unordered_map<uint64_t, uint32_t> next_;  // (node << 8 | byte) -> node
  std::array<bool, 256> begins_ = {};            // some token begins with that byte
};

struct BPEMerge {
  int32_t rank, id;
};

struct BPEModel {
  static constexpr int64_t kMaxTokens = 1 << 22;  // ids of files are below it: they size the table

  std::vector<BPEToken> tokens;
  std::vector<int32_t> by_id;  // position in `tokens`, or -1
  std::unordered_map<std::string, int32_t> ids;
  std::unordered_map<uint64_t, BPEMerge> merges;  // of (left << 32 | right)
  std::array<int32_t, 256> byte_ids;              // -1: the vocabulary lacks it
  int32_t unknown = -1;
  bool fuse_unknown = false, ignore_merges = false, prefix_space = false;
  std::vector<SplitPattern> splits;    // each cuts what the one before left
  std::array<AddedTokens, 2> added;    // looked for one after the other
  std::vector<int32_t> before, after;  // around a text

  const BPEToken* find(int64_t id) const {
    return id >= 0 && id < int64_t(by_id.size()) && by_id[size_t(id)] >= 0 ? &tokens[size_t(by_id[size_t(id)])]
                                                                           : nullptr;
  }
};

/// Bytes as a vocabulary writes them; see Note [Byte-level tokens].
std::string bpe_text(std::string_view bytes);
/// The other way round.
std::string bpe_bytes(std::string_view text);

BPEModel read_tokenizer_json(const std::string& path);
BPEModel read_vocab_and_merges(const std::string& vocab, const std::string& merges,
                               const std::vector<std::string>& special);

}  // namespace tapir::inline v0::data
