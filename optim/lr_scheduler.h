#pragma once
#include <string>
#include <vector>

#include "optimizer.h"

namespace tapir::inline v0::optim {

/// Base of the schedules: step() after each epoch (or batch) sets every group's learning rate. The optimizer must outlive it.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  void step();
  int64_t last_epoch() const { return epoch_; }
  std::vector<double> get_last_lr() const;
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 protected:
  explicit LRScheduler(Optimizer& optimizer);
  /// The rate at epoch() of a group that had `now` one step before and `base` at the start.
  virtual double next_lr(double now, double base) const = 0;
  int64_t epoch() const { return epoch_; }

 private:
  Optimizer* optimizer_;
  std::vector<double> base_;
  int64_t epoch_ = 0;
};

struct StepLROptions {
  double gamma = 0.1;
};
/// Multiplies the rate by gamma every step_size steps.
class StepLR final : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, const StepLROptions& options = {});

 private:
  double next_lr(double now, double base) const override;
  int64_t step_size_;
  StepLROptions o_;
};

struct CosineAnnealingLROptions {
  double eta_min = 0;
};
/// eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2, in PyTorch's recursive form. Loshchilov and Hutter 2016, arXiv 1608.03983.
class CosineAnnealingLR final : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, const CosineAnnealingLROptions& options = {});

 private:
  double next_lr(double now, double base) const override;
  int64_t T_max_;
  CosineAnnealingLROptions o_;
};

}  // namespace tapir::inline v0::optim
