#pragma once
#include <string_view>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct CdistOptions {
  double p = 2;
  /// p = 2 by a matrix product: faster, less exact for near points. "use_mm_for_euclid_dist_if_necessary": from 25 points on.
  std::string_view compute_mode = "use_mm_for_euclid_dist_if_necessary";
};
/// p-norm distances of all pairs of rows: (..., P, M), (..., R, M) -> (..., P, R).
Tensor cdist(const Tensor& x1, const Tensor& x2, const CdistOptions& options = {});

/// p-norm distances of each row and those after it: (P, M) -> (P (P - 1) / 2), row by row of cdist's upper triangle.
Tensor pdist(const Tensor& x, double p = 2);
/// The p-norm of all of a - b.
Tensor dist(const Tensor& a, const Tensor& b, Scalar p = 2);

struct DistanceOptions {
  double p = 2, eps = 1e-6;
  bool keepdim = false;
};
/// The p-norm of x1 - x2 + eps over the last dimension.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, const DistanceOptions& options = {});

struct CosineOptions {
  int64_t dim = 1;
  double eps = 1e-8;
};
/// x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) over dim.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, const CosineOptions& options = {});

struct NormalizeOptions {
  double p = 2;
  Dims dim = 1;
  double eps = 1e-12;
};
/// x / max(p-norm over dim, eps)
Tensor normalize(const Tensor& x, const NormalizeOptions& options = {});

/// The parts of x along dim, those scaled down whose p-norm is above maxnorm.
Tensor renorm(const Tensor& x, Scalar p, int64_t dim, Scalar maxnorm);
Tensor& renorm_(Tensor& self, Scalar p, int64_t dim, Scalar maxnorm);

}  // namespace tapir::inline v0
