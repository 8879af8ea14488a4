#include "gpt2.h"

#include <cmath>

#include "../core/checks.h"
#include "../functional/checkpoint.h"
#include "../nn/init.h"
#include "../nn/layer_count.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/attention.h"
#include "../ops/create.h"
#include "../ops/loss.h"
#include "../ops/matmul.h"
#include "../ops/pointwise.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"

namespace tapir::inline v0::models {

GPT2Config gpt2_config(const std::string& name) {
  GPT2Config c;
  if (name == "gpt2") return c;
  if (name == "gpt2-medium") c.n_embd = 1024, c.n_layer = 24, c.n_head = 16;
  else if (name == "gpt2-large") c.n_embd = 1280, c.n_layer = 36, c.n_head = 20;
  else if (name == "gpt2-xl") c.n_embd = 1600, c.n_layer = 48, c.n_head = 25;
  else check(false, "[gpt2_config] expected gpt2, gpt2-medium, gpt2-large or gpt2-xl, got {}", name);
  return c;
}

GPT2Attention::GPT2Attention(const GPT2Config& c)
    : heads(c.n_head), c_attn(3 * c.n_embd, c.n_embd), c_proj(c.n_embd, c.n_embd), attn_dropout(c.dropout),
      resid_dropout(c.dropout) {
  check(heads > 0 && c.n_embd % heads == 0, "[GPT2Attention] expected n_embd divisible by n_head, got {} and {}",
        c.n_embd, heads);
}
Tensor GPT2Attention::forward(const Tensor& x, int64_t layer, KVCache* cache) {
  const int64_t batch = x.size(0), steps = x.size(1), width = x.size(2);
  const auto split = [&](const Tensor& part) {  // (B, H, T, D)
    return transpose(reshape(part, {batch, steps, heads, width / heads}), 1, 2);
  };
  const std::vector<Tensor> parts = chunk(c_attn(x), 3, -1);
  const Tensor q = split(parts[0]), k = split(parts[1]), v = split(parts[2]);
  const double dropout_p = training ? attn_dropout.p : 0;
  const Tensor y = cache ? cache->attend(layer, q, k, v, dropout_p)
                         : scaled_dot_product_attention(q, k, v, {.dropout_p = dropout_p, .is_causal = true});
  return resid_dropout(c_proj(reshape(transpose(y, 1, 2), {batch, steps, width})));
}

GPT2MLP::GPT2MLP(const GPT2Config& c)
    : c_fc(4 * c.n_embd, c.n_embd), c_proj(c.n_embd, 4 * c.n_embd), dropout(c.dropout) {}
Tensor GPT2MLP::forward(const Tensor& x) { return dropout(c_proj(gelu(c_fc(x), "tanh"))); }

GPT2Block::GPT2Block(const GPT2Config& c)
    : ln_1(c.n_embd, {.eps = c.layer_norm_epsilon}), attn(c), ln_2(c.n_embd, {.eps = c.layer_norm_epsilon}), mlp(c) {}
Tensor GPT2Block::forward(const Tensor& x, int64_t layer, KVCache* cache) {
  const Tensor y = add(x, attn(ln_1(x), layer, cache));
  return add(y, mlp(ln_2(y)));
}

GPT2Model::GPT2Model(const GPT2Config& c)
    : checkpoint_blocks(c.checkpoint), wte(c.vocab_size, c.n_embd), wpe(c.n_positions, c.n_embd), drop(c.dropout),
      ln_f(c.n_embd, {.eps = c.layer_norm_epsilon}) {
  nn::check_layers("GPT2Model", "n_layer", c.n_layer);
  nn::init::normal_(wte.weight, 0, 0.02), nn::init::normal_(wpe.weight, 0, 0.02);
  for (int64_t i = 0; i < c.n_layer; ++i) {
    h.emplace_back(c);
    for (Conv1D* last : {&h.back().attn.c_proj, &h.back().mlp.c_proj})  // as many as add to the residual stream
      nn::init::normal_(last->weight, 0, 0.02 / std::sqrt(2.0 * double(c.n_layer)));
  }
}
Tensor GPT2Model::forward(const Tensor& tokens, KVCache* cache) {
  check(tokens.dim() == 2 && tokens.size(1) > 0, "[GPT2Model] expected tokens (B, T), got {}", tokens);
  const int64_t steps = tokens.size(1), room = wpe.num_embeddings;
  check(steps <= room, "[GPT2Model] expected at most {} positions, got {} tokens", room, steps);
  const Tensor positions = cache ? wpe(cache->begin(steps)) : narrow(wpe.weight, 0, 0, steps);
  Tensor x = drop(add(wte(tokens), positions));
  for (size_t i = 0; i < h.size(); ++i) {
    const auto block = [this, i, cache](const Tensor& x) { return h[i](x, int64_t(i), cache); };
    x = checkpoint_blocks && !cache ? checkpoint(block, x) : block(x);
  }
  if (cache) cache->advance(steps);
  return ln_f(x);
}

GPT2LMHeadModel::GPT2LMHeadModel(const GPT2Config& c)
    : config(c), transformer(c), lm_head(c.n_embd, c.vocab_size, {.bias = false}) {
  lm_head.weight = transformer.wte.weight;
}
Tensor GPT2LMHeadModel::forward(const Tensor& tokens) { return lm_head(transformer(tokens)); }
Tensor GPT2LMHeadModel::forward(const Tensor& tokens, KVCache& cache) { return lm_head(transformer(tokens, &cache)); }
Tensor GPT2LMHeadModel::loss(const Tensor& tokens, const Tensor& targets) {
  return linear_cross_entropy(transformer(tokens), lm_head.weight, targets);
}
KVCache GPT2LMHeadModel::new_cache(int64_t batch, int64_t capacity) {
  check(capacity <= config.n_positions, "[GPT2LMHeadModel] expected a capacity of at most {} positions, got {}",
        config.n_positions, capacity);
  const Tensor& weight = transformer.ln_f.weight;  // lm_head may be quantized
  return KVCache(config.n_layer, batch, config.n_head, capacity, config.n_embd / config.n_head,
                 {.dtype = weight.dtype(), .device = weight.device()});
}
void GPT2LMHeadModel::load_pretrained(const StateDict& state) {
  StateDict named;
  for (auto& [name, x] : state)
    if (!name.ends_with(".attn.bias") && !name.ends_with(".attn.masked_bias"))
      named.append(name.starts_with("transformer.") || name.starts_with("lm_head.") ? name : "transformer." + name, x);
  if (!named.contains("lm_head.weight")) named.append("lm_head.weight", named.at("transformer.wte.weight"));
  load_state_dict(named);
}

TAPIR_DEFINE_FIELDS(GPT2Attention, GPT2MLP, GPT2Block, GPT2Model, GPT2LMHeadModel)

}  // namespace tapir::inline v0::models
