#pragma once
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct AttentionOptions {
  Tensor attn_mask = {};   // broadcasts to (..., S, T): bool (false hides), or numbers that are added to the scores
  double dropout_p = 0;    // of the weights
  bool is_causal = false;  // query i sees keys 0 to i; not with attn_mask
  std::optional<double> scale = {};  // none: 1 / sqrt(D)
  bool enable_gqa = false;           // heads (dimension -3) of q are a multiple of those of k and v, and share them
  Tensor length =
      {};  // 0-dim int64, at most T: keys from there on are not seen; is_causal: query i sees keys 0 to length - S + i
};

/// softmax(q k^T scale + mask) v. q: (..., S, D), k: (..., T, D), v: (..., T, E) -> (..., S, E); what stands before broadcasts. A query that
/// sees no key gives 0. Memory grows with S and T, not with S T, unless attn_mask wants a gradient.
/// Dao et al. 2022, arXiv 2205.14135.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace tapir::inline v0
