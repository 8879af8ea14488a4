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
  TAPIR_FIELDS(num_embeddings, embedding_dim, options, weight)
};

struct DropoutOptions {
  bool inplace = false;  // overwrites the input
};
/// In training each element is zeroed with probability p and the others grow to x / (1 - p). Srivastava et al. 2014.
struct Dropout : Module {
  double p;
  bool inplace;
  explicit Dropout(double p = 0.5, const DropoutOptions& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS(p, inplace)
};

}  // namespace tapir::inline v0::nn
