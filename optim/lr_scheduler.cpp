#include "lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "../core/checks.h"
#include "../ops/create.h"
#include "kinds.h"

namespace tapir::inline v0::optim {

LRScheduler::LRScheduler(const char* name, Optimizer& optimizer) : name_(name), optimizer_(&optimizer) {
  check(optimizer.num_groups() > 0, "[{}] expected an optimizer with parameters, got one that was moved from", name);
  for (int64_t g = 0; g < optimizer.num_groups(); ++g) base_.push_back(optimizer.initial_lr(g));
}

void LRScheduler::start() {
  epoch_ = 0;
  advance();
  set_rates();
}
/// All or none.
void LRScheduler::set_rates() {
  std::vector<double> rates;
  for (size_t g = 0; g < groups(); ++g) {
    rates.push_back(next_lr(g, optimizer_->lr(int64_t(g))));
    check_option(name_, "learning rate", rates.back());
  }
  for (size_t g = 0; g < groups(); ++g) optimizer_->set_lr(rates[g], int64_t(g));
}

void LRScheduler::step() {
  check_not_recorded(name_);
  if (epoch_ < 0) return start();
  if (epoch_ == 0 && optimizer_->steps() == 0) {
    static bool warned = false;
    if (!std::exchange(warned, true))
      std::fprintf(stderr,
                   "tapir: warning: [%s] step() before the optimizer's first step(): the schedule's first rate is "
                   "skipped\n",
                   name_);
  }
  std::vector<double> before, momenta;  // where the user's function throws, or a rate is none, nothing has changed
  for (auto& [key, value] : numbers()) before.push_back(*value);
  for (size_t g = 0; optimizer_->has_momentum() && g < groups(); ++g)
    momenta.push_back(optimizer_->momentum(int64_t(g)));
  ++epoch_;
  try {
    advance();
    set_rates();
  } catch (...) {
    --epoch_;
    size_t i = 0;
    for (auto& [key, value] : numbers()) *value = before[i++];
    for (size_t g = 0; g < momenta.size(); ++g)
      if (optimizer_->momentum(int64_t(g)) != momenta[g]) optimizer_->set_momentum(momenta[g], int64_t(g));
    throw;
  }
}

void LRScheduler::restart() {
  for (size_t g = 0; g < groups(); ++g) optimizer_->set_lr(base_[g], int64_t(g));
  start();
}

int64_t LRScheduler::last_epoch() const {
  check_not_recorded("last_epoch", "a replay does not count: pass the number as an argument");
  return epoch_;
}

std::vector<double> LRScheduler::get_last_lr() const {
  std::vector<double> out;
  for (int64_t g = 0; g < optimizer_->num_groups(); ++g) out.push_back(optimizer_->lr(g));
  return out;
}

StateDict LRScheduler::state_dict() const {
  check_not_recorded(name_, "a replay makes no state dict");
  StateDict out{{"last_epoch", full({}, epoch_)}, {"base_lrs", tensor(base_)}, {"_last_lr", tensor(get_last_lr())}};
  for (auto& [key, value] : const_cast<LRScheduler*>(this)->numbers())
    out.append(key, full({}, *value, {.dtype = kFloat64}));
  return out;
}

void LRScheduler::load_state_dict(const StateDict& state) {
  std::vector<double> base = base_, values;
  if (const Tensor* t = state.find("base_lrs")) base = t->to_vector<double>();
  check(base.size() == base_.size(), "[{}] expected base_lrs of {} groups, got {}", name_, int64_t(base_.size()),
        int64_t(base.size()));
  check_names(name_, state);
  for (const double rate : base) check_option(name_, "base_lrs", rate);
  const double saved = saved_number(name_, state, "last_epoch");
  check(saved >= -1 && saved < 0x1p53 &&
            saved == std::floor(saved),  // a part of SequentialLR that has not begun is at -1
        "[{}] expected a whole last_epoch from -1 to 2^53 - 1, got {}", name_, saved);
  const auto epoch = int64_t(saved);
  for (auto& [key, value] : numbers()) {
    values.push_back(saved_number(name_, state, key));
    const std::string_view what = key;
    if (what != "best") check_option(name_, key, values.back(), what == "T_i" ? 1 : 0);
  }
  size_t i = 0;
  for (auto& [key, value] : numbers()) *value = values[i++];
  epoch_ = epoch, base_ = std::move(base);
}

std::vector<double> PerGroup::of(const char* schedule, const char* option, const Optimizer& optimizer) const {
  const size_t n = size_t(optimizer.num_groups());
  check(values.size() == 1 || values.size() == n, "[{}] expected {} values of {}, one for each group, got {}", schedule,
        int64_t(n), option, int64_t(values.size()));
  for (double v : values) check_option(schedule, option, v);
  return values.size() == n ? values : std::vector<double>(n, values[0]);
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, const StepLROptions& o)
    : LRScheduler("StepLR", optimizer), step_size_(step_size), o_(o) {
  check(step_size > 0, "[StepLR] expected step_size above 0, got {}", step_size);
  check_option("StepLR", "gamma", o.gamma);
  start();
}
double StepLR::next_lr(size_t, double now) { return epoch() > 0 && epoch() % step_size_ == 0 ? now * o_.gamma : now; }

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, const GammaOptions& o)
    : LRScheduler("MultiStepLR", optimizer), milestones_(std::move(milestones)), o_(o) {
  for (size_t i = 1; i < milestones_.size(); ++i)
    check(milestones_[i - 1] <= milestones_[i], "[MultiStepLR] expected sorted milestones, got {} before {}",
          milestones_[i - 1], milestones_[i]);
  if (!milestones_.empty()) check_count("MultiStepLR", "milestones", milestones_[0]);
  check_option("MultiStepLR", "gamma", o.gamma);
  start();
}
double MultiStepLR::next_lr(size_t, double now) {
  return now * std::pow(o_.gamma, double(std::count(milestones_.begin(), milestones_.end(), epoch())));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma)
    : LRScheduler("ExponentialLR", optimizer), gamma_(gamma) {
  check_option("ExponentialLR", "gamma", gamma);
  start();
}
double ExponentialLR::next_lr(size_t, double now) { return epoch() > 0 ? now * gamma_ : now; }

