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
TAPIR_LOSS_MODULE(CrossEntropyLoss, CrossEntropyOptions, cross_entropy)
TAPIR_LOSS_MODULE(NLLLoss, NllLossOptions, nll_loss)
TAPIR_LOSS_MODULE(MSELoss, LossOptions, mse_loss)
TAPIR_LOSS_MODULE(L1Loss, LossOptions, l1_loss)
TAPIR_LOSS_MODULE(BCEWithLogitsLoss, BceWithLogitsOptions, binary_cross_entropy_with_logits)
#undef TAPIR_LOSS_MODULE

}  // namespace tapir::inline v0::nn
