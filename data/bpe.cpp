#include "bpe.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "../core/error.h"
#include "../ops/create.h"
#include "bpe_model.h"

namespace tapir::inline v0::data {

namespace {

/// std::string_view looks up std::string without a copy.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};

/// One text on its way to tokens. Words that come again take the tokens of the first time.
class Encoder {
 public:
  Encoder(const BPEModel& model, const BPEEncodeOptions& options) : model_(model), options_(options) {}
  std::vector<int64_t> run(std::string_view text) {
    if (options_.add_special_tokens) out_.insert(out_.end(), model_.before.begin(), model_.before.end());
    split_added(text, 0);
    if (options_.add_special_tokens) out_.insert(out_.end(), model_.after.begin(), model_.after.end());
    return std::move(out_);
  }

 private:
  struct Symbol {
    int32_t id, before, after;  // after: -1 at the end, -2 once merged into the one before
  };
  struct Candidate {
    int32_t rank, at, id;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }  // for a heap
  };
  static constexpr size_t kMaxKnown = 1 << 16, kMaxKnownBytes = 64;

  void split_added(std::string_view text, size_t set);
  void words(std::string_view text);
  void word(std::string_view word);
  void merge(std::string_view word);
  void fill(std::string_view word);
  void offer(int32_t at);

  const BPEModel& model_;
  const BPEEncodeOptions& options_;
  std::vector<int64_t> out_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  std::vector<std::string_view> pieces_, cut_;
  std::unordered_map<std::string, std::pair<size_t, size_t>, TextHash, std::equal_to<>> known_;  // word: part of out_
};

void Encoder::split_added(std::string_view text, size_t set) {
  if (set == model_.added.size()) return words(text);
  size_t done = 0;
  const auto is_space = [&](size_t at) { return char_at(text, at).kind == CharKind::Space; };
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = model_.added[set].longest_at(text, at);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at += token->content.size();
    if (token->special && !options_.allow_special) continue;
    for (size_t back = begin; token->lstrip && back > done;) {  // a space of several bytes is met at its first
      --back;
      if ((uint8_t(text[back]) & 0xC0) == 0x80 && back > done) continue;
      if (!is_space(back)) break;
      begin = back;
    }
    while (token->rstrip && end < text.size() && is_space(end)) end += char_at(text, end).bytes;
    if (begin > done) split_added(text.substr(done, begin - done), set + 1);
    out_.push_back(token->id);
    at = done = end;
  }
  if (done < text.size()) split_added(text.substr(done), set + 1);
}

void Encoder::words(std::string_view text) {
  check(text.size() < size_t(std::numeric_limits<int32_t>::max()),
        "[BPETokenizer] expected less than 2 GB between special tokens, got {} bytes", int64_t(text.size()));
  std::string with_space;
  if (model_.prefix_space && !text.starts_with(' ')) {
    with_space = " ";
    text = with_space += text;
  }
  pieces_.assign(1, text);
  for (const SplitPattern pattern : model_.splits) {
    cut_.clear();
    for (const std::string_view piece : pieces_)
      for (size_t at = 0, end; at < piece.size(); at = end) {
        end = word_end(pattern, piece, at);
        cut_.push_back(piece.substr(at, end - at));
      }
    pieces_.swap(cut_);
  }
  for (const std::string_view piece : pieces_) word(piece);
}

void Encoder::word(std::string_view word) {
  if (word.size() == 1 && model_.byte_ids[uint8_t(word[0])] >= 0)
    return out_.push_back(model_.byte_ids[uint8_t(word[0])]);
  if (word.size() > kMaxKnownBytes) return merge(word);
  if (const auto known = known_.find(word); known != known_.end()) {
    const auto [first, count] = known->second;
    for (size_t i = 0; i < count; ++i) out_.push_back(out_[first + i]);
    return;
  }
  const size_t first = out_.size();
  merge(word);
  if (known_.size() < kMaxKnown) known_.emplace(word, std::pair(first, out_.size() - first));
}

/// The pairs of a word, lowest rank first and left before right, until none is left to merge.
void Encoder::merge(std::string_view word) {
  if (model_.ignore_merges)
    if (const auto whole = model_.ids.find(bpe_text(word)); whole != model_.ids.end())
      return out_.push_back(whole->second);
  fill(word);
  heap_.clear();
  for (int32_t i = 0; i + 1 < int32_t(symbols_.size()); ++i) offer(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[size_t(best.at)];
    if (left.after < 0) continue;
    Symbol& right = symbols_[size_t(left.after)];
    const auto pair = model_.merges.find(uint64_t(left.id) << 32 | uint32_t(right.id));
    if (pair == model_.merges.end() || pair->second.id != best.id) continue;  // one of the two has changed since
    left.id = best.id, left.after = std::exchange(right.after, -2);
    if (left.after >= 0) symbols_[size_t(left.after)].before = best.at;
    if (left.before >= 0) offer(left.before);
    offer(best.at);
  }
  for (int32_t i = symbols_.empty() ? -1 : 0; i >= 0; i = symbols_[size_t(i)].after)
    out_.push_back(symbols_[size_t(i)].id);
}

