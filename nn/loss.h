#pragma once
#include "../ops/loss.h"
#include "module.h"

// Losses as modules: loss(input, target), with the options of the function of that name.
namespace tapir::inline v0::nn {

#define TAPIR_LOSS_MODULE(Name, Options, function)                                                         \
  struct Name : Module {                                                                                   \
    Options options;                                                                                       \
    explicit Name(const Options& options = {}) : options(options) {}                                       \
    Tensor forward(const Tensor& input, const Tensor& target) { return function(input, target, options); } \
    TAPIR_FIELDS(options)                                                                                  \
  };
// A weight is a buffer, saved and moved with the module.
#define TAPIR_WEIGHTED_LOSS_MODULE(Name, Options, function)                                         \
  struct Name : Module {                                                                            \
    Options options;                                                                                \
    Buffer weight;                                                                                  \
    explicit Name(const Options& o = {}) : options(o), weight(std::exchange(options.weight, {})) {} \
    Tensor forward(const Tensor& input, const Tensor& target) {                                     \
      Options o = options;                                                                          \
      o.weight = weight;                                                                            \
      return function(input, target, o);                                                            \
    }                                                                                               \
    TAPIR_FIELDS(options, weight)                                                                   \
  };
TAPIR_WEIGHTED_LOSS_MODULE(CrossEntropyLoss, CrossEntropyOptions, cross_entropy)
TAPIR_WEIGHTED_LOSS_MODULE(NLLLoss, NllLossOptions, nll_loss)
TAPIR_LOSS_MODULE(MSELoss, LossOptions, mse_loss)
TAPIR_LOSS_MODULE(L1Loss, LossOptions, l1_loss)
#undef TAPIR_LOSS_MODULE
#undef TAPIR_WEIGHTED_LOSS_MODULE

struct BCEWithLogitsLoss : Module {
  BceWithLogitsOptions options;
  Buffer weight, pos_weight;
  explicit BCEWithLogitsLoss(const BceWithLogitsOptions& o = {})
      : options(o), weight(std::exchange(options.weight, {})), pos_weight(std::exchange(options.pos_weight, {})) {}
  Tensor forward(const Tensor& input, const Tensor& target) {
    return binary_cross_entropy_with_logits(input, target, {weight, options.reduction, pos_weight});
  }
  TAPIR_FIELDS(options, weight, pos_weight)
};

}  // namespace tapir::inline v0::nn
