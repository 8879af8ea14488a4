#include "optimizer.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "../autograd/grad_batches.h"
#include "../autograd/record.h"
#include "../core/denormals.h"
#include "../core/generator.h"
#include "../core/modes.h"
#include "../core/recorder.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/ternary.h"
#include "kinds.h"

namespace tapir::inline v0::optim {

static Tensor clone_if(const Tensor& x) { return x.defined() ? x.clone() : x; }

void check_option(const char* optimizer, const char* option, double value, double low, double high) {
  const bool ok = std::isfinite(value) && value >= low && (high <= low || value < high);
  if (ok) return;
  if (low == kAnyNumber)
    fail(ErrorKind::Value, "[{}] invalid {}: expected a finite number, got {}", optimizer, option, value);
  if (high <= low)
    fail(ErrorKind::Value, "[{}] invalid {}: expected a finite number of at least {}, got {}", optimizer, option, low,
         value);
  fail(ErrorKind::Value, "[{}] invalid {}: expected a number in [{}, {}), got {}", optimizer, option, low, high, value);
}

void check_not_recorded(const char* function, const char* why) {
  if (modes.recorder)
    modes.recorder->host_acts(tapir::format("[{}] expected a call outside of compile(): {}", function, why));
}

Tensor detail::flushed(const Tensor& x) {
  if ((x.dtype() != kFloat32 && x.dtype() != kBFloat16) || (modes.flush_denormals && x.device().is_cpu())) return x;
  return hardshrink(x, 0x1p-126);  // which goes too: a smaller bound would be denormal itself
}

OptionValues values_of(const OptimizerKind& kind) {
  OptionValues values{};
  values.op = kind.op, values.beta1 = values.beta2 = values.eps = 0;
  return values;
}
const char* Optimizer::name() const { return kind_->name; }
bool Optimizer::has_momentum() const { return kind_->momentum; }
void Optimizer::check_groups(size_t count) const {
  check(count > 0, "[{}] optimizer got an empty parameter list", name());
}
size_t Optimizer::index(int64_t group) const {
  check(group >= 0 && group < num_groups(), "[{}] expected a group below {}, got {}", name(), num_groups(), group);
  return size_t(group);
}

static const OptionRule* rule_of(const OptimizerKind& kind, std::string_view option) {
  for (const OptionRule& rule : kind.options)
    if (option == rule.name) return &rule;
  return nullptr;
}
void Optimizer::set_option(OptionValues& to, const char* option, std::span<const double> value) const {
  const OptionRule* rule = rule_of(*kind_, option);
  if (!rule) return;  // lr
  if (rule->flag) to.*rule->flag = value[0] != 0;
  for (size_t i = 0; i < value.size() && rule->at[0]; ++i) {
    if (value.size() == 1) check_option(name(), option, value[i], rule->low, rule->high);
    else
      check_option(name(), tapir::format("{} at index {}", option, int64_t(i)).c_str(), value[i], rule->low,
                   rule->high);
    to.*rule->at[i] = value[i];
  }
}
void Optimizer::set_option(OptionValues& to, const char* option, const std::string& value) const {
  const OptionRule& rule = *rule_of(*kind_, option);
  const auto found = std::find(rule.texts.begin(), rule.texts.end(), value);
  std::string texts;
  for (const char* text : rule.texts) texts += tapir::format("{}\"{}\"", texts.empty() ? "" : ", ", text);
  check(found != rule.texts.end(), "[{}] invalid {}: expected one of {}, got \"{}\"", name(), option, texts, value);
  to.*rule.at[0] = double(found - rule.texts.begin());
}

/// What is not given is a NaN.
void Optimizer::set_option(OptionValues& to, const char* option, const OptionalPair& value) const {
  const double none = std::numeric_limits<double>::quiet_NaN();
  set_option(to, option, Pair{value[0].value_or(0), value[1].value_or(0)});
  for (size_t i = 0; i < 2; ++i)
    if (!value[i]) to.*rule_of(*kind_, option)->at[i] = none;
}

Optimizer::~Optimizer() = default;
void Optimizer::add_group(std::vector<Tensor> params, const OptionValues& options, double lr) {
  check_groups(params.size());
  check_option(name(), "learning rate", lr);
  if (kind_->check) kind_->check(options);
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    check(p.defined(), "[{}] expected tensors to optimize, got an undefined one at position {}", name(), int64_t(i));
    check(p.is_leaf(), "[{}] can't optimize a non-leaf Tensor ({} at position {}, made by {})", name(), p, int64_t(i),
          p.grad_fn());
    check(is_floating(p.dtype()), "[{}] expected floating-point parameters, got {} at position {}", name(), p,
          int64_t(i));
    check(
        p.requires_grad(),
        "[{}] expected parameters that require grad, got {} at position {} that does not; frozen ones are left out by "
        "std::erase_if(params, [](const Tensor& p) { return !p.requires_grad(); })",
        name(), p, int64_t(i));
    check(!may_overlap(p.shape(), p.strides()),
          "[{}] expected parameters whose elements have places of their own, got {} at position {} with strides {} (an "
          "expanded tensor: clone() it)",
          name(), p, int64_t(i), p.strides());
    const auto same = [&](const Tensor& other) { return other.is_same(p); };
    check(std::none_of(params.begin(), params.begin() + int64_t(i), same),
          "[{}] the parameter at position {} ({}) appears twice in its group", name(), int64_t(i), p);
    for (size_t g = 0; g < groups_.size(); ++g) {
      check(std::none_of(groups_[g].params.begin(), groups_[g].params.end(), same),
            "[{}] some parameters appear in more than one parameter group: position {} ({}) is in group {} too", name(),
            int64_t(i), p, int64_t(g));
    }
  }
  Group group;
  group.slots.resize(params.size());
  group.params = std::move(params), group.options = options, group.lr = lr;
  if (kind_->early) {
    NoGrad guard;
    std::vector<Slot> fresh;
    for (size_t i = 0; i < group.params.size(); ++i) prepare(group, i, fresh);
  }
  groups_.push_back(std::move(group));
}

