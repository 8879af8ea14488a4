#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "../compile/compile.h"
#include "../core/modes.h"
#include "../core/tensor.h"
#include "../nn/module.h"

// Text from a model of tokens: the cache of keys and values that decoding fills, and the choice of the next token.
namespace tapir::inline v0::models {

// Note [The length of a cache]
// It is a tensor on the device: keys and values are written, and positions looked up, at places that are computed from it, and attention
// reads it. So decoding is one program for all positions, which compile() replays. The host has a copy, so that eager calls need not ask
// the device; it holds as long as the tensor's version is the one that it was made at, and a replay raises the version. Where no copy
// holds, a full cache is noticed by the kernel that writes: a ValueError, and the length stays; on a GPU the error comes with the next wait, the
// length goes on meanwhile, and clear() makes the cache usable again.

/// Keys and values of all layers (B, H, capacity, D), allocated once; the first `length` places are filled.
class KVCache {
 public:
  KVCache(int64_t layers, int64_t batch, int64_t heads, int64_t capacity, int64_t depth,
          const TensorOptions& options = {});
  /// A cache of the same memory whose length goes its own way.
  KVCache(const KVCache& other);
  KVCache& operator=(const KVCache& other) { return *this = KVCache(other); }
  KVCache(KVCache&&) noexcept = default;
  KVCache& operator=(KVCache&&) noexcept = default;
  /// Waits for the device after replays of a compiled step. Inside of a step it is a number that changes: see replayable().
  int64_t length() const;
  int64_t capacity() const { return capacity_; }
  /// Room for `count` more places; ValueError where there is none.
  void reserve(int64_t count) const;

  // A model's call: begin, attend in each layer, advance.
  /// The next `count` places, int64 (count) on the device. ValueError where the host knows that there are fewer.
  Tensor begin(int64_t count);
  /// k and v (B, H, T, D) go to the places that begin() gave; q (B, R H, T, D) attends to them and to what is before.
  Tensor attend(int64_t i, const Tensor& q, const Tensor& k, const Tensor& v, double dropout_p = 0);
  /// After all layers have attended or appended.
  void advance(int64_t count);

  /// k and v (B, H, T, D) go behind what layer i holds; all of them, as views, whose shapes are a program's own.
  std::pair<Tensor, Tensor> append(int64_t i, const Tensor& k, const Tensor& v);
  void clear();
  /// Sequence b becomes what rows[b] was: integers (B). ValueError for others, and rows out of range.
  void reorder(const Tensor& rows);
  /// Has nobody asked for the length, or appended and got views of it? Steps are then alike at all positions.
  bool replayable() const { return !asked_; }

 private:
  bool known() const { return length_.version() == version_; }
  void know(int64_t count) const;
  int64_t count() const;
  void write(int64_t i, const Tensor& k, const Tensor& v);
  static constexpr uint32_t kNoVersion = ~uint32_t(0);
  std::vector<Tensor> both_;           // of each layer (2, B, H, capacity, D)
  std::vector<Tensor> keys_, values_;  // views of it
  Tensor length_;                      // 0-dim int64
  Tensor places_, until_;              // between begin and advance: the places, and the length afterwards
  int64_t capacity_;
  mutable bool asked_ = false;
  mutable int64_t count_ = 0;              // the length, as long as it is known
  mutable uint32_t version_ = kNoVersion;  // of length_, when that was so
};
/// What queries at `past`, past + 1, ... may see: undefined for a single query, else (T, past + T) bool.
Tensor causal_mask(int64_t past, int64_t queries, Device device);

struct SamplingOptions {
  bool sample = false;                // else the most likely token
  double temperature = 1;             // above 0: scores are divided by it
  std::optional<int64_t> top_k = {};  // above 0: only the k most likely tokens
  double top_p =
      1;  // in (0, 1]: only the most likely tokens that have this probability together. Holtzman et al. 2019, arXiv 1904.09751
};
/// ValueError for numbers out of range.
void check_sampling(const SamplingOptions& options);
/// Scores (B, V) -> the next tokens (B), int64.
Tensor next_token(const Tensor& logits, const SamplingOptions& options = {});

struct GenerateOptions {
  int64_t max_new_tokens = 20;
  SamplingOptions sampling = {};
  std::optional<int64_t> eos = {};  // ends a sequence; it stands last
  int64_t num_beams = 1;            // above 1: beam search, of the sum of log probabilities / length^length_penalty
  double length_penalty = 1;
  std::optional<bool> compile = {};  // steps of a token are replayed; none: where nothing speaks against it
  int64_t read_every =
      0;  // tokens that are made before the host reads them, and sees an end; 0: 1 on the CPU, 8 elsewhere
};
namespace detail {
/// Beam search, as Hugging Face's generate does it by default.
struct Beams {
  std::vector<std::vector<int64_t>> tokens;  // of the beams that go on, without the prompt, best first
  std::vector<double> scores;
  std::vector<std::pair<double, std::vector<int64_t>>> ended;  // with their score / length^length_penalty, best first
  const GenerateOptions& options;
  explicit Beams(const GenerateOptions& options) : options(options) {}
  /// From scores (beams, V): the parents of the beams that go on.
  std::vector<int64_t> step(const Tensor& logits);
  bool done() const;

