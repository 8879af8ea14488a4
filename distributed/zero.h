#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "../optim/optimizer.h"
#include "process_group.h"

namespace tapir::inline v0::distributed {

// Note [Optimizer-state sharding]
// Behind DistributedDataParallel every rank has every gradient, and would keep every parameter's state. Here each keeps the state of its own
// part of the parameters (about 1/N of their elements), updates those, and sends them to the others: the same weights, bit for bit,
// as the optimizer gives alone. Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054, stage 1.

/// What does not depend on the kind of optimizer.
class ZeroPartition {
 public:
  ZeroPartition(std::vector<Tensor> params, const ProcessGroup& group);
  /// The parameters whose state is kept here.
  std::vector<Tensor> mine() const;
  /// ValueError in a compiled step, whose replays would not see what a schedule does to the rate.
  void check_not_recorded() const;
  /// All ranks take each parameter from its owner.
  void share() const;
  /// The states of all ranks as one optimizer's; `mine`: null where this rank owns nothing.
  StateDict gather(const optim::Optimizer* mine) const;
  /// This rank's part of such a state.
  StateDict part_of(const StateDict& all) const;

 private:
  std::vector<Tensor> params_;
  std::vector<int64_t> owners_;
  ProcessGroup group_;
};

/// An optimizer whose state is spread over the ranks of a group, for modules behind DistributedDataParallel: every rank makes it of the same
/// parameters, and steps. Schedulers, GradScaler and clipping see all parameters.
///     distributed::ZeroRedundancyOptimizer<optim::AdamW> opt(net.parameters(), optim::AdamWOptions{.lr = 1e-3});
template <class Opt> class ZeroRedundancyOptimizer final : public optim::Optimizer {
 public:
  template <class Options> explicit ZeroRedundancyOptimizer(std::vector<Tensor> params, const Options& options,
                                                            const ProcessGroup& group = default_group())
      : Optimizer(Opt(params, options)), partition_(std::move(params), group) {
    if (std::vector<Tensor> mine = partition_.mine(); !mine.empty()) mine_.emplace(std::move(mine), options);
  }
  void step(const optim::StepScale& scale = {}) override {
    partition_.check_not_recorded();
    count_step();
    if (mine_) {
      mine_->set_lr(lr());
      if (has_momentum() && mine_->momentum() != momentum()) mine_->set_momentum(momentum());
      mine_->step(scale);
    }
    partition_.share();
  }
  /// Of all parameters, as Opt alone would give it; every rank calls it.
  StateDict state_dict() const override {
    StateDict out = partition_.gather(mine());
    out.merge("", Optimizer::state_dict());  // which has no states: options, and what schedulers keep
    return out;
  }
  /// From a state of all parameters, whoever saved it and on however many ranks.
  void load_state_dict(const StateDict& state) override {
    StateDict groups;
    groups.merge("param_groups.", state.strip("param_groups."));
    Optimizer::load_state_dict(groups);
    if (mine_) mine_->load_state_dict(partition_.part_of(state));
  }
  /// The optimizer of this rank's part; null where there are more ranks than parameters.
  const Opt* mine() const { return mine_ ? &*mine_ : nullptr; }

 private:
  ZeroPartition partition_;
  std::optional<Opt> mine_;
};

}  // namespace tapir::inline v0::distributed
