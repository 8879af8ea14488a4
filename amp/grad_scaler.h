#pragma once
#include <limits>
#include <vector>

#include "../optim/optimizer.h"

namespace tapir::inline v0::amp {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     // after growth_interval steps in a row with finite gradients
  double backoff_factor = 0.5;  // after a step with an infinity or NaN
  int64_t growth_interval = 2000;
  bool enabled = true;  // false: every call passes through
};

/// Keeps small float16 gradients from becoming 0: the loss is multiplied by a scale, the gradients divided by it, and a step whose
/// gradients are not finite changes nothing (Micikevicius et al. 2017, arXiv 1710.03740).
///     scaler.scale(loss).backward();
///     scaler.step(opt);
///     scaler.update();
/// It moves, as an optimizer does, and is not copied: two scalers of one optimizer would go apart.
/// Scale, growth and what was found lie on the device: nothing here waits for it, but for what says so.
class GradScaler {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(GradScaler&&) = default;
  GradScaler& operator=(GradScaler&&) = default;

  /// loss times the scale, in the loss's dtype.
  Tensor scale(const Tensor& loss);
  /// Divides the gradients by the scale, for what comes between backward and step: clipping, accumulating norms.
  /// ValueError when it was done since the last update, or step was.
  void unscale_(optim::Optimizer& optimizer);
  /// optimizer.step() on gradients divided by the scale; nothing changes where one of them was not finite. ValueError when it
  /// was done since the last update. max_norm: the gradients are clipped on the way, as by clip_grad_norm_, but stay as they are;
  /// one pass over them tells their norm and whether they are finite.
  void step(optim::Optimizer& optimizer, double max_norm = std::numeric_limits<double>::infinity());
  /// The next scale, from what the steps since the last update found; ValueError where there was none.
  void update();
  /// The same, to a given scale.
  void update(double new_scale);

  bool is_enabled() const { return options_.enabled; }
  /// Waits for the device.
  double get_scale() const;
  /// Did the last step of this optimizer since the last update change nothing? Waits for the device.
  bool skipped(const optim::Optimizer& optimizer) const;
  /// 0-dim float32 on the device, not 0 where a gradient of this optimizer was not finite; undefined before unscale_ or step.
  Tensor found_inf(const optim::Optimizer& optimizer) const;

  /// PyTorch's names; empty when disabled.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  struct Use {  // of an optimizer, since the last update
    const optim::Optimizer* optimizer;
    Tensor found_inf;
    bool unscaled = false, stepped = false;
  };
  void follow(Device device);
  Use& use(optim::Optimizer& optimizer);
  GradScalerOptions options_;
  Tensor scale_, growth_tracker_;  // 0-dim float32 and int32
  std::vector<Use> uses_;
};

}  // namespace tapir::inline v0::amp
