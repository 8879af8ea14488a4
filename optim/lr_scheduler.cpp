#include "lr_scheduler.h"

#include <cmath>
#include <numbers>

#include "../ops/create.h"

namespace tapir::inline v0::optim {

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(&optimizer) {
  for (int64_t g = 0; g < optimizer.num_groups(); ++g) base_.push_back(optimizer.lr(g));
}

void LRScheduler::step() {
  ++epoch_;
  for (int64_t g = 0; g < optimizer_->num_groups(); ++g)
    optimizer_->set_lr(next_lr(optimizer_->lr(g), base_[size_t(g)]), g);
}

std::vector<double> LRScheduler::get_last_lr() const {
  std::vector<double> out;
  for (int64_t g = 0; g < optimizer_->num_groups(); ++g) out.push_back(optimizer_->lr(g));
  return out;
}

StateDict LRScheduler::state_dict() const { return {{"last_epoch", full({}, epoch_)}, {"base_lrs", tensor(base_)}}; }

void LRScheduler::load_state_dict(const StateDict& state) {
  std::vector<double> base = state.at("base_lrs").to_vector<double>();
  check(base.size() == base_.size(), "[LRScheduler] expected base_lrs of {} groups, got {}", int64_t(base_.size()),
        int64_t(base.size()));
  epoch_ = state.at("last_epoch").item<int64_t>();
  base_ = std::move(base);
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, const StepLROptions& o)
    : LRScheduler(optimizer), step_size_(step_size), o_(o) {
  check(step_size > 0, "[StepLR] expected step_size above 0, got {}", step_size);
  check_option("StepLR", "gamma", o.gamma);
}
double StepLR::next_lr(double now, double) const { return epoch() % step_size_ == 0 ? now * o_.gamma : now; }

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, const CosineAnnealingLROptions& o)
    : LRScheduler(optimizer), T_max_(T_max), o_(o) {
  check(T_max > 0, "[CosineAnnealingLR] expected T_max above 0, got {}", T_max);
  check_option("CosineAnnealingLR", "eta_min", o.eta_min);
}
double CosineAnnealingLR::next_lr(double now, double base) const {
  const double pi = std::numbers::pi, T = double(T_max_), t = double(epoch());
  if ((epoch() - 1 - T_max_) % (2 * T_max_) == 0) return now + (base - o_.eta_min) * (1 - std::cos(pi / T)) / 2;
  return (1 + std::cos(pi * t / T)) / (1 + std::cos(pi * (t - 1) / T)) * (now - o_.eta_min) + o_.eta_min;
}

}  // namespace tapir::inline v0::optim
