#include "vit.h"

#include <cmath>

#include "../core/checks.h"
#include "../nn/activation.h"
#include "../nn/dropout.h"
#include "../nn/layer_count.h"
#include "../ops/arithmetic.h"
#include "../ops/attention.h"
#include "../ops/create.h"
#include "../ops/dropout.h"
#include "../ops/matmul.h"
#include "../ops/random.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "init.h"

namespace tapir::inline v0::models {

SelfAttention::SelfAttention(int64_t hidden, int64_t heads, double dropout)
    : heads(heads), dropout(dropout), in_proj_weight(empty({3 * hidden, hidden})), in_proj_bias(zeros(3 * hidden)),
      out_proj(hidden, hidden) {
  check(heads > 0 && hidden % heads == 0, "[SelfAttention] expected heads that divide {}, got {}", hidden, heads);
  nn::init::xavier_uniform_(in_proj_weight);
  nn::init::zeros_(out_proj.bias);
}
Tensor SelfAttention::forward(const Tensor& x) {
  const int64_t n = x.size(0), s = x.size(1), e = x.size(2);
  const Tensor qkv = linear(x, in_proj_weight, in_proj_bias).reshape({n, s, 3, heads, e / heads});
  const Tensor split = permute(qkv, {2, 0, 3, 1, 4});  // (3, N, heads, S, E / heads)
  const Tensor y = scaled_dot_product_attention(split.select(0, 0), split.select(0, 1), split.select(0, 2),
                                                {.dropout_p = training ? dropout : 0});
  return out_proj(transpose(y, 1, 2).reshape({n, s, e}));
}

ViTBlock::ViTBlock(const ViTOptions& o)
    : dropout(o.dropout), ln_1(o.hidden, {.eps = 1e-6}), self_attention(o.hidden, o.heads, o.attention_dropout),
      ln_2(o.hidden, {.eps = 1e-6}), mlp(nn::Linear(o.hidden, o.mlp), nn::GELU(), nn::Dropout(o.dropout),
                                         nn::Linear(o.mlp, o.hidden), nn::Dropout(o.dropout)) {
  for (int64_t i : {0, 3}) {
    nn::Linear& layer = mlp.as<nn::Linear>(i);
    nn::init::xavier_uniform_(layer.weight), nn::init::normal_(layer.bias, 0, 1e-6);
  }
}
Tensor ViTBlock::forward(const Tensor& x) {
  const Tensor y = x + tapir::dropout(self_attention(ln_1(x)), dropout, training);
  return y + mlp(ln_2(y));
}

ViTEncoder::ViTEncoder(const ViTOptions& o)
    : dropout(o.dropout),
      pos_embedding(empty({1, (o.image_size / o.patch_size) * (o.image_size / o.patch_size) + 1, o.hidden})),
      ln(o.hidden, {.eps = 1e-6}) {
  nn::init::normal_(pos_embedding, 0, 0.02);
  nn::check_layers("VisionTransformer", "layers", o.layers);
  for (int64_t i = 0; i < o.layers; ++i) layers.emplace_back(o);
}
Tensor ViTEncoder::forward(const Tensor& x) {
  Tensor y = tapir::dropout(x + pos_embedding, dropout, training);
  for (ViTBlock& layer : layers) y = layer(y);
  return ln(y);
}
void ViTEncoder::tapir_rename(std::vector<nn::Field>& fields) {
  for (nn::Field& f : fields)
    if (f.name.starts_with("layers.")) f.name.insert(7, "encoder_layer_");
}

VisionTransformer::VisionTransformer(const ViTOptions& o)
    : image_size(o.image_size), class_token(zeros({1, 1, o.hidden})),
      conv_proj(3, o.hidden, o.patch_size, {.stride = o.patch_size}), encoder(o), heads(o.hidden, o.num_classes) {
  check(o.image_size % o.patch_size == 0, "[VisionTransformer] expected patch_size to divide image_size, got {} and {}",
        o.patch_size, o.image_size);
  nn::init::trunc_normal_(conv_proj.weight, 0, std::sqrt(1 / double(3 * o.patch_size * o.patch_size)));
  nn::init::zeros_(conv_proj.bias), nn::init::zeros_(heads.weight), nn::init::zeros_(heads.bias);
}
Tensor VisionTransformer::forward(const Tensor& x) {
  check(x.dim() == 4 && x.size(2) == image_size && x.size(3) == image_size,
        "[VisionTransformer] expected images (N, 3, {}, {}), got {}", image_size, image_size, x);
  const Tensor patches = transpose(flatten(conv_proj(x), 2), 1, 2);  // (N, patches, E)
  const Tensor token = expand(class_token, {x.size(0), -1, -1});
  return heads(encoder(cat({token, patches}, 1)).select(1, 0));
}
void VisionTransformer::tapir_rename(std::vector<nn::Field>& fields) { fields.back().name = "heads.head"; }

TAPIR_DEFINE_FIELDS(SelfAttention, ViTBlock, ViTEncoder, VisionTransformer)

}  // namespace tapir::inline v0::models
