#include "compound_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../core/checks.h"

namespace tapir::inline v0::optim {
namespace {

Optimizer& optimizer_of(const char* name, const std::vector<LRScheduler*>& schedulers, Optimizer* optimizer) {
  check(!schedulers.empty(), "[{}] expected at least one scheduler, got none", name);
  for (size_t i = 0; i < schedulers.size(); ++i) {
    check(schedulers[i] != nullptr, "[{}] expected schedulers, got a null pointer at index {}", name, int64_t(i));
    if (!optimizer) optimizer = &schedulers[i]->optimizer();
    check(&schedulers[i]->optimizer() == optimizer,
          "[{}] expected schedulers of one optimizer, the one at index {} is another's", name, int64_t(i));
    check(!dynamic_cast<ReduceLROnPlateau*>(schedulers[i]),
          "[{}] ReduceLROnPlateau needs a metric at every step: step it by itself (index {})", name, int64_t(i));
  }
  return *optimizer;
}
std::string prefix_of(size_t i) { return tapir::format("_schedulers.{}.", int64_t(i)); }
}  // namespace

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& o)
    : LRScheduler("ReduceLROnPlateau", optimizer), o_(o),
      min_lr_(o.min_lr.of("ReduceLROnPlateau", "min_lr", optimizer)) {
  const char* name = "ReduceLROnPlateau";
  check(o.mode == "min" || o.mode == "max", "[{}] expected mode \"min\" or \"max\", got \"{}\"", name, o.mode);
  check(o.threshold_mode == "rel" || o.threshold_mode == "abs",
        "[{}] expected threshold_mode \"rel\" or \"abs\", got \"{}\"", name, o.threshold_mode);
  check_option(name, "factor", o.factor, 0, 1);
  check_option(name, "threshold", o.threshold), check_option(name, "eps", o.eps);
  check(o.patience >= 0 && o.cooldown >= 0, "[{}] expected patience and cooldown of at least 0, got {} and {}", name,
        o.patience, o.cooldown);
  best_ = o.mode == "min" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  start();
}

void ReduceLROnPlateau::step(double metric) {
  count_epoch();
  const double sign = o_.mode == "min" ? 1 : -1;
  const double bar = o_.threshold_mode == "rel" ? best_ * (1 - sign * o_.threshold) : best_ - sign * o_.threshold;
  if (sign * metric < sign * bar) best_ = metric, bad_ = 0;
  else ++bad_;
  if (cooldown_ > 0) --cooldown_, bad_ = 0;
  if (bad_ <= double(o_.patience)) return;
  for (size_t g = 0; g < groups(); ++g) {
    const double old = optimizer().lr(int64_t(g)), lr = std::max(old * o_.factor, min_lr_[g]);
    if (old - lr > o_.eps) optimizer().set_lr(lr, int64_t(g));
  }
  cooldown_ = double(o_.cooldown), bad_ = 0;
}

CompoundScheduler::CompoundScheduler(const char* name, std::vector<LRScheduler*> schedulers, Optimizer* optimizer)
    : LRScheduler(name, optimizer_of(name, schedulers, optimizer)), schedulers_(std::move(schedulers)) {}
void CompoundScheduler::begin() {
  LRScheduler::begin();
  for (LRScheduler* s : schedulers_) s->begin();
}
void CompoundScheduler::restart() {
  begin();
  LRScheduler::restart();
  step_parts();
}
void CompoundScheduler::step() {
  check_not_recorded(name());
  if (last_epoch() < 0) return restart();
  count_epoch();
  step_parts();
}
StateDict CompoundScheduler::state_dict() const {
  StateDict out = LRScheduler::state_dict();
  for (size_t i = 0; i < schedulers_.size(); ++i) out.merge(prefix_of(i), schedulers_[i]->state_dict());
  return out;
}
void CompoundScheduler::load_state_dict(const StateDict& state) {
  LRScheduler::load_state_dict(state);
  for (size_t i = 0; i < schedulers_.size(); ++i) schedulers_[i]->load_state_dict(state.strip(prefix_of(i)));
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> parts, std::vector<int64_t> milestones)
    : CompoundScheduler("SequentialLR", std::move(parts), &optimizer), milestones_(std::move(milestones)) {
  const int64_t n = int64_t(schedulers().size());
  check(int64_t(milestones_.size()) + 1 == n, "[SequentialLR] expected {} milestones for {} schedulers, got {}", n - 1,
        n, int64_t(milestones_.size()));
  for (size_t i = 1; i < milestones_.size(); ++i)
    check(milestones_[i - 1] <= milestones_[i], "[SequentialLR] expected sorted milestones, got {} before {}",
          milestones_[i - 1], milestones_[i]);
  if (n > 1) check_count("SequentialLR", "milestones", milestones_[0]);
  restart();
}
void SequentialLR::step_parts() {
  const auto after = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch());
  LRScheduler& present = *schedulers()[size_t(after - milestones_.begin())];
  const bool begins = last_epoch() > 0 && std::binary_search(milestones_.begin(), milestones_.end(), last_epoch());
  begins ? present.restart() : present.step();
}

ChainedScheduler::ChainedScheduler(std::vector<LRScheduler*> parts)
    : CompoundScheduler("ChainedScheduler", std::move(parts)) {
  start();
}
void ChainedScheduler::step_parts() {
  for (LRScheduler* s : schedulers()) s->step();
}

std::vector<std::pair<const char*, double*>> ReduceLROnPlateau::numbers() {
  return {{"best", &best_}, {"num_bad_epochs", &bad_}, {"cooldown_counter", &cooldown_}};
}

}  // namespace tapir::inline v0::optim
