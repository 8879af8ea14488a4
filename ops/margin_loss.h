#pragma once
#include "loss.h"
#include "pointwise.h"

namespace tapir::inline v0 {

// Losses that are 0 beyond a margin.

struct MarginLossOptions {
  double margin = 0;
  Reduction reduction = Reduction::Mean;
};
struct HingeEmbeddingLossOptions {
  double margin = 1;
  Reduction reduction = Reduction::Mean;
};
struct MultiMarginLossOptions {
  int64_t p = 1;  // 1 or 2
  double margin = 1;
  Tensor weight = {};  // (C)
  Reduction reduction = Reduction::Mean;
};
struct TripletMarginLossOptions {
  double margin = 1, p = 2, eps = 1e-6;
  bool swap = false;  // the nearer of anchor and positive counts as the distance to the negative
  Reduction reduction = Reduction::Mean;
};

/// x where the target is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, const HingeEmbeddingLossOptions& options = {});
/// max(0, margin - t (x1 - x2)) for targets 1 and -1; three tensors of one rank.
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const MarginLossOptions& options = {});
/// 1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1. x1, x2: (N, D) or (D); target: (N) or ().
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const MarginLossOptions& options = {});
/// Sum over c != t of weight[t] max(0, margin - x[t] + x[c])^p / C. input: (N, C) or (C); target: labels (N) or ().
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, const MultiMarginLossOptions& options = {});
/// Sum over labels t and all other classes c of max(0, 1 - x[t] + x[c]) / C. target: input's shape, labels until the first -1.
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);
/// max(0, margin + |a - p + eps|_p - |a - n + eps|_p), norms over the last dimension. Balntas et al. 2016.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options = {});

struct TripletDistanceOptions {
  double margin = 1;
  bool swap = false;
  Reduction reduction = Reduction::Mean;
};
/// max(0, margin + near - far) of distances of one shape.
Tensor triplet_loss_of_distances(const Tensor& near, const Tensor& far, double margin, Reduction reduction);
/// The same with a distance of the caller's: distance(a, p) and distance(a, n), tensors of one shape.
template <class D> Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive,
                                                            const Tensor& negative, D&& distance,
                                                            const TripletDistanceOptions& options = {}) {
  Tensor far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative));
  return triplet_loss_of_distances(distance(anchor, positive), far, options.margin, options.reduction);
}

}  // namespace tapir::inline v0
