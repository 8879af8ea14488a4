#include "cycle_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tapir::inline v0::optim {

static void check_momentum(const char* name, const Optimizer& optimizer, const std::vector<double>& base,
                           const std::vector<double>& highest) {
  for (const double m : base) check_option(name, "base_momentum", m, 0, 1);
  for (const double m : highest) check_option(name, "max_momentum", m, 0, 1);
  check(optimizer.has_momentum(), "[{}] expected an optimizer with momentum or betas to cycle it, got {}", name,
        optimizer.name());
}
/// A momentum beyond what an optimizer can use, as of a scale that grows, is the nearest that it can: 0, or the highest of the schedule.
static double usable_momentum(double m, double highest) { return m < 0 ? 0 : m >= 1 ? highest : m; }

CyclicLR::CyclicLR(Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr, const CyclicLROptions& o)
    : LRScheduler("CyclicLR", optimizer), max_lr_(max_lr.of("CyclicLR", "max_lr", optimizer)),
      base_momentum_(o.base_momentum.of("CyclicLR", "base_momentum", optimizer)),
      max_momentum_(o.max_momentum.of("CyclicLR", "max_momentum", optimizer)), o_(o) {
  const int64_t down = o.step_size_down.value_or(o.step_size_up);
  check(o.step_size_up > 0 && down > 0, "[CyclicLR] expected step sizes above 0, got {} up and {} down", o.step_size_up,
        down);
  check(o.scale_fn || o.mode == "triangular" || o.mode == "triangular2" || o.mode == "exp_range",
        "[CyclicLR] expected mode \"triangular\", \"triangular2\" or \"exp_range\", got \"{}\"", o.mode);
  check(o.scale_mode == "cycle" || o.scale_mode == "iterations",
        "[CyclicLR] expected scale_mode \"cycle\" or \"iterations\", got \"{}\"", o.scale_mode);
  check_option("CyclicLR", "gamma", o.gamma);
  if (o.cycle_momentum) check_momentum("CyclicLR", optimizer, base_momentum_, max_momentum_);
  if (!o.scale_fn) o_.scale_mode = o.mode == "exp_range" ? "iterations" : "cycle";
  total_ = double(o.step_size_up) + double(down), ratio_ = double(o.step_size_up) / total_;
  set_base(base_lr.of("CyclicLR", "base_lr", optimizer));
  start();
}

/// How far the present step is above `low`.
double CyclicLR::height(double low, double high) const {
  const double t = double(epoch()), cycle = std::floor(1 + t / total_), x = 1 + t / total_ - cycle;
  const double part = x <= ratio_ ? x / ratio_ : (x - 1) / (ratio_ - 1), at = o_.scale_mode == "cycle" ? cycle : t;
  double scale = 1;
  if (o_.scale_fn) scale = o_.scale_fn(at);
  else if (o_.mode == "triangular2") scale = std::pow(2., 1 - at);
  else if (o_.mode == "exp_range") scale = std::pow(o_.gamma, at);
  return (high - low) * part * scale;
}
double CyclicLR::next_lr(size_t g, double) { return base(g) + height(base(g), max_lr_[g]); }
void CyclicLR::advance() {
  for (size_t g = 0; o_.cycle_momentum && g < groups(); ++g)
    optimizer().set_momentum(
        usable_momentum(max_momentum_[g] - height(base_momentum_[g], max_momentum_[g]), max_momentum_[g]), int64_t(g));
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, const PerGroup& max_lr, const OneCycleLROptions& o)
    : LRScheduler("OneCycleLR", optimizer), max_lr_(max_lr.of("OneCycleLR", "max_lr", optimizer)),
      base_momentum_(o.base_momentum.of("OneCycleLR", "base_momentum", optimizer)),
      max_momentum_(o.max_momentum.of("OneCycleLR", "max_momentum", optimizer)), o_(o) {
  const bool overflows = o.total_steps == 0 && __builtin_mul_overflow(o.epochs, o.steps_per_epoch, &o_.total_steps);
  check(!overflows && o_.total_steps > 0 && o.epochs >= 0,
        "[OneCycleLR] expected total_steps above 0, or epochs and steps_per_epoch, got {} or {} and {}", o.total_steps,
        o.epochs, o.steps_per_epoch);
  check(o.pct_start >= 0 && o.pct_start <= 1, "[OneCycleLR] expected pct_start in [0, 1], got {}", o.pct_start);
  check(o.anneal_strategy == "cos" || o.anneal_strategy == "linear",
        "[OneCycleLR] expected anneal_strategy \"cos\" or \"linear\", got \"{}\"", o.anneal_strategy);
  check(o.div_factor > 0 && o.final_div_factor > 0, "[OneCycleLR] expected dividers above 0, got {} and {}",
        o.div_factor, o.final_div_factor);
  if (o.cycle_momentum) check_momentum("OneCycleLR", optimizer, base_momentum_, max_momentum_);
  const double n = double(o_.total_steps), first = 1 / o.div_factor, last = first / o.final_div_factor;
  phases_.push_back({o.pct_start * n - 1, first, 1, 1, 0});
  if (o.three_phase)
    phases_.push_back({2 * o.pct_start * n - 2, 1, first, 0, 1}), phases_.push_back({n - 1, first, last, 1, 1});
  else phases_.push_back({n - 1, 1, last, 0, 1});
  std::vector<double> base = max_lr_;
  for (size_t g = 0; g < base.size(); ++g) optimizer.set_initial_lr(base[g] /= o.div_factor, int64_t(g));
  set_base(std::move(base));
  start();
}