/// One symbol for each byte.
void Encoder::fill(std::string_view word) {
  symbols_.clear();
  for (const char c : word) {
    int32_t id = model_.byte_ids[uint8_t(c)];
    if (id < 0) {
      id = model_.unknown;
      check(id >= 0, "[BPETokenizer] expected bytes that the vocabulary has, got {} in \"{}\"", int64_t(uint8_t(c)),
            word.substr(0, 40));
      if (model_.fuse_unknown && !symbols_.empty() && symbols_.back().id == id) continue;
    }
    const auto i = int32_t(symbols_.size());
    symbols_.push_back({id, i - 1, i + 1});
  }
  if (!symbols_.empty()) symbols_.back().after = -1;
}

/// The pair that begins at symbol `at`, if it is one to merge.
void Encoder::offer(int32_t at) {
  const Symbol& left = symbols_[size_t(at)];
  if (left.after < 0) return;
  const auto pair = model_.merges.find(uint64_t(left.id) << 32 | uint32_t(symbols_[size_t(left.after)].id));
  if (pair == model_.merges.end()) return;
  heap_.push_back({pair->second.rank, at, pair->second.id});
  std::push_heap(heap_.begin(), heap_.end());
}

const BPEToken& token_of(const BPEModel& model, int64_t id) {
  const BPEToken* token = model.find(id);
  check(token, "[BPETokenizer] expected a token below {}, got {}", int64_t(model.by_id.size()), id);
  return *token;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  uint32_t node = 0;
  for (const char c : token.content) {
    const auto [at, fresh] = next_.emplace(uint64_t(node) << 8 | uint8_t(c), uint32_t(token_of_.size()));
    if (fresh) token_of_.push_back(-1);
    node = at->second;
  }
  begins_[uint8_t(token.content[0])] = true;
  token_of_[node] = int32_t(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at) const {
  if (!begins_[uint8_t(text[at])]) return nullptr;
  const AddedToken* found = nullptr;
  for (uint32_t node = 0; at < text.size(); ++at) {
    const auto next = next_.find(uint64_t(node) << 8 | uint8_t(text[at]));
    if (next == next_.end()) break;
    node = next->second;
    if (token_of_[node] >= 0) found = &tokens_[size_t(token_of_[node])];
  }
  return found;
}

BPETokenizer::BPETokenizer(const std::string& tokenizer_json)
    : model_(std::in_place_type<const BPEModel>, read_tokenizer_json(tokenizer_json)) {}
BPETokenizer::BPETokenizer(const std::string& vocab_json, const std::string& merges_txt,
                           const std::vector<std::string>& special)
    : model_(std::in_place_type<const BPEModel>, read_vocab_and_merges(vocab_json, merges_txt, special)) {}

int64_t BPETokenizer::size() const { return int64_t(model_->by_id.size()); }

Tensor BPETokenizer::encode(std::string_view text, const BPEEncodeOptions& options) const {
  return tensor(Encoder(*model_, options).run(text));
}

std::string BPETokenizer::decode(const std::vector<int64_t>& tokens, const BPEDecodeOptions& options) const {
  std::string out;
  for (const int64_t id : tokens)
    if (const BPEToken& token = token_of(*model_, id); !token.special || !options.skip_special_tokens)
      out += token.bytes;
  return out;
}
std::string BPETokenizer::decode(const Tensor& tokens, const BPEDecodeOptions& options) const {
  check(tokens.defined() && !is_floating(tokens.dtype()) && tokens.dtype() != kBool,
        "[BPETokenizer] expected tokens of an integer dtype, got {}", tokens);
  return decode(tokens.to_vector<int64_t>(), options);
}
std::string BPETokenizer::decode(int64_t token) const { return token_of(*model_, token).bytes; }

std::optional<int64_t> BPETokenizer::token_to_id(std::string_view token) const {
  const auto found = model_->ids.find(std::string(token));
  return found == model_->ids.end() ? std::nullopt : std::optional<int64_t>(found->second);
}
std::string BPETokenizer::id_to_token(int64_t token) const { return token_of(*model_, token).text; }

}  // namespace tapir::inline v0::data
