#include "compound_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapir::inline v0::optim {
namespace {

Optimizer& optimizer_of(const char* name, const std::vector<LRScheduler*>& schedulers, Optimizer* optimizer = nullptr) {
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
StateDict with_parts(StateDict out, const std::vector<LRScheduler*>& schedulers) {
  for (size_t i = 0; i < schedulers.size(); ++i) out.merge(prefix_of(i), schedulers[i]->state_dict());
  return out;
}
void load_parts(const StateDict& state, const std::vector<LRScheduler*>& schedulers) {
  for (size_t i = 0; i < schedulers.size(); ++i) schedulers[i]->load_state_dict(state.strip(prefix_of(i)));
}

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

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers, std::vector<int64_t> milestones)
    : LRScheduler("SequentialLR", optimizer_of("SequentialLR", schedulers, &optimizer)),
      schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
  check(milestones_.size() + 1 == schedulers_.size(), "[SequentialLR] expected {} milestones for {} schedulers, got {}",
        int64_t(schedulers_.size()) - 1, int64_t(schedulers_.size()), int64_t(milestones_.size()));
  check(std::is_sorted(milestones_.begin(), milestones_.end()), "[SequentialLR] expected sorted milestones");
  restart();
}
LRScheduler& SequentialLR::present() const {
  const auto after = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch());
  return *schedulers_[size_t(after - milestones_.begin())];
}
void SequentialLR::begin() {
  LRScheduler::begin();
  for (LRScheduler* s : schedulers_) s->begin();
}
void SequentialLR::restart() {
  begin();
  LRScheduler::restart();
  present().step();
}
void SequentialLR::step() {
  check_not_recorded(name());
  if (last_epoch() < 0) return restart();
  count_epoch();
  if (std::binary_search(milestones_.begin(), milestones_.end(), last_epoch())) present().restart();
  else present().step();
}
StateDict SequentialLR::state_dict() const { return with_parts(LRScheduler::state_dict(), schedulers_); }
void SequentialLR::load_state_dict(const StateDict& state) {
  LRScheduler::load_state_dict(state);
  load_parts(state, schedulers_);
}

ChainedScheduler::ChainedScheduler(std::vector<LRScheduler*> schedulers)
    : LRScheduler("ChainedScheduler", optimizer_of("ChainedScheduler", schedulers)),
      schedulers_(std::move(schedulers)) {
  start();
}
void ChainedScheduler::begin() {
  LRScheduler::begin();
  for (LRScheduler* s : schedulers_) s->begin();
}
void ChainedScheduler::restart() {
  begin();
  LRScheduler::restart();
  for (LRScheduler* s : schedulers_) s->step();
}
void ChainedScheduler::step() {
  check_not_recorded(name());
  if (last_epoch() < 0) return restart();
  count_epoch();
  for (LRScheduler* s : schedulers_) s->step();
}
StateDict ChainedScheduler::state_dict() const { return with_parts(LRScheduler::state_dict(), schedulers_); }
void ChainedScheduler::load_state_dict(const StateDict& state) {
  LRScheduler::load_state_dict(state);
  load_parts(state, schedulers_);
}

std::vector<std::pair<const char*, double*>> ReduceLROnPlateau::numbers() {
  return {{"best", &best_}, {"num_bad_epochs", &bad_}, {"cooldown_counter", &cooldown_}};
}

}  // namespace tapir::inline v0::optim