void Optimizer::set_lr(double lr, int64_t group) {
  Group& g = groups_[index(group)];
  check_not_recorded("set_lr");
  check_option(name(), "learning rate", lr);
  if (g.lr == lr) return;
  g.lr = lr;
  rates_.changed();
  NoGrad guard;
  if (g.device_lr.defined()) g.device_lr.fill_(lr);
}

double Optimizer::initial_lr(int64_t group) {
  rates_.asked();
  Group& g = groups_[index(group)];
  return g.initial_lr ? *g.initial_lr : *(g.initial_lr = g.lr);
}
void Optimizer::set_initial_lr(double lr, int64_t group) {
  Group& g = groups_[index(group)];
  check_not_recorded("set_initial_lr");
  check_option(name(), "initial learning rate", lr);
  g.initial_lr = lr;
  rates_.changed();
}

int64_t Optimizer::steps() const {
  check_not_recorded("steps", "replays do not count: pass the number as an argument, or keep it in a tensor");
  return steps_;
}

void Optimizer::set_momentum(double momentum, int64_t group) {
  Group& g = groups_[index(group)];
  check(has_momentum(), "[{}] expected an optimizer with momentum or betas to set it", name());
  check_not_recorded("set_momentum");
  check_option(name(), "momentum", momentum, 0, 1);
  const bool other_states = (g.options.beta1 != 0) != (momentum != 0);
  if (g.options.beta1 != momentum) rates_.changed();
  g.options.beta1 = momentum;
  NoGrad guard;
  const bool there = g.device_beta1.defined();
  if (!there || other_states) state_.changed();
  if (there) return void(g.device_beta1.fill_(momentum));
  g.device_beta1 = full({}, momentum, {.dtype = kFloat64, .device = g.params[0].device()});
}

void Optimizer::zero_grad(bool set_to_none) {
  state_.asked();
  for (const Group& g : groups_) zero_grads(g.params, set_to_none);
}

/// What a scaler gives is undefined, or one number that kernels read as it lies there.
static void check_scale(const char* optimizer, const char* what, const Tensor& x) {
  check(!x.defined() || (x.numel() == 1 && (x.dtype() == kFloat32 || x.dtype() == kFloat64)),
        "[{}] expected {} of one element, float32 or float64, got {}", optimizer, what, x);
}

void Optimizer::step(const StepScale& scale) {
  check(!groups_.empty(), "[{}] expected an optimizer with parameters, got one that was moved from", name());
  check_scale(name(), "inv_scale", scale.inv_scale), check_scale(name(), "found_inf", scale.found_inf);
  NoGrad guard;
  const profiler::Range range(profiler::Kind::Optimizer, name());
  state_.asked();
  ++steps_;
  for (Group& g : groups_) {
    const std::vector<Batch> batches = batches_of(g);
    for (size_t b = 0; b < batches.size(); ++b) {
      Batch batch = batches[b];
      if (!g.device_lr.defined() || g.device_lr.device() != batch.device)
        g.device_lr = full({}, g.lr, {.dtype = kFloat64, .device = batch.device});
      if (g.device_beta1.defined() && g.device_beta1.device() != batch.device)
        g.device_beta1 = to(g.device_beta1, batch.device);
      // A count that several calls share (two types of computing) is raised by the last of them only: the others work on a copy.
      const bool shared = std::any_of(batches.begin() + int64_t(b) + 1, batches.end(),
                                      [&](const Batch& later) { return later.step.is_same(batch.step); });
      if (shared) batch.step = batch.step.clone(), batch.numbers = clone_if(batch.numbers);
      const auto there = [&](const Tensor& x) { return x.defined() ? to(x, batch.device) : x; };
      for (size_t i : batch.members) bump_version(g.params[i]);
      update(g, batch, {there(scale.inv_scale), there(scale.found_inf)});
    }
  }
}

