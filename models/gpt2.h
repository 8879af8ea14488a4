#pragma once
#include "../nn/dropout.h"
#include "../nn/linear.h"
#include "../nn/norm.h"
#include "../nn/sparse.h"
#include "generate.h"

// GPT-2 under Hugging Face's weight names: its checkpoints load. Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
namespace tapir::inline v0::models {

struct GPT2Config {
  int64_t vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12;
  double dropout = 0.1, layer_norm_epsilon = 1e-5;  // resid_pdrop, embd_pdrop and attn_pdrop
  bool checkpoint =
      false;  // blocks keep their inputs alone and run again in backward; the model must not move meanwhile
};
/// "gpt2" (124 M parameters), "gpt2-medium" (355 M), "gpt2-large" (774 M) or "gpt2-xl" (1.6 G).
GPT2Config gpt2_config(const std::string& name);

using nn::Conv1D;
struct GPT2Attention : nn::Module {
  int64_t heads;
  Conv1D c_attn, c_proj;
  nn::Dropout attn_dropout, resid_dropout;
  explicit GPT2Attention(const GPT2Config& config);
  Tensor forward(const Tensor& x, int64_t layer, KVCache* cache);
  TAPIR_DECLARE_FIELDS(heads, c_attn, c_proj, attn_dropout, resid_dropout)
};
struct GPT2MLP : nn::Module {
  Conv1D c_fc, c_proj;
  nn::Dropout dropout;
  explicit GPT2MLP(const GPT2Config& config);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(c_fc, c_proj, dropout)
};
struct GPT2Block : nn::Module {
  nn::LayerNorm ln_1;
  GPT2Attention attn;
  nn::LayerNorm ln_2;
  GPT2MLP mlp;
  explicit GPT2Block(const GPT2Config& config);
  Tensor forward(const Tensor& x, int64_t layer, KVCache* cache);
  TAPIR_DECLARE_FIELDS(ln_1, attn, ln_2, mlp)
};
/// Tokens (B, T) -> hidden states (B, T, n_embd).
struct GPT2Model : nn::Module {
  bool checkpoint_blocks;
  nn::Embedding wte, wpe;
  nn::Dropout drop;
  std::vector<GPT2Block> h;
  nn::LayerNorm ln_f;
  explicit GPT2Model(const GPT2Config& config);
  Tensor forward(const Tensor& tokens, KVCache* cache = nullptr);
  TAPIR_DECLARE_FIELDS(checkpoint_blocks, wte, wpe, drop, h, ln_f)
};
/// Tokens (B, T) -> scores (B, T, vocab_size); the last layer shares the weight of the token embedding. With a cache, tokens follow what
/// it holds. ValueError beyond n_positions or the cache's capacity.
struct GPT2LMHeadModel : nn::Module {
  GPT2Config config;
  GPT2Model transformer;
  nn::Linear lm_head;
  explicit GPT2LMHeadModel(const GPT2Config& config = {});
  Tensor forward(const Tensor& tokens);
  Tensor forward(const Tensor& tokens, KVCache& cache);
  /// The mean cross entropy of `targets` (B, T), the tokens that come next, by linear_cross_entropy: all logits are never in memory.
  Tensor loss(const Tensor& tokens, const Tensor& targets);
  KVCache new_cache(int64_t batch, int64_t capacity);
  /// A checkpoint as it is published: with or without "transformer." and lm_head, masks of old versions left out.
  void load_pretrained(const StateDict& state);
  TAPIR_DECLARE_FIELDS(config, transformer, lm_head)
};

}  // namespace tapir::inline v0::models
