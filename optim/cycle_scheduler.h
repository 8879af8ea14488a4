#pragma once
#include "lr_scheduler.h"

namespace tapir::inline v0::optim {

struct CyclicLROptions {
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down = {};  // none: as up
  std::string mode = "triangular";             // or "triangular2" (halved each cycle), "exp_range" (gamma^step)
  double gamma = 1;
  double (*scale_fn)(double x) = nullptr;  // in place of the mode, of the cycle or the step
  std::string scale_mode = "cycle";        // or "iterations"
  bool cycle_momentum = true;              // the other way round, momentum or the first beta
  PerGroup base_momentum = 0.8, max_momentum = 0.9;
};
/// Between base_lr and max_lr, up and down, again and again; a step is a batch. Smith 2015, arXiv 1506.01186.
class CyclicLR final : public LRScheduler {
 public:
  CyclicLR(Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr, const CyclicLROptions& options = {});

 private:
  double next_lr(size_t group, double now) override;
  void advance() override;
  double height(double low, double high) const;
  std::vector<double> max_lr_, base_momentum_, max_momentum_;
  CyclicLROptions o_;
  double total_, ratio_;
};

struct OneCycleLROptions {
  int64_t total_steps = 0;  // or
  int64_t epochs = 0, steps_per_epoch = 0;
  double pct_start = 0.3;               // the part in which the rate rises
  std::string anneal_strategy = "cos";  // or "linear"
  bool cycle_momentum = true;           // the other way round, momentum or the first beta
  PerGroup base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25, final_div_factor = 1e4;  // from max_lr / div_factor, to that / final_div_factor
  bool three_phase = false;                        // down to the start in the same time, then to the end
};
/// One rise to max_lr and fall to almost 0 in total_steps batches; ValueError for a step beyond. Smith and Topin 2017, arXiv 1708.07120.
class OneCycleLR final : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, const PerGroup& max_lr, const OneCycleLROptions& options);

 private:
  struct Phase {
    double end;
    double from, to, momentum_from, momentum_to;  // rates as parts of max_lr; momentum: 0 is base, 1 is max
  };
  double next_lr(size_t group, double now) override;
  void advance() override;
  double anneal(double from, double to) const;
  std::vector<double> max_lr_, base_momentum_, max_momentum_;
  OneCycleLROptions o_;
  std::vector<Phase> phases_;
  const Phase* phase_ = nullptr;
  double part_ = 0;  // of the present phase
};

struct SWALROptions {
  int64_t anneal_epochs = 10;           // 0: swa_lr at once
  std::string anneal_strategy = "cos";  // or "linear"
};
/// From the rate that it finds to swa_lr in anneal_epochs steps, and constant there: for train::AveragedModel. Izmailov et al. 2018, arXiv
/// 1803.05407.
class SWALR final : public LRScheduler {
 public:
  SWALR(Optimizer& optimizer, const PerGroup& swa_lr, const SWALROptions& options = {});

 private:
  double next_lr(size_t group, double now) override;
  std::vector<std::pair<const char*, double*>> numbers() override;
  double way(int64_t step) const;
  std::vector<double> swa_lr_;
  double anneal_epochs_;
  bool cosine_;
};

}  // namespace tapir::inline v0::optim
