// What an optimizer saves and loads: PyTorch's names, flat.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "../core/checks.h"
#include "../core/fail_as.h"
#include "../core/modes.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/shape.h"
#include "kinds.h"

namespace tapir::inline v0::optim {
namespace {

std::vector<double> numbers_of(const OptionValues& from, const OptionRule& rule) {
  std::vector<double> out;
  for (auto at : rule.at)
    if (at) out.push_back(from.*at);
  return out;
}
Tensor as_tensor(const OptionValues& from, const OptionRule& rule) {
  if (rule.flag) return full({}, from.*rule.flag);
  const std::vector<double> numbers = numbers_of(from, rule);
  if (rule.whole) return full({}, int64_t(numbers[0]));
  return numbers.size() == 1 ? full({}, numbers[0], {.dtype = kFloat64}) : tensor(numbers);
}
/// The numbers of an option: one tensor, or one each under name.0, name.1.
std::vector<double> read_option(const StateDict& state, const std::string& name) {
  if (const Tensor* one = state.find(name); one && one->defined())
    return one->to(kFloat64).reshape(-1).to_vector<double>();
  std::vector<double> out;
  while (const Tensor* next = state.find(tapir::format("{}.{}", name, int64_t(out.size()))))
    out.push_back(next->item());
  return out;
}

/// The number behind `prefix` in an entry's name ("state.3.step"), or -1.
int64_t number_in(std::string_view entry, std::string_view prefix) {
  entry.remove_prefix(prefix.size());
  int64_t n = -1;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), n);
  return error == std::errc() && end != entry.data() + entry.size() && *end == '.' ? n : -1;
}

}  // namespace

double saved_number(const char* op, const StateDict& state, const std::string& entry) try {
  const Tensor& x = state.at(entry);
  check(x.defined() && x.numel() == 1, "[{}] expected one number in {}, got {}", op, entry, x);
  const double value = x.item<double>();
  check(!std::isnan(value), "[{}] expected a number in {}, got nan", op, entry);
  return value;
} catch (...) {
  fail_as(op);
}

std::vector<std::pair<std::string, std::string>> Optimizer::text_options(int64_t group) const {
  const OptionValues& options = groups_[index(group)].options;
  std::vector<std::pair<std::string, std::string>> out;
  for (const OptionRule& rule : kind_->options)
    if (!rule.texts.empty() && (rule.name != std::string_view("low_precision") || options.low_precision != 0))
      out.emplace_back(rule.name, rule.texts[size_t(options.*rule.at[0])]);
  return out;
}

StateDict Optimizer::state_dict() const {
  check_not_recorded("state_dict", "a replay makes no state dict");
  StateDict out;
  int64_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const std::string options = tapir::format("param_groups.{}.", int64_t(g));
    const int64_t first = number;
    for (size_t i = 0; i < group.slots.size(); ++i) {
      const Slot& slot = group.slots[i];
      const std::string prefix = tapir::format("state.{}.", number++);
      if (!slot.step.defined()) continue;
      out.append(prefix + "step", slot.step.clone());
      for (size_t k = 0; k < 2; ++k)
        if (kind_->numbers[k]) out.append(prefix + kind_->numbers[k], slot.numbers.select(0, int64_t(k)).clone());
      const auto names = kind_->states(group.options, group.params[i]);
      for (size_t k = 0; k < 3; ++k)
        if (names[k] && slot.state[k].defined()) out.append(prefix + names[k], slot.state[k]);
      if (slot.master.defined()) out.append(prefix + "master_param", slot.master);
    }
    out.append(options + "lr", full({}, group.lr, {.dtype = kFloat64}));
    if (group.initial_lr) out.append(options + "initial_lr", full({}, *group.initial_lr, {.dtype = kFloat64}));
    for (const OptionRule& rule : kind_->options)
      if (rule.texts.empty()) out.append(options + rule.name, as_tensor(group.options, rule));
    out.append(options + "params", arange(first, number));
  }
  return out;
}

