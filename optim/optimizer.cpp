#include "optimizer.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "../autograd/record.h"
#include "../core/modes.h"
#include "../ops/cast.h"
#include "../ops/create.h"

namespace tapir::inline v0::optim {

void check_option(const char* optimizer, const char* option, double value, double low, double high) {
  const bool ok = std::isfinite(value) && value >= low && (high <= low || value < high);
  if (ok) return;
  if (low == kAnyNumber)
    fail(ErrorKind::Value, "[{}] invalid {}: expected a finite number, got {}", optimizer, option, value);
  if (high <= low)
    fail(ErrorKind::Value, "[{}] invalid {}: expected a number of at least {}, got {}", optimizer, option, low, value);
  fail(ErrorKind::Value, "[{}] invalid {}: expected a number in [{}, {}), got {}", optimizer, option, low, high, value);
}

void Optimizer::add_group(std::vector<Tensor> params, const OptimizerParams& options, double lr) {
  check(!params.empty(), "[{}] optimizer got an empty parameter list", name_);
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    check(p.defined(), "[{}] expected tensors to optimize, got an undefined one at position {}", name_, int64_t(i));
    check(p.is_leaf(), "[{}] can't optimize a non-leaf Tensor ({} at position {}, made by {})", name_, p, int64_t(i),
          p.grad_fn());
    check(is_floating(p.dtype()), "[{}] expected floating-point parameters, got {} at position {}", name_, p,
          int64_t(i));
    check(p.requires_grad(), "[{}] expected parameters that require grad, got {} at position {} that does not", name_,
          p, int64_t(i));
    const auto same = [&](const Tensor& other) { return other.is_same(p); };
    check(std::none_of(params.begin(), params.begin() + int64_t(i), same),
          "[{}] the parameter at position {} ({}) appears twice in its group", name_, int64_t(i), p);
    for (size_t g = 0; g < groups_.size(); ++g) {
      check(std::none_of(groups_[g].params.begin(), groups_[g].params.end(), same),
            "[{}] some parameters appear in more than one parameter group: position {} ({}) is in group {} too", name_,
            int64_t(i), p, int64_t(g));
    }
  }
  Group group;
  group.slots.resize(params.size());
  group.params = std::move(params), group.options = options, group.lr = lr;
  groups_.push_back(std::move(group));
}

void Optimizer::set_lr(double lr, int64_t at) {
  check(at >= 0 && at < num_groups(), "[{}] expected a group below {}, got {}", name_, num_groups(), at);
  check_option(name_, "learning rate", lr);
  Group& g = groups_[size_t(at)];
  if (g.lr == lr) return;
  g.lr = lr;
  NoGrad guard;
  if (g.device_lr.defined()) g.device_lr.fill_(lr);
}

void Optimizer::zero_grad(bool set_to_none) {
  NoGrad guard;
  for (Group& g : groups_) {
    for (Tensor& p : g.params) {
      if (set_to_none) p.set_grad({});
      else if (p.grad().defined()) Tensor(p.grad()).zero_();
    }
  }
}

void Optimizer::step(const StepScale& scale) {
  NoGrad guard;
  for (Group& g : groups_) step_group(g, scale);
}

/// Makes the state of parameter i where it has none yet, and lets it follow its parameter to another device.
void Optimizer::prepare(Group& group, size_t i, const Tensor& step) {
  const Tensor& p = group.params[i];
  Slot& slot = group.slots[i];
  if (!slot.step.defined()) slot.step = step;
  const auto names = state_names(group.options);
  for (size_t k = 0; k < 3; ++k) {
    if (!names[k]) continue;
    if (!slot.state[k].defined()) slot.state[k] = zeros_like(p.detach());
    else if (slot.state[k].device() != p.device()) slot.state[k] = to(slot.state[k], p.device());
  }
}

/// One kernel call: parameters of one dtype and device that share a step count.
struct Optimizer::Batch {
  DType dtype;
  Device device;
  Tensor step;
  std::vector<size_t> members;
};

/// Parameters share a step count as long as they are stepped together. Where only some of those that share one have a gradient
/// now, these get a copy of their own.
void Optimizer::split_cohorts(Group& group) {
  std::unordered_map<TensorImpl*, Tensor> left_behind;  // counts of idle parameters -> the copy for those that go on
  for (size_t i = 0; i < group.params.size(); ++i)
    if (group.slots[i].step.defined() && !group.params[i].grad().defined())
      left_behind.try_emplace(group.slots[i].step.impl_or_null());
  for (size_t i = 0; i < group.params.size() && !left_behind.empty(); ++i) {
    if (!group.params[i].grad().defined()) continue;
    const auto found = left_behind.find(group.slots[i].step.impl_or_null());
    if (found == left_behind.end()) continue;
    if (!found->second.defined()) found->second = group.slots[i].step.clone();
    group.slots[i].step = found->second;
  }
}

