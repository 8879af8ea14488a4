#pragma once
#include <cstdint>

#include "../core/state_dict.h"

namespace tapir::inline v0::train {

struct EarlyStoppingOptions {
  int64_t patience = 10;          // epochs without progress after which to stop
  double min_delta = 0;           // what counts as progress is more than this
  bool higher_is_better = false;  // an accuracy instead of a loss
};

/// Says when a metric has stopped to improve: `if (stopping.step(validation_loss)) break;`. NaN is no progress.
class EarlyStopping {
 public:
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});
  /// Takes the metric of one more epoch; true when it is time to stop.
  bool step(double metric);
  bool stopped() const { return waited_ >= options_.patience; }
  /// The best metric so far; infinitely bad before the first.
  double best() const { return best_; }
  /// The epoch that gave it, from 0 on; -1 before the first.
  int64_t best_epoch() const { return best_epoch_; }
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  EarlyStoppingOptions options_;
  double best_;
  int64_t best_epoch_ = -1, epochs_ = 0, waited_ = 0;
};

}  // namespace tapir::inline v0::train
