#pragma once
// What losses share.
#include "../../core/params.h"
#include "../loss.h"

namespace tapir::inline v0 {

/// The losses of all elements, kept, averaged or summed. BatchMean is kl_div's own: a ValueError here.
Tensor reduced(const char* op, const Tensor& losses, Reduction reduction);
/// ValueError where `target` would make the losses larger than the input: it may only repeat along input's axes.
void check_target(const char* op, const Tensor& input, const Tensor& target);
/// ValueError with the first element outside [low, high]; on the CPU alone.
void check_range(const char* op, const char* what, const Tensor& x, double low, double high);
/// x (N, C, ...) at the classes of index (N, 1, ...), which are checked.
Tensor pick_classes(const char* op, const Tensor& x, const Tensor& index);
/// cross_entropy's losses (N, ...) of labels, at least in float32; target is int64.
Tensor label_losses(const Tensor& logits, const Tensor& target, const Tensor& weight, const NllParams& p);
/// The gradient of cross_entropy's losses (N, ...) by logits (N, C, ...), in differentiable operations; target is int64.
Tensor cross_entropy_gradient(const Tensor& g, const Tensor& logits, const Tensor& target, const Tensor& weight,
                              const NllParams& p);
/// What the losses of labels are divided by: how many are not ignored, or the weights of those.
Tensor total_of(const Tensor& labels, int64_t ignore_index, const Tensor& weight, DType dtype);

}  // namespace tapir::inline v0