enum Rounding { kNearest, kStochastic, kMaster };
/// What becomes of small updates to a parameter of that dtype.
static Rounding rounding_of(const OptionValues& options, DType dtype) {
  return dtype == kBFloat16 || dtype == kFloat16 ? Rounding(int(options.low_precision)) : kNearest;
}

std::vector<Tensor> Optimizer::widened(Group& group, const Batch& batch) {
  std::vector<Tensor> out;
  for (size_t i : batch.members) {
    const Tensor p = group.params[i].detach();
    const Rounding rounding = rounding_of(group.options, p.dtype());
    check(rounding != kStochastic || p.dtype() == kBFloat16,
          "[{}] expected bfloat16 parameters for stochastic rounding, got {}", name(), p.dtype());
    Tensor& master = group.slots[i].master;
    if (rounding == kMaster && !master.defined()) master = to(p, kFloat32);
    else if (rounding == kMaster && master.device() != p.device()) master = to(master, p.device());
    out.push_back(rounding == kNearest ? p : rounding == kMaster ? master : to(p, kFloat32));
  }
  return out;
}

/// To bfloat16: of the bits of x those above a random number of the 16 that go are kept, after it was added.
static void round_stochastically(const Tensor& p, const Tensor& x) {
  const Tensor noise = empty(x.shape(), {.dtype = kInt32, .device = x.device()});
  RandomParams random{RandomOp::Integer};
  std::tie(random.seed, random.offset) = default_generator().take(x.numel());
  random.low = 0, random.high = 1 << 16;
  backend(x).random(context(x), {.out = noise, .params = random});
  TensorView bits(x);
  bits.dtype = kInt32;
  backend(x).binary(context(x), {bits, bits, noise, {BinaryOp::Add}});
  TensorView high(x);  // the upper half of each number: little-endian
  high.dtype = kBFloat16, high.data = static_cast<char*>(high.data) + 2;
  for (int64_t d = 0; d < high.rank; ++d) high.strides[d] *= 2;
  backend(x).copy(context(x), {p, high});
}

void Optimizer::narrowed(Group& group, const Batch& batch, const std::vector<Tensor>& wide) {
  for (size_t k = 0; k < wide.size(); ++k) {
    const Tensor& p = group.params[batch.members[k]];
    if (rounding_of(group.options, p.dtype()) == kStochastic) round_stochastically(p, wide[k]);
  }
}

void Optimizer::update(Group& group, const Batch& batch, const StepScale& scale) {
  const std::vector<Tensor> params = widened(group, batch);
  std::vector<TensorView> values(params.begin(), params.end());
  const bool copies = std::any_of(batch.members.begin(), batch.members.end(), [&](size_t i) {
    return rounding_of(group.options, group.params[i].dtype()) == kMaster;
  });
  for (size_t k = 0; copies && k < params.size(); ++k) values.emplace_back(group.params[batch.members[k]]);
  std::vector<TensorView> grads, states[3];
  for (auto* list : {&grads, &states[0], &states[1], &states[2]}) list->reserve(values.size());
  for (size_t i : batch.members) {
    grads.emplace_back(group.params[i].grad());
    const auto names = kind_->states(group.options, group.params[i]);
    for (size_t k = 0, to = 0; k < 3; ++k)
      if (names[k]) states[to++].emplace_back(group.slots[i].state[k]);
  }
  OptimizerParams constants = group.options;
  // The tensor has it, and nothing here changes from step to step: 0 or 1 says whether there is a buffer.
  if (group.device_beta1.defined()) constants.beta1 = constants.beta1 != 0;
  backend(batch.device)
      .optimizer_step(context(batch.device), {.values = values,
                                              .grads = grads,
                                              .first = states[0],
                                              .second = states[1],
                                              .third = states[2],
                                              .lr = group.device_lr,
                                              .step = batch.step,
                                              .inv_scale = scale.inv_scale,
                                              .found_inf = scale.found_inf,
                                              .beta1 = group.device_beta1,
                                              .numbers = batch.numbers,
                                              .params = constants});
  narrowed(group, batch, params);
}

