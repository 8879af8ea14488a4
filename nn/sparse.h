#pragma once
#include "../ops/embedding.h"
#include "module.h"

namespace tapir::inline v0::nn {

/// A table of vectors, looked up by integers: (...) -> (..., embedding_dim). Rows start normal; that of padding_idx is zero.
struct Embedding : Module {
  int64_t num_embeddings, embedding_dim;
  EmbeddingOptions options;
  Parameter weight;
  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {});
  Tensor forward(const Tensor& index);
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(num_embeddings, embedding_dim, options, weight)
};

struct EmbeddingBagOptions {
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  std::string mode = "mean";                // or "sum", "max"
  bool include_last_offset = false;         // the last offset ends the last bag
  std::optional<int64_t> padding_idx = {};  // this row does not count
};
/// Rows of a table, joined bag by bag: bags (B, n), or (n) with offsets (B) -> (B, embedding_dim).
struct EmbeddingBag : Module {
  int64_t num_embeddings, embedding_dim;
  EmbeddingBagOptions options;
  Parameter weight;
  EmbeddingBag(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingBagOptions& options = {});
  Tensor forward(const Tensor& index, const Tensor& offsets = {}, const Tensor& per_sample_weights = {});
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(num_embeddings, embedding_dim, options, weight)
};

}  // namespace tapir::inline v0::nn