 private:
  double normalized(double score, size_t length) const;
  void end(double score, std::vector<int64_t> beam);
};
Tensor token_rows(const std::vector<int64_t>& tokens, int64_t rows, Device device);
std::vector<int64_t> read_tokens(const std::vector<Tensor>& tokens);  // of one element each
void check_generate(const GenerateOptions& options, int64_t prompt);
/// Is compiling the steps that follow a prompt right (hooks run on the host, views of the cache change their shapes) and worth it?
bool is_worth_compiling(nn::Module& model, const KVCache& cache, const GenerateOptions& options);

/// Beam search.
template <class Model>
std::vector<int64_t> search_beams(Model& model, KVCache& cache, Tensor tokens, const GenerateOptions& options) {
  const Device device = tokens.device();
  Beams search(options);
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const std::vector<int64_t> parents = search.step(model(tokens, cache).select(1, -1));
    if (search.done()) break;
    cache.reorder(token_rows(parents, 1, device).select(0, 0));
    std::vector<int64_t> last;
    for (auto& beam : search.tokens) last.push_back(beam.back());
    tokens = token_rows(last, 1, device).t();
  }
  return search.ended.at(0).second;
}
}  // namespace detail

/// The tokens that follow `prompt`. The model is called as model(tokens (B, T), KVCache&) -> scores (B, T, V) and makes its cache by
/// model.new_cache(B, capacity). `on_token(token)` sees each token as it is chosen (not of beams), and ends the text by returning false.
template <class Model, class F> std::vector<int64_t> generate(Model& model, const std::vector<int64_t>& prompt,
                                                              const GenerateOptions& options, F&& on_token) {
  detail::check_generate(options, int64_t(prompt.size()));
  NoGrad guard;
  const int64_t beams = options.num_beams, total = int64_t(prompt.size()) + options.max_new_tokens;
  KVCache cache = model.new_cache(beams, total);
  const Device device = model.parameters().at(0).device();
  Tensor tokens = detail::token_rows(prompt, beams, device);
  if (beams > 1) return detail::search_beams(model, cache, tokens, options);
  const auto step = [&](const Tensor& before) {
    NoGrad inside;
    return next_token(model(before, cache).select(1, -1), options.sampling).unsqueeze(1);
  };
  tokens = step(tokens);
  auto replayed = compile(step, {.enabled = detail::is_worth_compiling(model, cache, options)});
  const int64_t every = options.read_every ? options.read_every : device.is_cpu() ? 1 : 8;
  std::vector<int64_t> out;
  std::vector<Tensor> unread = {tokens};
  for (int64_t made = 1;; ++made, unread.push_back(tokens = replayed(tokens))) {
    if (int64_t(unread.size()) < every && made < options.max_new_tokens) continue;
    for (const int64_t token : detail::read_tokens(unread)) {
      out.push_back(token);
      if (!on_token(token) || token == options.eos) return out;
    }
    unread.clear();
    if (made == options.max_new_tokens) return out;
  }
}
template <class Model>
std::vector<int64_t> generate(Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options = {}) {
  return generate(model, prompt, options, [](int64_t) { return true; });
}

}  // namespace tapir::inline v0::models