Tensor Optimizer::gradient(const Group& group, size_t i, const StepScale& scale) {
  Tensor g = group.params[i].grad().detach();
  if (scale.inv_scale.defined()) g = g * scale.inv_scale;
  return detail::flushed(group.options.maximize ? -g : g);
}
void Optimizer::assign(Tensor& to, const Tensor& value, const StepScale& scale) {
  if (scale.found_inf.defined()) to.copy_(where(scale.found_inf.eq(0), detail::flushed(value), to));
  else to.copy_(detail::flushed(value));
}
void Optimizer::count(const Batch& batch, const StepScale& scale) {
  Tensor step = batch.step;
  if (scale.found_inf.defined()) step.add_(scale.found_inf.eq(0));
  else step.add_(1);
}

Tensor Optimizer::new_state(const Group& group, size_t k, const Tensor& p) const {
  const bool wide = rounding_of(group.options, p.dtype()) != kNearest;
  Tensor state = zeros_like(p.detach(), {.dtype = wide ? kFloat32 : p.dtype()});
  const double start = kind_->start ? kind_->start(group.options, group.lr, k) : 0;
  if (start != 0) state.fill_(start);
  return state;
}

/// Makes the state of parameter i where it has none yet, and lets it follow its parameter to another device. `fresh`: the counts, by
/// device, of parameters that begin now.
void Optimizer::prepare(Group& group, size_t i, std::vector<Slot>& fresh) {
  const Tensor& p = group.params[i];
  const Device device = p.device();
  Slot& slot = group.slots[i];
  if (!slot.step.defined()) {
    auto at = std::find_if(fresh.begin(), fresh.end(), [&](const Slot& s) { return s.step.device() == device; });
    if (at == fresh.end()) {
      at = fresh.insert(
          at, {.step = zeros({}, {.dtype = kInt64, .device = device}), .numbers = {}, .state = {}, .master = {}});
      // mu_product begins at 1; eta and mu at lr and 1
      if (kind_->numbers[0]) at->numbers = tensor({kind_->numbers[1] ? float(group.lr) : 1.f, 1.f}).to(device);
    }
    slot.step = at->step, slot.numbers = at->numbers;
  } else if (slot.step.device() != device) {
    slot.step = to(slot.step, device);
    if (slot.numbers.defined()) slot.numbers = to(slot.numbers, device);
  }
  const auto names = kind_->states(group.options, p);
  for (size_t k = 0; k < 3; ++k) {
    if (!names[k]) continue;
    if (!slot.state[k].defined()) slot.state[k] = new_state(group, k, p);
    else if (slot.state[k].device() != device) slot.state[k] = to(slot.state[k], device);
  }
}

/// Parameters share a step count as long as they are stepped together. Where only some of those that share one have a gradient
/// now, these get a copy of their own.
void Optimizer::split_cohorts(Group& group) {
  std::unordered_map<TensorImpl*, Slot> left_behind;  // counts of idle parameters -> the copy for those that go on
  for (size_t i = 0; i < group.params.size(); ++i)
    if (group.slots[i].step.defined() && !group.params[i].grad().defined())
      left_behind.try_emplace(group.slots[i].step.impl_or_null());
  for (size_t i = 0; i < group.params.size() && !left_behind.empty(); ++i) {
    Slot& slot = group.slots[i];
    if (!group.params[i].grad().defined()) continue;
    const auto found = left_behind.find(slot.step.impl_or_null());
    if (found == left_behind.end()) continue;
    Slot& own = found->second;
    if (!own.step.defined()) own.step = slot.step.clone(), own.numbers = clone_if(slot.numbers);
    slot.step = own.step, slot.numbers = own.numbers;
    state_.changed();  // programs know the count that it had
  }
}

std::vector<Optimizer::Batch> Optimizer::batches_of(Group& group) {
  std::vector<Batch> batches;
  std::vector<Slot> fresh;
  const bool idle =
      std::any_of(group.params.begin(), group.params.end(), [](const Tensor& p) { return !p.grad().defined(); });
  if (idle) split_cohorts(group);
  for (size_t i = 0; i < group.params.size(); ++i) {
    const Tensor& p = group.params[i];
    if (!p.grad().defined()) continue;
    check(p.grad().dtype() == p.dtype() && p.grad().device() == p.device(),
          "[{}] expected a gradient like its parameter {} (at position {}), got {}", name(), p, int64_t(i), p.grad());
    check_writable(name(), p);
    prepare(group, i, fresh);
    const Slot& slot = group.slots[i];
    auto found = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) {
      return b.dtype == compute_type(p.dtype()) && b.device == p.device() && b.step.is_same(slot.step);
    });
    if (found == batches.end())
      found = batches.insert(found, {compute_type(p.dtype()), p.device(), slot.step, slot.numbers, {}});
    found->members.push_back(i);
  }
  return batches;
}

}  // namespace tapir::inline v0::optim
