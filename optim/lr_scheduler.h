#pragma once
#include <string>
#include <type_traits>
#include <vector>

#include "optimizer.h"

namespace tapir::inline v0::optim {

// Note [Schedules]
// step() after each epoch (or batch) sets the rate of every group, from the rate before it: schedules may be chained, and a rate that was
// set by hand goes on from there, as in PyTorch. Making a schedule takes its step 0. Rates start from initial_lr(), which the first
// schedule of an optimizer keeps there. Schedules hold their optimizer by reference; it must outlive them.

/// Base of the schedules; see Note [Schedules].
class LRScheduler {
 public:
  virtual ~LRScheduler();
  virtual void step();
  int64_t last_epoch() const;
  std::vector<double> get_last_lr() const;
  /// PyTorch's names: "last_epoch", "base_lrs", "_last_lr" and what the schedule counts.
  virtual StateDict state_dict() const;
  virtual void load_state_dict(const StateDict& state);
  Optimizer& optimizer() const { return *optimizer_; }
  /// Back to step 0: at once, or (begin) before it. For schedules that are made of others.
  virtual void restart();
  virtual void begin() { epoch_ = -1; }

 protected:
  LRScheduler(const char* name, Optimizer& optimizer);
  /// Step 0; the last thing that a constructor does.
  void start();
  /// The rate at epoch() of a group that had `now` one step before.
  virtual double next_lr(size_t group, double now) = 0;
  /// What else changes with epoch(): momentum, counters.
  virtual void advance() {}
  /// Numbers that the state holds beside those of the base.
  virtual std::vector<std::pair<const char*, double*>> numbers();
  int64_t epoch() const { return epoch_; }
  double base(size_t group) const { return base_[group]; }
  size_t groups() const { return base_.size(); }
  void set_base(std::vector<double> rates) { base_ = std::move(rates); }
  void count_epoch() { ++epoch_; }
  const char* name() const { return name_; }

 private:
  void set_rates();
  const char* name_;
  Optimizer* optimizer_;
  std::vector<double> base_;
  int64_t epoch_ = -1;
};

/// One number for all groups, or one for each.
struct PerGroup {
  std::vector<double> values;
  PerGroup(double value) : values{value} {}
  PerGroup(std::initializer_list<double> values) : values(values) {}
  PerGroup(std::vector<double> values) : values(std::move(values)) {}
  /// The number of every group; ValueError where the count does not fit.
  std::vector<double> of(const char* schedule, const char* option, const Optimizer& optimizer) const;
};

namespace detail {
/// f(epoch), or f[group](epoch) of a list of functions.
template <class F> double call_lambda(F& f, size_t group, int64_t epoch) {
  if constexpr (requires { f[group](epoch); }) return double(f[group](epoch));
  else return double(f(epoch));
}
template <class F> void check_lambdas(const char* name, F& f, size_t groups) {
  if constexpr (requires { f.size(); })
    check(f.size() == groups, "[{}] expected {} functions, one for each group, got {}", name, int64_t(groups),
          int64_t(f.size()));
}
}  // namespace detail

/// base * lr_lambda(epoch); a function of the epoch, or a vector of them, one for each group.
template <class F> class LambdaLR final : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, F lr_lambda) : LRScheduler("LambdaLR", optimizer), lr_lambda_(std::move(lr_lambda)) {
    detail::check_lambdas("LambdaLR", lr_lambda_, groups());
    start();
  }

 private:
  double next_lr(size_t group, double) override {
    return base(group) * detail::call_lambda(lr_lambda_, group, epoch());
  }
  F lr_lambda_;
};

/// Multiplies the rate by lr_lambda(epoch), from epoch 1 on (in a SequentialLR that comes to it later: from 0).
template <class F> class MultiplicativeLR final : public LRScheduler {
 public:
  MultiplicativeLR(Optimizer& optimizer, F lr_lambda)
      : LRScheduler("MultiplicativeLR", optimizer), lr_lambda_(std::move(lr_lambda)) {
    detail::check_lambdas("MultiplicativeLR", lr_lambda_, groups());
    start();
  }
  void restart() override { restarted_ = true, start(); }

 private:
  double next_lr(size_t group, double now) override {
    return epoch() > 0 || restarted_ ? now * detail::call_lambda(lr_lambda_, group, epoch()) : now;
  }
  F lr_lambda_;
  bool restarted_ = false;
};

// A schedule of options alone, or of a first argument and options.
#define TAPIR_SCHEDULE(Name)                                                \
  class Name final : public LRScheduler {                                   \
   public:                                                                  \
    explicit Name(Optimizer& optimizer, const Name##Options& options = {}); \
                                                                            \
   private:                                                                 \
    double next_lr(size_t group, double now) override;                      \
    Name##Options o_;                                                       \
  };
#define TAPIR_SCHEDULE_OF(Name, Type, first)                                   \
  class Name final : public LRScheduler {                                      \
   public:                                                                     \
    Name(Optimizer& optimizer, Type first, const Name##Options& options = {}); \
                                                                               \
   private:                                                                    \
    double next_lr(size_t group, double now) override;                         \
    Type first##_;                                                             \
    Name##Options o_;                                                          \
  };

struct GammaOptions {
  double gamma = 0.1;
};
using StepLROptions = GammaOptions;
using MultiStepLROptions = GammaOptions;
/// Multiplies the rate by gamma every step_size steps.
TAPIR_SCHEDULE_OF(StepLR, int64_t, step_size)
/// Multiplies the rate by gamma at each milestone, as often as it is listed. ValueError where they are not sorted.
TAPIR_SCHEDULE_OF(MultiStepLR, std::vector<int64_t>, milestones)
/// Multiplies the rate by gamma every step.
class ExponentialLR final : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 private:
  double next_lr(size_t group, double now) override;
  double gamma_;
};

struct ConstantLROptions {
  double factor = 1. / 3;
  int64_t total_iters = 5;
};
/// The rate times factor, until step total_iters.
TAPIR_SCHEDULE(ConstantLR)

struct LinearLROptions {
  double start_factor = 1. / 3, end_factor = 1;
  int64_t total_iters = 5;
};
/// The rate times a factor that goes from start_factor to end_factor in total_iters steps: a warm-up.
TAPIR_SCHEDULE(LinearLR)

struct PolynomialLROptions {
  int64_t total_iters = 5;
  double power = 1;
};
/// base (1 - t / total_iters)^power, and 0 from there on.
TAPIR_SCHEDULE(PolynomialLR)

struct CosineAnnealingLROptions {
  double eta_min = 0;
};
/// eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2, in PyTorch's recursive form. Loshchilov and Hutter 2016, arXiv 1608.03983.
TAPIR_SCHEDULE_OF(CosineAnnealingLR, int64_t, T_max)
#undef TAPIR_SCHEDULE
#undef TAPIR_SCHEDULE_OF

struct WarmRestartsOptions {
  int64_t T_mult = 1;
  double eta_min = 0;
};
/// Half a cosine of T_0 steps, then again, each T_mult times as long as the one before. Loshchilov and Hutter 2016, arXiv 1608.03983.
class CosineAnnealingWarmRestarts final : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t T_0, const WarmRestartsOptions& options = {});

 private:
  double next_lr(size_t group, double now) override;
  void advance() override;
  std::vector<std::pair<const char*, double*>> numbers() override;
  double T_0_, T_mult_, eta_min_, T_cur_ = 0, T_i_ = 0;
};

}  // namespace tapir::inline v0::optim
