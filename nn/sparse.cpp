#include "sparse.h"

#include "../core/fail_as.h"
#include "../core/modes.h"
#include "init.h"

namespace tapir::inline v0::nn {

/// A table of normal numbers; the row of padding_idx, which is made to count from the front, is zero.
static Parameter make_table(const char* name, int64_t rows, int64_t dim, std::optional<int64_t>& padding_idx) try {
  check(rows >= 0 && dim >= 0, "[{}] expected sizes of at least 0, got num_embeddings {} and embedding_dim {}", name,
        rows, dim);
  if (padding_idx) {
    check(*padding_idx >= -rows && *padding_idx < rows, "[{}] padding_idx must be within num_embeddings ({}), got {}",
          name, rows, *padding_idx);
    if (*padding_idx < 0) *padding_idx += rows;
  }
  Parameter weight(empty({rows, dim}));
  init::normal_(weight);
  NoGrad guard;
  if (padding_idx) weight.select(0, *padding_idx).zero_();
  return weight;
} catch (...) {
  fail_as(name);
}
template <class O> static std::string norm_text(const O& o) {
  std::string s;
  if (o.max_norm) s += ", max_norm=" + detail::float_text(*o.max_norm);
  if (o.norm_type != 2) s += ", norm_type=" + detail::float_text(o.norm_type);
  if (o.scale_grad_by_freq) s += ", scale_grad_by_freq=True";
  return s;
}

Embedding::Embedding(int64_t rows, int64_t dim, const EmbeddingOptions& o)
    : num_embeddings(rows), embedding_dim(dim), options(o),
      weight(make_table("Embedding", rows, dim, options.padding_idx)) {}
Tensor Embedding::forward(const Tensor& index) { return embedding(index, weight, options); }
std::string Embedding::extra_repr() {
  std::string s = tapir::format("{}, {}", num_embeddings, embedding_dim);
  if (options.padding_idx) s += tapir::format(", padding_idx={}", *options.padding_idx);
  return s + norm_text(options);
}

EmbeddingBag::EmbeddingBag(int64_t rows, int64_t dim, const EmbeddingBagOptions& o)
    : num_embeddings(rows), embedding_dim(dim), options(o),
      weight(make_table("EmbeddingBag", rows, dim, options.padding_idx)) {
  check(o.mode == "mean" || o.mode == "sum" || o.mode == "max", "[EmbeddingBag] expected mode mean, sum or max, got {}",
        o.mode);
}
Tensor EmbeddingBag::forward(const Tensor& index, const Tensor& offsets, const Tensor& weights) {
  const EmbeddingBagOptions& o = options;
  return embedding_bag(
      index, weight, offsets,
      {o.max_norm, o.norm_type, o.scale_grad_by_freq, o.mode, weights, o.include_last_offset, o.padding_idx});
}
std::string EmbeddingBag::extra_repr() {
  std::string s =
      tapir::format("{}, {}", num_embeddings, embedding_dim) + norm_text(options) + ", mode='" + options.mode + "'";
  return options.padding_idx ? s + tapir::format(", padding_idx={}", *options.padding_idx) : s;
}

TAPIR_DEFINE_FIELDS(Embedding, EmbeddingBag)

}  // namespace tapir::inline v0::nn
