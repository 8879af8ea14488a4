#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "../core/modes.h"
#include "../core/tensor.h"

// Text from a model of tokens: the cache of keys and values that decoding fills, and the choice of the next token.
namespace tapir::inline v0::models {

/// Keys and values of all layers (B, H, capacity, D), allocated once; the first `length` places are filled.
class KVCache {
 public:
  KVCache(int64_t layers, int64_t batch, int64_t heads, int64_t capacity, int64_t depth,
          const TensorOptions& options = {});
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  /// Room for `count` more places; ValueError where there is none.
  void reserve(int64_t count) const;
  /// k and v (B, H, T, D) go behind what layer i holds; all of them, as views.
  std::pair<Tensor, Tensor> append(int64_t i, const Tensor& k, const Tensor& v);
  /// After all layers have appended.
  void advance(int64_t count) { length_ += count; }
  void clear() { length_ = 0; }
  /// Sequence b becomes what rows[b] was.
  void reorder(const Tensor& rows);

 private:
  std::vector<Tensor> keys_, values_;
  int64_t length_ = 0, capacity_;
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
void check_generate(const GenerateOptions& options, int64_t prompt);
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
  const auto last_scores = [&](const Tensor& tokens) { return model(tokens, cache).select(1, -1); };
  std::vector<int64_t> out;
  Tensor tokens = detail::token_rows(prompt, beams, device);
  detail::Beams search(options);
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const Tensor scores = last_scores(tokens);
    if (beams > 1) {
      const std::vector<int64_t> parents = search.step(scores);
      if (search.done()) return search.ended.at(0).second;
      cache.reorder(detail::token_rows(parents, 1, device).select(0, 0));
      std::vector<int64_t> last;
      for (auto& beam : search.tokens) last.push_back(beam.back());
      tokens = detail::token_rows(last, 1, device).t();
      continue;
    }
    tokens = next_token(scores, options.sampling).unsqueeze(1);
    out.push_back(tokens.template item<int64_t>());
    if (!on_token(out.back()) || out.back() == options.eos) break;
  }
  return out;
}
template <class Model>
std::vector<int64_t> generate(Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options = {}) {
  return generate(model, prompt, options, [](int64_t) { return true; });
}

}  // namespace tapir::inline v0::models
