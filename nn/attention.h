#pragma once
#include <optional>

#include "linear.h"

namespace tapir::inline v0::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;                           // of the weights, in training
  bool bias = true;                             // of the projections
  bool add_bias_kv = false;                     // a trained key and value at the end of every sequence
  bool add_zero_attn = false;                   // a key and a value of zeros there
  std::optional<int64_t> kdim = {}, vdim = {};  // features of keys and values; none: embed_dim
  bool batch_first = false;                     // (N, L, E) instead of (L, N, E)
};
/// Masks are bool (true hides) or numbers that are added to the scores.
struct AttentionMasks {
  Tensor key_padding_mask = {};  // (N, S), or (S)
  bool need_weights = true;
  Tensor attn_mask = {};  // (L, S) or (N * num_heads, L, S)
  bool average_attn_weights = true;
  bool is_causal = false;  // attn_mask is the causal one, or absent: query i sees keys 0 to i
};

/// Attention in `num_heads` parts of the features: query (L, N, E), key (S, N, kdim), value (S, N, vdim), or without N ->
/// {output (L, N, E), weights (N, L, S), of every head (N, num_heads, L, S) unless averaged, undefined unless needed}. A query that sees
/// nothing gives zeros before the last projection. Vaswani et al. 2017, arXiv 1706.03762.
struct MultiheadAttention : Module {
  struct Output {
    Tensor output, weights;
  };
  int64_t embed_dim, num_heads;
  double dropout;
  bool batch_first, add_zero_attn;
  Parameter q_proj_weight, k_proj_weight, v_proj_weight;  // where kdim or vdim differ, else in_proj_weight (3 E, E)
  Parameter in_proj_weight, in_proj_bias, bias_k, bias_v;
  Linear out_proj;
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options = {});
  Output forward(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& masks = {});
  Output operator()(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& masks);
  TAPIR_DECLARE_FIELDS(embed_dim, num_heads, dropout, batch_first, add_zero_attn, q_proj_weight, k_proj_weight,
                       v_proj_weight, in_proj_weight, in_proj_bias, bias_k, bias_v, out_proj)

 private:
  struct Heads {
    Tensor q, k, v;
  };  // (N, num_heads, L or S, E / num_heads)
  void check_inputs(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Heads project(const Tensor& query, const Tensor& key, const Tensor& value) const;
};

}  // namespace tapir::inline v0::nn
