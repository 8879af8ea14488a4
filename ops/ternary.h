#pragma once
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// a where condition (bool) holds, else b.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);
/// x with `value` (a number or a 0-dim tensor) where mask (bool) holds.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);
Tensor& masked_fill_(Tensor& self, const Tensor& mask, const Operand& value);

/// x limited to [min, max]; max where min is above it; NaN stays. ValueError without any bound.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = {});
/// The same with bounds that are broadcast; one of them may be undefined.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max = {});
Tensor clamp_min(const Tensor& x, const Operand& min);
Tensor clamp_max(const Tensor& x, const Operand& max);
Tensor& clamp_(Tensor& self, std::optional<Scalar> min, std::optional<Scalar> max = {});
Tensor& clamp_(Tensor& self, const Tensor& min, const Tensor& max = {});
Tensor& clamp_min_(Tensor& self, const Operand& min);
Tensor& clamp_max_(Tensor& self, const Operand& max);

/// x + weight (end - x). Floating point only.
Tensor lerp(const Tensor& x, const Tensor& end, const Operand& weight);
Tensor& lerp_(Tensor& self, const Tensor& end, const Operand& weight);
/// x + value a b
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
Tensor& addcmul_(Tensor& self, const Tensor& a, const Tensor& b, Scalar value = 1);
/// x + value a / b. Floating point only.
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
Tensor& addcdiv_(Tensor& self, const Tensor& a, const Tensor& b, Scalar value = 1);

}  // namespace tapir::inline v0
