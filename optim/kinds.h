#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

/// One option: where its numbers are kept, and what they may be.
struct OptionRule {
  const char* name;
  double OptionValues::*at[3] = {};
  bool OptionValues::*flag = nullptr;
  double low = 0, high = kAnyNumber;        // as in check_option
  std::span<const char* const> texts = {};  // what a text may be; its number is kept
  bool whole = false;                       // an integer in PyTorch
};

/// What the base needs to know of an optimizer.
struct OptimizerKind {
  const char* name;
  OptimizerOp op;
  std::span<const OptionRule> options;
  /// The states of a parameter by their slots; null where these options need none.
  std::array<const char*, 3> (*states)(const OptionValues& options, const Tensor& p);
  bool momentum = false;                                 // beta1 is a momentum or the first beta
  std::array<const char*, 2> numbers = {};               // as in entry::OptimizerStep
  void (*check)(const OptionValues& options) = nullptr;  // what concerns several options
  /// What a state is filled with at first; null: 0.
  double (*start)(const OptionValues& options, double lr, size_t state) = nullptr;
  bool early = false;      // states are there before the first step, as in PyTorch, and so in its files
  bool uncounted = false;  // PyTorch keeps states without a step count
};

/// The number of that name in a state; ValueError in the name of `op` where it is none.
double saved_number(const char* op, const StateDict& state, const std::string& entry);

namespace kinds {
extern const OptimizerKind sgd, asgd, adam, adamw, adamax, nadam, radam, adagrad, adadelta, rmsprop, rprop, lion, muon,
    adafactor, lbfgs;
}
}  // namespace tapir::inline v0::optim

/// The constructor of an optimizer that makes one group of all parameters.
#define TAPIR_OPTIMIZER_OF_PARAMETERS(Name)                            \
  Name::Name(std::vector<Tensor> params, const Name##Options& options) \
      : Name(std::vector<Name##Group>{{.params = std::move(params)}}, options) {}
