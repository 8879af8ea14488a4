#include "zero.h"

#include <algorithm>

#include "../core/modes.h"
#include "../core/recorder.h"
#include "../ops/create.h"
#include "once.h"

namespace tapir::inline v0::distributed {

ZeroPartition::ZeroPartition(std::vector<Tensor> params, const ProcessGroup& group)
    : params_(std::move(params)), group_(group) {
  std::vector<int64_t> loads(size_t(group.size()));
  for (const Tensor& p : params_) {  // to whoever has least so far: the same on all ranks
    const auto least = std::min_element(loads.begin(), loads.end());
    owners_.push_back(least - loads.begin());
    *least += p.numel();
  }
}

std::vector<Tensor> ZeroPartition::mine() const {
  std::vector<Tensor> out;
  for (size_t i = 0; i < params_.size(); ++i)
    if (owners_[i] == group_.rank()) out.push_back(params_[i]);
  return out;
}

void ZeroPartition::check_not_recorded() const {
  if (modes.recorder)
    modes.recorder->host_acts(
        "[ZeroRedundancyOptimizer] expected step() outside of compile(), whose replays would not see the rates that a "
        "schedule sets: compile the forward alone");
}

void ZeroPartition::share() const {
  NoGrad guard;
  std::vector<Work> works;
  for (size_t i = 0; i < params_.size(); ++i) works.push_back(group_.broadcast(params_[i].detach(), owners_[i], true));
  for (const Work& w : works) w.wait();
}

StateDict ZeroPartition::gather(const optim::Optimizer* mine) const {
  const StateDict local = mine ? mine->state_dict() : StateDict();
  StateDict out;
  for (int64_t r = 0; r < group_.size(); ++r) {
    const StateDict theirs = broadcast_state_dict(local, group_, r);
    int64_t number = 0;
    for (size_t i = 0; i < params_.size(); ++i)
      if (owners_[i] == r) out.merge(tapir::format("state.{}.", i), theirs.strip(tapir::format("state.{}.", number++)));
  }
  return out;
}

StateDict ZeroPartition::part_of(const StateDict& all) const {
  StateDict out;
  int64_t number = 0;
  for (size_t i = 0; i < params_.size(); ++i)
    if (owners_[i] == group_.rank())
      out.merge(tapir::format("state.{}.", number++), all.strip(tapir::format("state.{}.", i)));
  out.merge("param_groups.", all.strip("param_groups."));
  out.set("param_groups.0.params", arange(0, number));
  return out;
}

}  // namespace tapir::inline v0::distributed