void Optimizer::step_group(Group& group, const StepScale& scale) {
  std::vector<Batch> batches;
  Tensor fresh_step;
  const bool idle =
      std::any_of(group.params.begin(), group.params.end(), [](const Tensor& p) { return !p.grad().defined(); });
  if (idle) split_cohorts(group);
  for (size_t i = 0; i < group.params.size(); ++i) {
    const Tensor& p = group.params[i];
    if (!p.grad().defined()) continue;
    check(p.grad().dtype() == p.dtype() && p.grad().device() == p.device(),
          "[{}] expected a gradient like its parameter {} (at position {}), got {}", name_, p, int64_t(i), p.grad());
    check_writable(name_, p);
    const bool fresh = !group.slots[i].step.defined();
    if (fresh && (!fresh_step.defined() || fresh_step.device() != p.device()))
      fresh_step = zeros({}, {.dtype = kInt64, .device = p.device()});
    if (!fresh && group.slots[i].step.device() != p.device()) group.slots[i].step = to(group.slots[i].step, p.device());
    prepare(group, i, fresh_step);
    const Tensor& step = group.slots[i].step;
    auto found = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) {
      return b.dtype == p.dtype() && b.device == p.device() && b.step.is_same(step);
    });
    if (found == batches.end()) found = batches.insert(found, {p.dtype(), p.device(), step, {}});
    found->members.push_back(i);
  }
  std::vector<TensorView> views[5];
  for (size_t b = 0; b < batches.size(); ++b) {
    const Batch& batch = batches[b];
    if (!group.device_lr.defined() || group.device_lr.device() != batch.device)
      group.device_lr = full({}, group.lr, {.dtype = kFloat64, .device = batch.device});
    for (auto& v : views) v.clear(), v.reserve(batch.members.size());
    for (size_t i : batch.members) {
      views[0].emplace_back(group.params[i]), views[1].emplace_back(group.params[i].grad());
      for (size_t k = 0; k < 3; ++k)
        if (group.slots[i].state[k].defined()) views[2 + k].emplace_back(group.slots[i].state[k]);
      bump_version(group.params[i]);
    }
    // A count that several calls share (two dtypes) is raised by the last of them only: the others work on a copy.
    const bool shared = std::any_of(batches.begin() + int64_t(b) + 1, batches.end(),
                                    [&](const Batch& later) { return later.step.is_same(batch.step); });
    const Tensor step = shared ? batch.step.clone() : batch.step;
    const auto there = [&](const Tensor& x) { return x.defined() ? to(x, batch.device) : x; };
    backend(batch.device)
        .optimizer_step(context(batch.device), {views[0], views[1], views[2], views[3], views[4]},
                        {group.device_lr, step, there(scale.inv_scale), there(scale.found_inf)}, group.options);
  }
}

StateDict Optimizer::state_dict() const {
  StateDict out;
  int64_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const auto names = state_names(group.options);
    for (const Slot& slot : group.slots) {
      const std::string prefix = format("state.{}.", number++);
      if (!slot.step.defined()) continue;
      out.append(prefix + "step", slot.step.clone());
      for (size_t k = 0; k < 3; ++k)
        if (names[k]) out.append(prefix + names[k], slot.state[k]);
    }
    out.append(format("param_groups.{}.lr", int64_t(g)), full({}, group.lr, {.dtype = kFloat64}));
    out.append(format("param_groups.{}.num_params", int64_t(g)), full({}, int64_t(group.params.size())));
  }
  return out;
}

void Optimizer::load_state_dict(const StateDict& state) {
  NoGrad guard;
  const auto is_ours = [&](const std::string& name) {
    return name.starts_with("state.") || name.starts_with("param_groups.");
  };
  for (auto& [name, t] : state)
    check(is_ours(name), "[{}] expected names that begin with \"state.\" or \"param_groups.\", got \"{}\"", name_,
          name);
  check(!state.contains(format("param_groups.{}.lr", num_groups())),
        "[{}] loaded state dict has a different number of parameter groups than the optimizer's {}", name_,
        num_groups());
  std::vector<std::vector<Slot>> loaded;
  std::vector<double> rates;
  std::vector<std::pair<int64_t, Tensor>>
      counts;  // one tensor for each number of steps: parameters that agree share it
  int64_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const Tensor* size = state.find(format("param_groups.{}.num_params", int64_t(g)));
    check(!size || size->item<int64_t>() == int64_t(group.params.size()),
          "[{}] loaded state dict contains a parameter group that doesn't match the size of optimizer's group {}: {} "
          "and {}",
          name_, int64_t(g), size ? size->item<int64_t>() : 0, int64_t(group.params.size()));
    rates.push_back(state.at(format("param_groups.{}.lr", int64_t(g))).item<double>());
    const auto names = state_names(group.options);
    auto& slots = loaded.emplace_back(group.params.size());
    counts.clear();
    for (size_t i = 0; i < slots.size(); ++i) {
      const std::string prefix = format("state.{}.", number++);
      const Tensor* step = state.find(prefix + "step");
      if (!step && !(names[0] && state.contains(prefix + names[0]))) continue;
      check(step || !names[1], "[{}] expected {}step beside {}{}", name_, prefix, prefix, names[0]);
      const Tensor& p = group.params[i];
      const int64_t n = step ? int64_t(step->item<double>()) : 1;  // PyTorch's SGD keeps buffers without a count
      auto at = std::find_if(counts.begin(), counts.end(),
                             [&](auto& c) { return c.first == n && c.second.device() == p.device(); });
      if (at == counts.end()) at = counts.insert(at, {n, full({}, n, {.dtype = kInt64, .device = p.device()})});
      slots[i].step = at->second;
      for (size_t k = 0; k < 3; ++k) {
        if (!names[k]) continue;
        const Tensor& from = state.at(prefix + names[k]);
        check(from.shape() == p.shape(), "[{}] expected {}{} of shape {}, got {}", name_, prefix, names[k], p.shape(),
              from.shape());
        slots[i].state[k] = zeros_like(p.detach()).copy_(from);
      }
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].slots = std::move(loaded[g]), set_lr(rates[g], int64_t(g));
}

}  // namespace tapir::inline v0::optim
