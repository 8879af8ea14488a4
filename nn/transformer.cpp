#include "transformer.h"

#include <limits>

#include "../core/checks.h"
#include "../core/fail_as.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/create.h"
#include "../ops/diagonal.h"
#include "../ops/pointwise.h"
#include "init.h"
#include "layer_count.h"

namespace tapir::inline v0::nn {
namespace {

bool is_gelu(const char* name, const TransformerLayerOptions& o) {
  check(o.activation == "relu" || o.activation == "gelu", "[{}] activation should be relu/gelu, not {}", name,
        o.activation);
  return o.activation == "gelu";
}
MultiheadAttention attention(int64_t d, int64_t heads, const TransformerLayerOptions& o) {
  return {d, heads, {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first}};
}
LayerNorm norm(int64_t d, const TransformerLayerOptions& o) {
  return LayerNorm(d, {.eps = o.layer_norm_eps, .bias = o.bias});
}
/// linear2(dropout(activation(linear1(x))))
Tensor feed_forward(Linear& linear1, Dropout& dropout, Linear& linear2, bool gelu, const Tensor& x) {
  const Tensor h = linear1(x);
  return linear2(dropout(gelu ? tapir::gelu(h) : relu(h)));
}
template <class L> std::vector<L> copies(const char* name, L layer, int64_t n) {
  check_layers(name, "num_layers", n);
  std::vector<L> layers;
  for (int64_t i = 0; i < n; ++i) layers.push_back(layer.clone());
  return layers;
}
int64_t checked_layers(const char* option, int64_t n) { return check_layers("Transformer", option, n), n; }
AttentionMasks masks(const Tensor& padding, const Tensor& mask, bool is_causal) {
  return {.key_padding_mask = padding, .need_weights = false, .attn_mask = mask, .is_causal = is_causal};
}
TransformerLayerOptions layer_options(const TransformerOptions& o) {
  return {o.dim_feedforward, o.dropout, o.activation, o.layer_norm_eps, o.batch_first, o.norm_first, o.bias};
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t d, int64_t heads, const TransformerLayerOptions& o) try
    : gelu(is_gelu("TransformerEncoderLayer", o)), norm_first(o.norm_first), self_attn(attention(d, heads, o)),
      linear1(d, o.dim_feedforward, {.bias = o.bias}), linear2(o.dim_feedforward, d, {.bias = o.bias}),
      norm1(norm(d, o)), norm2(norm(d, o)), dropout(o.dropout), dropout1(o.dropout), dropout2(o.dropout) {
} catch (...) {
  fail_as("TransformerEncoderLayer");
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const EncoderMasks& m) {
  const auto attend = [&](const Tensor& x) {
    return dropout1(self_attn(x, x, x, masks(m.src_key_padding_mask, m.mask, m.is_causal)).output);
  };
  const auto feed = [&](const Tensor& x) { return dropout2(feed_forward(linear1, dropout, linear2, gelu, x)); };
  if (norm_first) {
    const Tensor x = add(src, attend(norm1(src)));
    return add(x, feed(norm2(x)));
  }
  const Tensor x = norm1(add(src, attend(src)));
  return norm2(add(x, feed(x)));
}

TransformerDecoderLayer::TransformerDecoderLayer(int64_t d, int64_t heads, const TransformerLayerOptions& o) try
    : gelu(is_gelu("TransformerDecoderLayer", o)), norm_first(o.norm_first), self_attn(attention(d, heads, o)),
      multihead_attn(attention(d, heads, o)), linear1(d, o.dim_feedforward, {.bias = o.bias}),
      linear2(o.dim_feedforward, d, {.bias = o.bias}), norm1(norm(d, o)), norm2(norm(d, o)), norm3(norm(d, o)),
      dropout(o.dropout), dropout1(o.dropout), dropout2(o.dropout), dropout3(o.dropout) {
} catch (...) {
  fail_as("TransformerDecoderLayer");
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& m) {
  const auto attend = [&](const Tensor& x) {
    return dropout1(self_attn(x, x, x, masks(m.tgt_key_padding_mask, m.tgt_mask, m.tgt_is_causal)).output);
  };
  const auto look = [&](const Tensor& x) {
    return dropout2(
        multihead_attn(x, memory, memory, masks(m.memory_key_padding_mask, m.memory_mask, m.memory_is_causal)).output);
  };
  const auto feed = [&](const Tensor& x) { return dropout3(feed_forward(linear1, dropout, linear2, gelu, x)); };
  if (norm_first) {
    Tensor x = add(tgt, attend(norm1(tgt)));
    x = add(x, look(norm2(x)));
    return add(x, feed(norm3(x)));
  }
  Tensor x = norm1(add(tgt, attend(tgt)));
  x = norm2(add(x, look(x)));
  return norm3(add(x, feed(x)));
}

TransformerEncoder::TransformerEncoder(TransformerEncoderLayer layer, int64_t n, std::optional<LayerNorm> norm)
    : layers(copies("TransformerEncoder", std::move(layer), n)), norm(std::move(norm)) {}
Tensor TransformerEncoder::forward(const Tensor& src, const EncoderMasks& masks) {
  Tensor x = src;
  for (auto& layer : layers) x = layer(x, masks);
  return norm ? (*norm)(x) : x;
}

TransformerDecoder::TransformerDecoder(TransformerDecoderLayer layer, int64_t n, std::optional<LayerNorm> norm)
    : layers(copies("TransformerDecoder", std::move(layer), n)), norm(std::move(norm)) {}
Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks) {
  Tensor x = tgt;
  for (auto& layer : layers) x = layer(x, memory, masks);
  return norm ? (*norm)(x) : x;
}

Transformer::Transformer(int64_t d, int64_t heads, const TransformerOptions& o) try
    : encoder(TransformerEncoderLayer(d, heads, layer_options(o)),
              checked_layers("num_encoder_layers", o.num_encoder_layers), norm(d, layer_options(o))),
      decoder(TransformerDecoderLayer(d, heads, layer_options(o)),
              checked_layers("num_decoder_layers", o.num_decoder_layers), norm(d, layer_options(o))) {
  for (Tensor& p : parameters())
    if (p.dim() > 1) init::xavier_uniform_(p);
} catch (...) {
  fail_as("Transformer");
}
Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& m) {
  check(src.dim() == tgt.dim() && (src.dim() == 2 || src.dim() == 3) && src.size(-1) == tgt.size(-1),
        "[Transformer] expected src and tgt of one rank (2 or 3) and number of features, got {} and {}", src, tgt);
  const Tensor memory = encoder(src, EncoderMasks{m.src_mask, m.src_key_padding_mask, m.src_is_causal});
  return decoder(tgt, memory,
                 DecoderMasks{m.tgt_mask, m.memory_mask, m.tgt_key_padding_mask, m.memory_key_padding_mask,
                              m.tgt_is_causal, m.memory_is_causal});
}
Tensor Transformer::generate_square_subsequent_mask(int64_t size, const TensorOptions& options) {
  return triu(full({size, size}, -std::numeric_limits<double>::infinity(), options), 1);
}

TAPIR_DEFINE_FIELDS(TransformerEncoderLayer, TransformerDecoderLayer, TransformerEncoder, TransformerDecoder,
                    Transformer)

Tensor TransformerEncoderLayer::operator()(const Tensor& src, const EncoderMasks& masks) {
  return detail::call(*this, src, masks);
}
Tensor TransformerEncoder::operator()(const Tensor& src, const EncoderMasks& masks) {
  return detail::call(*this, src, masks);
}
Tensor TransformerDecoderLayer::operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks) {
  return detail::call(*this, tgt, memory, masks);
}
Tensor TransformerDecoder::operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks) {
  return detail::call(*this, tgt, memory, masks);
}
Tensor Transformer::operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks) {
  return detail::call(*this, src, tgt, masks);
}

}  // namespace tapir::inline v0::nn
