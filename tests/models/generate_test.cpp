#include <tapir/models/gpt2.h>

#include <algorithm>

#include "../io/temporary.h"
#include "filled.h"
using namespace tapir;
using tapir_tests::message_of;

namespace {
models::GPT2LMHeadModel small() {
  models::GPT2LMHeadModel gpt({.vocab_size = 7, .n_positions = 16, .n_embd = 8, .n_layer = 1, .n_head = 2});
  fill_weights(gpt);
  return gpt;
}
double log_probability(models::GPT2LMHeadModel& gpt, std::vector<int64_t> text, size_t from) {
  const Tensor p = log_softmax(gpt(tensor(text).unsqueeze(0)), -1);
  double sum = 0;
  for (size_t i = from; i < text.size(); ++i) sum += p[{0, int64_t(i) - 1, text[i]}].item();
  return sum;
}
}  // namespace

TEST_CASE("Greedy generation is the most likely token, step by step, and streams") {
  models::GPT2LMHeadModel gpt = small();
  NoGrad guard;
  std::vector<int64_t> text = {1, 2}, streamed;
  const auto got = models::generate(gpt, text, {.max_new_tokens = 5},
                                    [&](int64_t token) { return streamed.push_back(token), true; });
  CHECK(streamed == got);
  for (int64_t token : got) {
    CHECK(gpt(tensor(text).unsqueeze(0)).select(1, -1).argmax().item<int64_t>() == token);
    text.push_back(token);
  }
  CHECK(models::generate(gpt, {1, 2}, {.max_new_tokens = 5}, [&](int64_t) { return false; }).size() == 1);
  CHECK(models::generate(gpt, {1, 2}, {.max_new_tokens = 5, .eos = got[1]}).size() <= 2);
}

TEST_CASE("Beams as wide as all texts find the most likely one") {
  models::GPT2LMHeadModel gpt = small();
  NoGrad guard;
  const auto found = models::generate(gpt, {3, 0}, {.max_new_tokens = 2, .num_beams = 49});
  double best = -INFINITY;
  for (int64_t a = 0; a < 7; ++a)
    for (int64_t b = 0; b < 7; ++b) best = std::max(best, log_probability(gpt, {3, 0, a, b}, 2));
  REQUIRE(found.size() == 2);
  CHECK(log_probability(gpt, {3, 0, found[0], found[1]}, 2) == Approx(best));
  const auto ended = models::generate(gpt, {3, 0}, {.max_new_tokens = 6, .eos = found[0], .num_beams = 3});
  CHECK(ended.size() <= 6);
}

TEST_CASE("Sampling keeps to temperature, top_k and top_p") {
  manual_seed(5);
  const Tensor p = tensor({0.5, 0.3, 0.15, 0.05}), logits = log(p).unsqueeze(0).expand({4000, 4});
  const auto shares = [&](const models::SamplingOptions& o) {
    std::vector<double> count(4, 0);
    for (int64_t token : models::next_token(logits, o).to_vector<int64_t>()) count[size_t(token)] += 1.0 / 4000;
    return count;
  };
  const auto near = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (size_t i = 0; i < got.size(); ++i)
      if (std::fabs(got[i] - want[i]) > 0.05) return false;
    return true;
  };
  CHECK(near(shares({.sample = true}), {0.5, 0.3, 0.15, 0.05}));
  CHECK(near(shares({}), {1, 0, 0, 0}));
  CHECK(near(shares({.sample = true, .top_k = 2}), {0.625, 0.375, 0, 0}));
  CHECK(near(shares({.sample = true, .top_p = 0.7}), {0.625, 0.375, 0, 0}));
  CHECK(near(shares({.sample = true, .top_p = 0.01}), {1, 0, 0, 0}));
  CHECK(
      near(shares({.sample = true, .temperature = 0.5}), {0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365}));
}

namespace {
/// Scores that depend on the last token alone.
struct Chain : nn::Module {
  Parameter scores;  // (V, V): from, to
  explicit Chain(const Tensor& p) : scores(log(p)) {}
  models::KVCache new_cache(int64_t batch, int64_t capacity) { return {1, batch, 1, capacity, 1}; }
  Tensor forward(const Tensor& tokens, models::KVCache&) {
    return index_select(scores, 0, tokens.reshape(-1)).unsqueeze(1);
  }
  TAPIR_FIELDS(scores)
};
}  // namespace

TEST_CASE("Beam search goes on while a longer text may have the better mean") {
  // 0 ends. The text {0} has the mean log 0.3; {1, 2, 0} has (2 log 0.4 + log 0.9) / 3, which is more.
  Chain chain(
      tensor({{0.25, 0.25, 0.25, 0.25}, {0.3, 0.05, 0.4, 0.25}, {0.9, 0.04, 0.03, 0.03}, {0.3, 0.4, 0.2, 0.1}}));
  const std::vector<int64_t> longer = {1, 2, 0};
  CHECK(models::generate(chain, {3}, {.max_new_tokens = 8, .eos = 0, .num_beams = 2}) == longer);
  CHECK(models::generate(chain, {3}, {.max_new_tokens = 8, .eos = 0, .num_beams = 2, .length_penalty = 0}) ==
        std::vector<int64_t>{0});
}

TEST_CASE("KVCache::reorder takes a row for each sequence, in range, or changes nothing") {
  models::KVCache cache(1, 3, 1, 4, 1);
  const Tensor k = tensor({1., 2., 3.}).view({3, 1, 1, 1});
  const auto refused = [&](const Tensor& rows) {
    return message_of<ValueError>([&] { cache.reorder(rows); }).find("[KVCache]") == 0;
  };
  for (int round = 0; round < 2; ++round) {  // empty, then not
    CHECK(refused(tensor({1})));
    CHECK(refused(tensor({0, 1})));
    CHECK(refused(tensor({{0, 1, 2}})));
    CHECK(refused(tensor({0., 1., 2.})));
    CHECK(refused(tensor({0, 1, 3})));
    CHECK(refused(tensor({0, -1, 2})));
    CHECK(refused(Tensor()));
    if (round == 0) cache.append(0, k, k), cache.advance(1);
  }
  const auto held = [&] { return cache.append(0, k, k).first.select(2, 0).flatten().to_vector<float>(); };
  CHECK(held() == std::vector<float>{1, 2, 3});
  cache.reorder(tensor({2, 2, 0}));
  CHECK(held() == std::vector<float>{3, 3, 1});
}
