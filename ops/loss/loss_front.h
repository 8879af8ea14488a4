#pragma once
// What losses share.
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

}  // namespace tapir::inline v0
