#pragma once
#include <optional>
#include <string_view>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = {};  // this row gets no gradient; negative counts from the end
  std::optional<double> max_norm = {};      // rows that are looked up are first scaled, in place, to at most this norm
  double norm_type = 2;
  bool scale_grad_by_freq = false;  // gradients are divided by how often a row was looked up
};

/// Rows of weight: index (...) of integers, weight (rows, D) -> (..., D). ValueError for an index outside [0, rows).
Tensor embedding(const Tensor& index, const Tensor& weight, const EmbeddingOptions& options = {});

struct EmbeddingBagOptions {
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
  std::string_view mode = "mean";           // or "sum", "max"
  Tensor per_sample_weights = {};           // of "sum": a factor for each index, of its shape
  bool include_last_offset = false;         // the last offset ends the last bag
  std::optional<int64_t> padding_idx = {};  // this row does not count
};
/// Rows of weight (rows, D), joined bag by bag -> (bags, D); 0 for an empty bag. index: (bags, n), or (n) with offsets (bags), where each bag
/// begins. ValueError for an index outside [0, rows), and on the CPU for offsets that do not begin at 0 or do not ascend.
Tensor embedding_bag(const Tensor& index, const Tensor& weight, const Tensor& offsets = {},
                     const EmbeddingBagOptions& options = {});

/// (...) -> (..., num_classes) int64: 1 at the class, 0 elsewhere. No num_classes: the largest class and one.
Tensor one_hot(const Tensor& x, int64_t num_classes = -1);

}  // namespace tapir::inline v0
