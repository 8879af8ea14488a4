#pragma once
#include "../nn/linear.h"
#include "../nn/sparse.h"
#include "generate.h"
#include "rope.h"

// Llama-style decoders under Hugging Face's weight names. Touvron et al. 2023, arXiv 2302.13971 and 2307.09288.
namespace tapir::inline v0::models {

struct LlamaConfig {
  int64_t vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008;
  int64_t num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32;
  std::optional<int64_t> head_dim = {};  // none: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6, rope_theta = 10000;
  RopeScaling rope_scaling = {};
  bool tie_word_embeddings = false;
  bool checkpoint =
      false;  // layers keep their inputs alone and run again in backward; the model must not move meanwhile
};
/// Hugging Face's config.json, in old spellings too ("rope_scaling", "type") and in new ones ("rope_parameters", "rope_type"). RuntimeError
/// for what this model does not compute: other kinds of rope_scaling, biases, another activation, quantized weights.
LlamaConfig llama_config(const std::string& path);
/// The rotation of its heads. ValueError for a rope_scaling whose numbers are missing or out of range.
RotaryEmbedding rotary_embedding(const LlamaConfig& config);

/// x / sqrt(mean(x^2) + eps) weight. Zhang and Sennrich 2019, arXiv 1910.07467.
struct LlamaRMSNorm : nn::Module {
  double eps;
  Parameter weight;
  LlamaRMSNorm(int64_t size, double eps);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(eps, weight)
};
/// Groups of queries share keys and values. Ainslie et al. 2023, arXiv 2305.13245.
struct LlamaAttention : nn::Module {
  int64_t heads, groups, depth;
  nn::Linear q_proj, k_proj, v_proj, o_proj;
  explicit LlamaAttention(const LlamaConfig& config);
  Tensor forward(const Tensor& x, const RotaryTable& rotary, int64_t layer, KVCache* cache);
  TAPIR_DECLARE_FIELDS(heads, groups, depth, q_proj, k_proj, v_proj, o_proj)
};
/// down(silu(gate(x)) up(x)). Shazeer 2020, arXiv 2002.05202.
struct LlamaMLP : nn::Module {
  nn::Linear gate_proj, up_proj, down_proj;
  explicit LlamaMLP(const LlamaConfig& config);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(gate_proj, up_proj, down_proj)
};
struct LlamaDecoderLayer : nn::Module {
  LlamaAttention self_attn;
  LlamaMLP mlp;
  LlamaRMSNorm input_layernorm, post_attention_layernorm;
  explicit LlamaDecoderLayer(const LlamaConfig& config);
  Tensor forward(const Tensor& x, const RotaryTable& rotary, int64_t layer, KVCache* cache);
  TAPIR_DECLARE_FIELDS(self_attn, mlp, input_layernorm, post_attention_layernorm)
};
/// Tokens (B, T) -> hidden states (B, T, hidden_size).
struct LlamaModel : nn::Module {
  LlamaConfig config;
  nn::Embedding embed_tokens;
  std::vector<LlamaDecoderLayer> layers;
  LlamaRMSNorm norm;
  explicit LlamaModel(const LlamaConfig& config);
  Tensor forward(const Tensor& tokens, KVCache* cache = nullptr);
  TAPIR_DECLARE_FIELDS(config, embed_tokens, layers, norm)
};
/// Tokens (B, T) -> scores (B, T, vocab_size). With a cache, tokens follow what it holds. ValueError beyond the cache's capacity, and
/// beyond max_position_embeddings or what rope_scaling makes of it (RotaryEmbedding::max_length).
struct LlamaForCausalLM : nn::Module {
  LlamaModel model;
  nn::Linear lm_head;
  explicit LlamaForCausalLM(const LlamaConfig& config = {});
  Tensor forward(const Tensor& tokens);
  Tensor forward(const Tensor& tokens, KVCache& cache);
  /// The mean cross entropy of `targets` (B, T), the tokens that come next, by linear_cross_entropy: all logits are never in memory.
  Tensor loss(const Tensor& tokens, const Tensor& targets);
  KVCache new_cache(int64_t batch, int64_t capacity);
  /// A checkpoint as it is published: without lm_head where it is tied, tables of old versions left out.
  void load_pretrained(const StateDict& state);
  TAPIR_DECLARE_FIELDS(model, lm_head)
};

}  // namespace tapir::inline v0::models
