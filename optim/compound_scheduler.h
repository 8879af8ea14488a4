#pragma once
#include "lr_scheduler.h"

namespace tapir::inline v0::optim {

struct ReduceLROnPlateauOptions {
  std::string mode = "min";  // or "max": what is better
  double factor = 0.1;
  int64_t patience = 10;  // steps without a better metric that are borne
  double threshold = 1e-4;
  std::string threshold_mode = "rel";  // or "abs"
  int64_t cooldown = 0;                // steps after a reduction in which nothing is counted
  PerGroup min_lr = 0;
  double eps = 1e-8;  // smaller changes are not made
};
/// Multiplies the rate by factor when the metric that step() is given has not become better for more than `patience` steps.
class ReduceLROnPlateau final : public LRScheduler {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});
  void step(double metric);

 private:
  using LRScheduler::step;
  double next_lr(size_t, double now) override { return now; }
  std::vector<std::pair<const char*, double*>> numbers() override;
  ReduceLROnPlateauOptions o_;
  std::vector<double> min_lr_;
  double best_, bad_ = 0, cooldown_ = 0;
};

/// What schedules made of others share. All are of one optimizer, and must outlive the one that they are in.
class CompoundScheduler : public LRScheduler {
 public:
  void step() override;
  void restart() override;
  void begin() override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 protected:
  CompoundScheduler(const char* name, std::vector<LRScheduler*> schedulers, Optimizer* optimizer = nullptr);
  const std::vector<LRScheduler*>& schedulers() const { return schedulers_; }

 private:
  double next_lr(size_t, double now) override { return now; }
  /// Takes those to last_epoch() whose turn it is.
  virtual void step_parts() = 0;
  std::vector<LRScheduler*> schedulers_;
};

/// One schedule until the first milestone, the next until the second, ...
///     optim::LinearLR warmup(opt, {.total_iters = 5});
///     optim::CosineAnnealingLR decay(opt, 95);
///     optim::SequentialLR scheduler(opt, {&warmup, &decay}, {5});
class SequentialLR final : public CompoundScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers, std::vector<int64_t> milestones);

 private:
  void step_parts() override;
  std::vector<int64_t> milestones_;
};

/// All schedules at every step, one after the other.
class ChainedScheduler final : public CompoundScheduler {
 public:
  explicit ChainedScheduler(std::vector<LRScheduler*> schedulers);

 private:
  void step_parts() override;
};

}  // namespace tapir::inline v0::optim