ConstantLR::ConstantLR(Optimizer& optimizer, const ConstantLROptions& o) : LRScheduler("ConstantLR", optimizer), o_(o) {
  check(o.factor > 0 && o.factor <= 1, "[ConstantLR] expected factor in (0, 1], got {}", o.factor);
  check(o.total_iters >= 0, "[ConstantLR] expected total_iters of at least 0, got {}", o.total_iters);
  start();
}
double ConstantLR::next_lr(size_t, double now) {
  if (epoch() == 0) return now * o_.factor;
  return epoch() == o_.total_iters ? now * (1 / o_.factor) : now;
}

LinearLR::LinearLR(Optimizer& optimizer, const LinearLROptions& o) : LRScheduler("LinearLR", optimizer), o_(o) {
  check(o.start_factor > 0 && o.start_factor <= 1, "[LinearLR] expected start_factor in (0, 1], got {}",
        o.start_factor);
  check(o.end_factor >= 0 && o.end_factor <= 1, "[LinearLR] expected end_factor in [0, 1], got {}", o.end_factor);
  check(o.total_iters > 0, "[LinearLR] expected total_iters above 0, got {}", o.total_iters);
  start();
}
double LinearLR::next_lr(size_t, double now) {
  if (epoch() == 0) return now * o_.start_factor;
  if (epoch() > o_.total_iters) return now;
  if (epoch() == o_.total_iters && o_.end_factor == 0) return 0;  // the product below is only near it, on either side
  const double change = o_.end_factor - o_.start_factor, n = double(o_.total_iters);
  return now * (1 + change / (n * o_.start_factor + double(epoch() - 1) * change));
}

PolynomialLR::PolynomialLR(Optimizer& optimizer, const PolynomialLROptions& o)
    : LRScheduler("PolynomialLR", optimizer), o_(o) {
  check(o.total_iters > 0, "[PolynomialLR] expected total_iters above 0, got {}", o.total_iters);
  check_option("PolynomialLR", "power", o.power);
  start();
}
double PolynomialLR::next_lr(size_t, double now) {
  if (epoch() == 0 || epoch() > o_.total_iters) return now;
  const double n = double(o_.total_iters), t = double(epoch());
  return now * std::pow((1 - t / n) / (1 - (t - 1) / n), o_.power);
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, const CosineAnnealingLROptions& o)
    : LRScheduler("CosineAnnealingLR", optimizer), T_max_(T_max), o_(o) {
  check(T_max > 0, "[CosineAnnealingLR] expected T_max above 0, got {}", T_max);
  check_option("CosineAnnealingLR", "eta_min", o.eta_min);
  start();
}
double CosineAnnealingLR::next_lr(size_t group, double now) {
  const double pi = std::numbers::pi, T = double(T_max_), t = double(epoch());
  if (epoch() == 0) return now;
  if ((epoch() - 1 - T_max_) % (2 * T_max_) == 0) return now + (base(group) - o_.eta_min) * (1 - std::cos(pi / T)) / 2;
  return (1 + std::cos(pi * t / T)) / (1 + std::cos(pi * (t - 1) / T)) * (now - o_.eta_min) + o_.eta_min;
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t T_0,
                                                         const WarmRestartsOptions& o)
    : LRScheduler("CosineAnnealingWarmRestarts", optimizer), T_0_(double(T_0)), T_mult_(double(o.T_mult)),
      eta_min_(o.eta_min) {
  check(T_0 > 0, "[CosineAnnealingWarmRestarts] expected T_0 above 0, got {}", T_0);
  check(o.T_mult >= 1, "[CosineAnnealingWarmRestarts] expected T_mult of at least 1, got {}", o.T_mult);
  check_option("CosineAnnealingWarmRestarts", "eta_min", o.eta_min);
  start();
}
void CosineAnnealingWarmRestarts::advance() {
  if (epoch() == 0) T_cur_ = 0, T_i_ = T_0_;
  else if (++T_cur_ >= T_i_) T_cur_ -= T_i_, T_i_ *= T_mult_;
}
double CosineAnnealingWarmRestarts::next_lr(size_t group, double) {
  return eta_min_ + (base(group) - eta_min_) * (1 + std::cos(std::numbers::pi * T_cur_ / T_i_)) / 2;
}

LRScheduler::~LRScheduler() = default;
std::vector<std::pair<const char*, double*>> LRScheduler::numbers() { return {}; }
std::vector<std::pair<const char*, double*>> CosineAnnealingWarmRestarts::numbers() {
  return {{"T_cur", &T_cur_}, {"T_i", &T_i_}};
}

}  // namespace tapir::inline v0::optim
