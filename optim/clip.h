#pragma once
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::optim {

struct ClipOptions {
  double norm_type = 2;             // infinity: the largest absolute value
  bool error_if_nonfinite = false;  // waits for the device; the default does not
};
/// The norm of all gradients, taken together: 0-dim.
Tensor grad_norm(const std::vector<Tensor>& params, const ClipOptions& options = {});
/// min(1, max_norm / norm): what clip_grad_norm_ multiplies the gradients by. A step that is given it clips on its way; no pass writes the
/// gradients, and they stay as they are:
///     opt.step({.inv_scale = optim::clip_factor(optim::grad_norm(params), 1)});
Tensor clip_factor(const Tensor& norm, double max_norm);
/// Scales all gradients so that their norm, taken together, is at most max_norm. Returns the norm before, 0-dim.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, const ClipOptions& options = {});
/// Limits every element of the gradients to [-clip_value, clip_value].
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

}  // namespace tapir::inline v0::optim
