#include "llama.h"

#include "../core/checks.h"
#include "../functional/checkpoint.h"
#include "../nn/init.h"
#include "../nn/layer_count.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/attention.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/loss.h"
#include "../ops/norm.h"
#include "../ops/pointwise.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/unary.h"

namespace tapir::inline v0::models {

LlamaRMSNorm::LlamaRMSNorm(int64_t size, double eps) : eps(eps), weight(ones(size)) {}
Tensor LlamaRMSNorm::forward(const Tensor& x) { return rms_norm(x, weight.shape(), {.weight = weight, .eps = eps}); }

static int64_t head_size(const LlamaConfig& c) {
  return c.head_dim.value_or(c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0);
}
RotaryEmbedding rotary_embedding(const LlamaConfig& c) {
  return {c.rope_scaling, c.rope_theta, head_size(c), c.max_position_embeddings};
}

LlamaAttention::LlamaAttention(const LlamaConfig& c)
    : heads(c.num_attention_heads), groups(c.num_key_value_heads), depth(head_size(c)),
      q_proj(c.hidden_size, heads * depth, {.bias = false}), k_proj(c.hidden_size, groups * depth, {.bias = false}),
      v_proj(c.hidden_size, groups * depth, {.bias = false}), o_proj(heads * depth, c.hidden_size, {.bias = false}) {
  check(heads > 0 && groups > 0 && heads % groups == 0 && depth > 0 && depth % 2 == 0 &&
            (c.head_dim || c.hidden_size % heads == 0),
        "[LlamaAttention] expected hidden_size in heads of an even size, and heads a multiple of key-value heads, got "
        "{}, {} and {}",
        c.hidden_size, heads, groups);
}
Tensor LlamaAttention::forward(const Tensor& x, const RotaryTable& rotary, int64_t layer, KVCache* cache) {
  const int64_t batch = x.size(0), steps = x.size(1);
  const auto split = [&](const Tensor& y, int64_t n) { return transpose(reshape(y, {batch, steps, n, depth}), 1, 2); };
  const Tensor q = rotary.rotate(split(q_proj(x), heads));  // (B, H, T, D)
  const Tensor k = rotary.rotate(split(k_proj(x), groups)), v = split(v_proj(x), groups);
  const Tensor y = cache ? cache->attend(layer, q, k, v)
                         : scaled_dot_product_attention(q, k, v, {.is_causal = true, .enable_gqa = true});
  return o_proj(reshape(transpose(y, 1, 2), {batch, steps, heads * depth}));
}

LlamaMLP::LlamaMLP(const LlamaConfig& c)
    : gate_proj(c.hidden_size, c.intermediate_size, {.bias = false}),
      up_proj(c.hidden_size, c.intermediate_size, {.bias = false}),
      down_proj(c.intermediate_size, c.hidden_size, {.bias = false}) {}
Tensor LlamaMLP::forward(const Tensor& x) { return down_proj(mul(silu(gate_proj(x)), up_proj(x))); }

LlamaDecoderLayer::LlamaDecoderLayer(const LlamaConfig& c)
    : self_attn(c), mlp(c), input_layernorm(c.hidden_size, c.rms_norm_eps),
      post_attention_layernorm(c.hidden_size, c.rms_norm_eps) {}
Tensor LlamaDecoderLayer::forward(const Tensor& x, const RotaryTable& rotary, int64_t layer, KVCache* cache) {
  const Tensor y = add(x, self_attn(input_layernorm(x), rotary, layer, cache));
  return add(y, mlp(post_attention_layernorm(y)));
}

LlamaModel::LlamaModel(const LlamaConfig& c)
    : config(c), embed_tokens(c.vocab_size, c.hidden_size), norm(c.hidden_size, c.rms_norm_eps) {
  nn::check_layers("LlamaModel", "num_hidden_layers", c.num_hidden_layers);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) layers.emplace_back(c);
  rotary_embedding(c);  // its checks
}
Tensor LlamaModel::forward(const Tensor& tokens, KVCache* cache) {
  check(tokens.dim() == 2 && tokens.size(1) > 0, "[LlamaModel] expected tokens (B, T), got {}", tokens);
  const RotaryEmbedding embedding = rotary_embedding(config);
  const int64_t steps = tokens.size(1), room = embedding.max_length();
  check(cache ? cache->capacity() <= room : steps <= room,
        "[LlamaModel] expected at most {} positions, got {} tokens and a capacity of {}", room, steps,
        cache ? cache->capacity() : steps);
  Tensor x = embed_tokens(tokens);
  const Tensor positions = cache ? cache->begin(steps) : arange(steps, {.device = x.device()});
  const RotaryTable rotary = embedding.table(positions, x.dtype());
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = [this, i, rotary, cache](const Tensor& x) { return layers[i](x, rotary, int64_t(i), cache); };
    x = config.checkpoint && !cache ? checkpoint(layer, x) : layer(x);
  }
  if (cache) cache->advance(steps);
  return norm(x);
}

LlamaForCausalLM::LlamaForCausalLM(const LlamaConfig& c)
    : model(c), lm_head(c.hidden_size, c.vocab_size, {.bias = false}) {
  for (Tensor& p : parameters())
    if (p.dim() == 2) nn::init::normal_(p, 0, 0.02);
  if (c.tie_word_embeddings) lm_head.weight = model.embed_tokens.weight;
}
Tensor LlamaForCausalLM::forward(const Tensor& tokens) { return lm_head(model(tokens)); }
Tensor LlamaForCausalLM::forward(const Tensor& tokens, KVCache& cache) { return lm_head(model(tokens, &cache)); }
Tensor LlamaForCausalLM::loss(const Tensor& tokens, const Tensor& targets) {
  return linear_cross_entropy(model(tokens), lm_head.weight, targets);
}
KVCache LlamaForCausalLM::new_cache(int64_t batch, int64_t capacity) {
  const LlamaConfig& c = model.config;
  const int64_t room = rotary_embedding(c).max_length();
  check(capacity <= room, "[LlamaForCausalLM] expected a capacity of at most {} positions, got {}", room, capacity);
  return KVCache(c.num_hidden_layers, batch, c.num_key_value_heads, capacity, head_size(c),
                 {.dtype = model.norm.weight.dtype(), .device = model.norm.weight.device()});
}
void LlamaForCausalLM::load_pretrained(const StateDict& state) {
  StateDict named;
  for (auto& [name, x] : state)
    if (!name.ends_with("rotary_emb.inv_freq")) named.append(name, x);
  if (lm_head.weight.is_same(model.embed_tokens.weight) && !named.contains("lm_head.weight"))
    named.append("lm_head.weight", named.at("model.embed_tokens.weight"));
  load_state_dict(named);
}

TAPIR_DEFINE_FIELDS(LlamaRMSNorm, LlamaAttention, LlamaMLP, LlamaDecoderLayer, LlamaModel, LlamaForCausalLM)

}  // namespace tapir::inline v0::models