/// The slot of one parameter; undefined step where nothing is saved for it. `counts`: those made so far, which are shared.
Optimizer::Slot Optimizer::load_slot(const StateDict& state, const std::string& prefix, const Group& group,
                                     const Tensor& p, Counts& counts) const {
  const auto names = kind_->states(group.options, p);
  const Tensor* step = state.find(prefix + "step");
  const char* first = names[0] ? names[0] : names[2];
  if (!step && !(first && state.contains(prefix + first))) return {};
  check(step || kind_->uncounted, "[{}] expected {}step beside {}{}", name(), prefix, prefix, first);
  std::array<double, 3> count{step ? saved_number(name(), state, prefix + "step") : 1};
  for (size_t k = 0; k < 2; ++k)
    if (kind_->numbers[k]) count[k + 1] = saved_number(name(), state, prefix + kind_->numbers[k]);
  check(count[0] >= 0 && count[0] < 0x1p53 && count[0] == std::floor(count[0]),
        "[{}] expected a number of steps in {}step, got {}", name(), prefix, count[0]);
  auto at = std::find_if(counts.begin(), counts.end(),
                         [&](auto& c) { return c.first == count && c.second.step.device() == p.device(); });
  if (at == counts.end()) {
    Slot slot{.step = full({}, int64_t(count[0]), {.device = p.device()}), .numbers = {}, .state = {}, .master = {}};
    if (kind_->numbers[0]) slot.numbers = tensor({float(count[1]), float(count[2])}).to(p.device());
    at = counts.insert(at, {count, slot});
  }
  Slot slot = at->second;
  for (size_t k = 0; k < 3; ++k) {
    if (!names[k]) continue;
    const Tensor& from = state.at(prefix + names[k]);
    slot.state[k] = new_state(group, k, p);
    check(from.defined() && from.shape() == slot.state[k].shape(), "[{}] expected {}{} of shape {}, got {}", name(),
          prefix, names[k], slot.state[k].shape(), from);
    slot.state[k].copy_(from);
  }
  const Tensor* master = state.find(prefix + "master_param");
  if (!master) return slot;
  check(master->shape() == p.shape(), "[{}] expected {}master_param of shape {}, got {}", name(), prefix, p.shape(),
        master->shape());
  slot.master = zeros_like(p.detach(), {.dtype = kFloat32});
  slot.master.copy_(*master);
  return slot;
}

void Optimizer::load_state_dict(const StateDict& state) {
  check_names(name(), state);
  NoGrad guard;
  state_.changed(), rates_.changed();
  for (auto& [entry, t] : state)
    check(entry.starts_with("state.") || entry.starts_with("param_groups."),
          "[{}] expected names that begin with \"state.\" or \"param_groups.\", got \"{}\"", name(), entry);
  for (auto& [entry, t] : state) {
    if (!entry.starts_with("param_groups.")) continue;
    const int64_t n = number_in(entry, "param_groups.");
    check(n >= 0, "[{}] expected names like \"param_groups.0.lr\", got \"{}\"", name(), entry);
    check(n < num_groups(),
          "[{}] loaded state dict has a different number of parameter groups than the optimizer's {}: \"{}\"", name(),
          num_groups(), entry);
  }
  std::vector<Group> loaded;
  Counts counts;
  int64_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::string prefix = tapir::format("param_groups.{}.", int64_t(g));
    Group group{groups_[g].params, {}, groups_[g].options, 0, {}, {}, {}};
    const std::vector<double> members = read_option(state, prefix + "params");
    check(members.empty() || members.size() == group.params.size(),
          "[{}] loaded state dict contains a parameter group that doesn't match the size of optimizer's group {}: {} "
          "and {}",
          name(), int64_t(g), int64_t(members.size()), int64_t(group.params.size()));
    group.lr = saved_number(name(), state, prefix + "lr");
    check_option(name(), "learning rate", group.lr);
    if (state.contains(prefix + "initial_lr")) {
      group.initial_lr = saved_number(name(), state, prefix + "initial_lr");
      check_option(name(), "initial learning rate", *group.initial_lr);
    }
    for (const OptionRule& rule : kind_->options) {
      const std::vector<double> value = read_option(state, prefix + rule.name);
      if (!rule.texts.empty() || value.empty()) continue;
      check(value.size() == std::max<size_t>(1, numbers_of(group.options, rule).size()),
            "[{}] expected {} numbers in {}{}, got {}", name(), int64_t(numbers_of(group.options, rule).size()), prefix,
            rule.name, int64_t(value.size()));
      set_option(group.options, rule.name, value);
    }
    if (kind_->check) kind_->check(group.options);
    counts.clear();
    for (const Tensor& p : group.params)
      group.slots.push_back(load_slot(state, tapir::format("state.{}.", number++), group, p, counts));
    loaded.push_back(std::move(group));
  }
  for (auto& [entry, t] : state) {
    const int64_t n = entry.starts_with("state.") ? number_in(entry, "state.") : 0;
    check(n >= 0 && n < number, "[{}] expected states of {} parameters, got \"{}\"", name(), number, entry);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].slots = std::move(loaded[g].slots);
    set_lr(loaded[g].lr, int64_t(g));
    if (loaded[g].initial_lr) groups_[g].initial_lr = loaded[g].initial_lr;
    if (groups_[g].device_beta1.defined()) set_momentum(loaded[g].options.beta1, int64_t(g));
    groups_[g].options = loaded[g].options;
  }
}

}  // namespace tapir::inline v0::optim
