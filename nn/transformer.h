#pragma once
#include <optional>
#include <string>
#include <vector>

#include "attention.h"
#include "dropout.h"
#include "norm.h"

namespace tapir::inline v0::nn {

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";  // or gelu
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  // (N, S, E) instead of (S, N, E)
  bool norm_first = false;   // x + f(norm(x)) instead of norm(x + f(x))
  bool bias = true;
};
/// Masks as MultiheadAttention's: attn_mask and key_padding_mask of what is attended to.
struct EncoderMasks {
  Tensor mask = {}, src_key_padding_mask = {};
  bool is_causal = false;
};
struct DecoderMasks {
  Tensor tgt_mask = {}, memory_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool tgt_is_causal = false, memory_is_causal = false;
};

/// Self-attention and a feed-forward network, each beside a skip: (S, N, E) -> (S, N, E). Vaswani et al. 2017, arXiv 1706.03762.
struct TransformerEncoderLayer : Module {
  bool gelu, norm_first;
  MultiheadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;
  Dropout dropout, dropout1, dropout2;
  TransformerEncoderLayer(int64_t d_model, int64_t nhead, const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& src, const EncoderMasks& masks = {});
  Tensor operator()(const Tensor& src, const EncoderMasks& masks);
  TAPIR_DECLARE_FIELDS(gelu, norm_first, self_attn, linear1, linear2, norm1, norm2, dropout, dropout1, dropout2)
};

/// As the encoder's, with attention to `memory` (S, N, E) between the two: tgt (T, N, E) -> (T, N, E).
struct TransformerDecoderLayer : Module {
  bool gelu, norm_first;
  MultiheadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout, dropout1, dropout2, dropout3;
  TransformerDecoderLayer(int64_t d_model, int64_t nhead, const TransformerLayerOptions& options = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {});
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks);
  TAPIR_DECLARE_FIELDS(gelu, norm_first, self_attn, multihead_attn, linear1, linear2, norm1, norm2, norm3, dropout,
                       dropout1, dropout2, dropout3)
};

/// num_layers copies of a layer, one after the other, and a last norm where there is one.
struct TransformerEncoder : Module {
  std::vector<TransformerEncoderLayer> layers;
  std::optional<LayerNorm> norm;
  TransformerEncoder(TransformerEncoderLayer layer, int64_t num_layers, std::optional<LayerNorm> norm = {});
  Tensor forward(const Tensor& src, const EncoderMasks& masks = {});
  Tensor operator()(const Tensor& src, const EncoderMasks& masks);
  TAPIR_DECLARE_FIELDS(layers, norm)
};
struct TransformerDecoder : Module {
  std::vector<TransformerDecoderLayer> layers;
  std::optional<LayerNorm> norm;
  TransformerDecoder(TransformerDecoderLayer layer, int64_t num_layers, std::optional<LayerNorm> norm = {});
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {});
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks);
  TAPIR_DECLARE_FIELDS(layers, norm)
};

struct TransformerOptions {
  int64_t num_encoder_layers = 6, num_decoder_layers = 6;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false, norm_first = false, bias = true;
};
struct TransformerMasks {
  Tensor src_mask = {}, tgt_mask = {}, memory_mask = {};
  Tensor src_key_padding_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool src_is_causal = false, tgt_is_causal = false, memory_is_causal = false;
};
/// Encoder and decoder, each with a last norm: src (S, N, E), tgt (T, N, E) -> (T, N, E). Matrices start by xavier_uniform_.
struct Transformer : Module {
  TransformerEncoder encoder;
  TransformerDecoder decoder;
  explicit Transformer(int64_t d_model = 512, int64_t nhead = 8, const TransformerOptions& options = {});
  Tensor forward(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks = {});
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks);
  /// (size, size): 0 up to the diagonal, -inf above it.
  static Tensor generate_square_subsequent_mask(int64_t size, const TensorOptions& options = {});
  TAPIR_DECLARE_FIELDS(encoder, decoder)
};

}  // namespace tapir::inline v0::nn