double OneCycleLR::anneal(double from, double to) const {
  if (o_.anneal_strategy == "linear") return (to - from) * part_ + from;
  return to + (from - to) / 2 * (std::cos(std::numbers::pi * part_) + 1);
}
void OneCycleLR::advance() {
  const double t = double(epoch());
  check(epoch() <= o_.total_steps, "[OneCycleLR] tried to step {} times. The specified number of total steps is {}",
        epoch(), o_.total_steps);
  double begin = 0;
  phase_ = &phases_[0];
  while (t > phase_->end && phase_ != &phases_.back()) begin = phase_->end, ++phase_;
  part_ = phase_->end > begin ? (t - begin) / (phase_->end - begin) : 1;  // pct_start 1: nothing is left to fall in
  for (size_t g = 0; o_.cycle_momentum && g < groups(); ++g) {
    const double low = base_momentum_[g], high = max_momentum_[g];
    const auto momentum = [&](double x) { return x == 0 ? low : high; };
    const double m = anneal(momentum(phase_->momentum_from), momentum(phase_->momentum_to));
    optimizer().set_momentum(usable_momentum(m, std::max(low, high)), int64_t(g));
  }
}
double OneCycleLR::next_lr(size_t g, double) {
  return std::max(
      0., anneal(max_lr_[g] * phase_->from, max_lr_[g] * phase_->to));  // linear: the last step is beyond the end
}

SWALR::SWALR(Optimizer& optimizer, const PerGroup& swa_lr, const SWALROptions& o)
    : LRScheduler("SWALR", optimizer), swa_lr_(swa_lr.of("SWALR", "swa_lr", optimizer)),
      anneal_epochs_(double(o.anneal_epochs)), cosine_(o.anneal_strategy == "cos") {
  check(cosine_ || o.anneal_strategy == "linear", "[SWALR] expected anneal_strategy \"cos\" or \"linear\", got \"{}\"",
        o.anneal_strategy);
  check(o.anneal_epochs >= 0, "[SWALR] expected anneal_epochs from 0 on, got {}", o.anneal_epochs);
  start();
}

/// The part of the way to swa_lr that is behind at that step.
double SWALR::way(int64_t step) const {
  const double t = std::clamp(double(step) / std::max(anneal_epochs_, 1.), 0., 1.);
  return cosine_ ? (1 - std::cos(std::numbers::pi * t)) / 2 : t;
}
double SWALR::next_lr(size_t g, double now) {
  const int64_t step = anneal_epochs_ == 0 ? std::max<int64_t>(epoch(), 1) : epoch();
  const double before = way(step - 1), after = way(step), to = swa_lr_[g];
  const double from = before == 1 ? to : (now - before * to) / (1 - before);
  return to * after + from * (1 - after);
}

std::vector<std::pair<const char*, double*>> SWALR::numbers() { return {{"anneal_epochs", &anneal_epochs_}}; }

}  // namespace tapir::inline v0::optim
