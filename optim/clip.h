#pragma once
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::optim {

struct ClipOptions {
  double norm_type = 2;             // infinity: the largest absolute value
  bool error_if_nonfinite = false;  // waits for the device; the default does not
};
/// Scales all gradients so that their norm, taken together, is at most max_norm. Returns the norm before, 0-dim.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, const ClipOptions& options = {});
/// Limits every element of the gradients to [-clip_value, clip_value].
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

}  // namespace tapir::inline v0::optim
