#include <tapir/models/llama.h>

#include "filled.h"
using namespace tapir;

namespace {
models::LlamaForCausalLM small() {
  models::LlamaForCausalLM llama({.vocab_size = 11,
                                  .hidden_size = 8,
                                  .intermediate_size = 12,
                                  .num_hidden_layers = 2,
                                  .num_attention_heads = 4,
                                  .num_key_value_heads = 2,
                                  .max_position_embeddings = 16});
  fill_weights(llama);
  return llama;
}
const Tensor kTokens = tensor({{1, 4, 2, 9, 0}});
}  // namespace

TEST_CASE("Llama gives the scores of its reference, under its names") {
  models::LlamaForCausalLM llama = small();
  const auto names = llama.named_parameters();
  CHECK(names[1].first == "model.layers.0.self_attn.q_proj.weight");
  CHECK(names[9].first == "model.layers.0.post_attention_layernorm.weight");
  const Tensor y = llama(kTokens);
  check_values(y.select(0, 0).select(0, 4), {0.40132440, -0.58582303, 0.75105663, -0.89159144, 1.00280596, -1.08104281,
                                             1.12372919, -1.12946129, 1.09805062, -1.03053018, 0.92912037});
  CHECK(std::fabs(y.sum().item() - 1.02798554) < 1e-6);
}

TEST_CASE("Tokens fed to Llama through a cache give the scores of the whole text, and generate") {
  models::LlamaForCausalLM llama = small();
  NoGrad guard;
  const Tensor whole = llama(kTokens);
  models::KVCache cache = llama.new_cache(1, 16);
  std::vector<Tensor> out;
  for (int64_t n : {2, 2, 1}) out.push_back(llama(kTokens.narrow(1, cache.length(), n), cache));
  CHECK(allclose(cat(out, 1), whole));
  CHECK(models::generate(llama, {1, 4}, {.max_new_tokens = 3}).size() == 3);
  CHECK_THROWS_AS(llama(zeros({1, 17}, {.dtype = kInt64})), ValueError);
}
