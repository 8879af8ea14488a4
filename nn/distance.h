#pragma once
#include "../ops/distance.h"
#include "module.h"

namespace tapir::inline v0::nn {

struct CosineSimilarity : Module {
  CosineOptions options;
  explicit CosineSimilarity(const CosineOptions& options = {}) : options(options) {}
  Tensor forward(const Tensor& x1, const Tensor& x2) { return cosine_similarity(x1, x2, options); }
  TAPIR_DECLARE_FIELDS(options)
};
/// The p-norm of x1 - x2 + eps over the last dimension.
struct PairwiseDistance : Module {
  DistanceOptions options;
  explicit PairwiseDistance(const DistanceOptions& options = {}) : options(options) {}
  Tensor forward(const Tensor& x1, const Tensor& x2) { return pairwise_distance(x1, x2, options); }
  TAPIR_DECLARE_FIELDS(options)
};

}  // namespace tapir::inline v0::nn
