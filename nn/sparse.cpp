#include "sparse.h"

#include "../core/modes.h"
#include "../ops/dropout.h"
#include "init.h"

namespace tapir::inline v0::nn {

Embedding::Embedding(int64_t rows, int64_t dim, const EmbeddingOptions& o)
    : num_embeddings(rows), embedding_dim(dim), options(o) {
  check(rows >= 0 && dim >= 0, "[Embedding] expected sizes of at least 0, got num_embeddings {} and embedding_dim {}",
        rows, dim);
  if (o.padding_idx) {
    check(*o.padding_idx >= -rows && *o.padding_idx < rows,
          "[Embedding] padding_idx must be within num_embeddings ({}), got {}", rows, *o.padding_idx);
    if (*o.padding_idx < 0) *options.padding_idx += rows;
  }
  weight = Parameter(empty({rows, dim}));
  init::normal_(weight);
  NoGrad guard;
  if (options.padding_idx) weight.select(0, *options.padding_idx).zero_();
}
Tensor Embedding::forward(const Tensor& index) { return embedding(index, weight, options); }
std::string Embedding::extra_repr() {
  const std::string s = format("{}, {}", num_embeddings, embedding_dim);
  return options.padding_idx ? s + format(", padding_idx={}", *options.padding_idx) : s;
}

Dropout::Dropout(double p, const DropoutOptions& o) : p(p), inplace(o.inplace) {
  check(p >= 0 && p <= 1, "[Dropout] dropout probability has to be between 0 and 1, but got {}", p);
}
Tensor Dropout::forward(const Tensor& x) {
  if (!inplace) return dropout(x, p, training);
  Tensor y = x;
  return dropout_(y, p, training);
}

}  // namespace tapir::inline v0::nn
