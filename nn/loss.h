#pragma once
#include "../ops/ctc.h"
#include "../ops/divergence.h"
#include "../ops/loss.h"
#include "../ops/margin_loss.h"
#include "distance.h"
#include "module.h"

// Losses as modules: loss(input, target), with the options of the function of that name.
namespace tapir::inline v0::nn {

#define TAPIR_LOSS(Name, Options, function)                                                                \
  struct Name : Module {                                                                                   \
    Options options;                                                                                       \
    explicit Name(const Options& options = {}) : options(options) {}                                       \
    Tensor forward(const Tensor& input, const Tensor& target) { return function(input, target, options); } \
    std::string extra_repr() override { return ""; }                                                       \
    TAPIR_DECLARE_FIELDS(options)                                                                          \
  };
#define TAPIR_LOSS_OF_THREE(Name, Options, function, b, c)                                                   \
  struct Name : Module {                                                                                     \
    Options options;                                                                                         \
    explicit Name(const Options& options = {}) : options(options) {}                                         \
    Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) { return function(a, b, c, options); } \
    TAPIR_DECLARE_FIELDS(options)                                                                            \
  };
// A weight is a buffer, saved and moved with the module.
#define TAPIR_WEIGHTED_LOSS(Name, Options, function)                                                \
  struct Name : Module {                                                                            \
    Options options;                                                                                \
    Buffer weight;                                                                                  \
    explicit Name(const Options& o = {}) : options(o), weight(std::exchange(options.weight, {})) {} \
    Tensor forward(const Tensor& input, const Tensor& target) {                                     \
      Options o = options;                                                                          \
      o.weight = weight;                                                                            \
      return function(input, target, o);                                                            \
    }                                                                                               \
    TAPIR_DECLARE_FIELDS(options, weight)                                                           \
  };
template <> inline constexpr bool plain_field<CrossEntropyOptions> = true;  // whose own weight is none
template <> inline constexpr bool plain_field<NllLossOptions> = true;
template <> inline constexpr bool plain_field<LossOptions> = true;
template <> inline constexpr bool plain_field<HuberLossOptions> = true;
template <> inline constexpr bool plain_field<MultiMarginLossOptions> = true;
template <> inline constexpr bool plain_field<BceWithLogitsOptions> = true;
TAPIR_WEIGHTED_LOSS(CrossEntropyLoss, CrossEntropyOptions, cross_entropy)
TAPIR_WEIGHTED_LOSS(NLLLoss, NllLossOptions, nll_loss)
TAPIR_WEIGHTED_LOSS(MSELoss, LossOptions, mse_loss)
TAPIR_WEIGHTED_LOSS(L1Loss, LossOptions, l1_loss)
TAPIR_WEIGHTED_LOSS(HuberLoss, HuberLossOptions, huber_loss)
TAPIR_WEIGHTED_LOSS(BCELoss, LossOptions, binary_cross_entropy)
TAPIR_WEIGHTED_LOSS(MultiMarginLoss, MultiMarginLossOptions, multi_margin_loss)
TAPIR_WEIGHTED_LOSS(MultiLabelSoftMarginLoss, LossOptions, multilabel_soft_margin_loss)
TAPIR_LOSS(SmoothL1Loss, SmoothL1LossOptions, smooth_l1_loss)
TAPIR_LOSS(KLDivLoss, KlDivOptions, kl_div)
TAPIR_LOSS(PoissonNLLLoss, PoissonNllLossOptions, poisson_nll_loss)
TAPIR_LOSS(HingeEmbeddingLoss, HingeEmbeddingLossOptions, hinge_embedding_loss)
struct ReductionOptions {
  Reduction reduction = Reduction::Mean;
};
#define TAPIR_REDUCED(function) [](auto& x, auto& y, auto& o) { return function(x, y, o.reduction); }
TAPIR_LOSS(SoftMarginLoss, ReductionOptions, TAPIR_REDUCED(soft_margin_loss))
TAPIR_LOSS(MultiLabelMarginLoss, ReductionOptions, TAPIR_REDUCED(multilabel_margin_loss))
#undef TAPIR_REDUCED
/// loss(input, target, var)
TAPIR_LOSS_OF_THREE(GaussianNLLLoss, GaussianNllLossOptions, gaussian_nll_loss, target, var)
/// loss(input1, input2, target)
TAPIR_LOSS_OF_THREE(MarginRankingLoss, MarginLossOptions, margin_ranking_loss, input2, target)
TAPIR_LOSS_OF_THREE(CosineEmbeddingLoss, MarginLossOptions, cosine_embedding_loss, input2, target)
/// loss(anchor, positive, negative)
TAPIR_LOSS_OF_THREE(TripletMarginLoss, TripletMarginLossOptions, triplet_margin_loss, positive, negative)
#undef TAPIR_LOSS
#undef TAPIR_LOSS_OF_THREE
#undef TAPIR_WEIGHTED_LOSS

struct BCEWithLogitsLoss : Module {
  BceWithLogitsOptions options;
  Buffer weight, pos_weight;
  explicit BCEWithLogitsLoss(const BceWithLogitsOptions& o = {})
      : options(o), weight(std::exchange(options.weight, {})), pos_weight(std::exchange(options.pos_weight, {})) {}
  Tensor forward(const Tensor& input, const Tensor& target) {
    return binary_cross_entropy_with_logits(input, target, {weight, options.reduction, pos_weight});
  }
  TAPIR_DECLARE_FIELDS(options, weight, pos_weight)
};

/// loss(log_probs (T, N, C), targets, input_lengths, target_lengths); lengths are tensors or vectors.
struct CTCLoss : Module {
  CtcLossOptions options;
  explicit CTCLoss(const CtcLossOptions& options = {}) : options(options) {}
  template <class L>
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const L& input_lengths, const L& target_lengths) {
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
  }
  TAPIR_DECLARE_FIELDS(options)
};

/// The triplet loss of a distance of the caller's: a module, or anything called with two tensors.
template <class D = PairwiseDistance> struct TripletMarginWithDistanceLoss : Module {
  D distance_function;
  TripletDistanceOptions options;
  explicit TripletMarginWithDistanceLoss(D distance = D(), const TripletDistanceOptions& options = {})
      : distance_function(std::move(distance)), options(options) {}
  Tensor forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
    return triplet_margin_with_distance_loss(anchor, positive, negative, distance_function, options);
  }
  TAPIR_FIELDS(distance_function, options)
};

}  // namespace tapir::inline v0::nn
