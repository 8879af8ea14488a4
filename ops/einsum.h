#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// The sum of products that the equation names: einsum("bij,bjk->bik", {a, b}). Letters are dimensions, a repeated one in a term is a
/// diagonal, "..." stands for dimensions that broadcast; without "->" the letters that occur once are the result's, in alphabetical order.
/// ValueError for an equation that is none, or that the operands do not fit.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
inline Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands) {
  return einsum(equation, std::span(operands));
}
inline Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands) {
  return einsum(equation, std::span(operands.begin(), operands.size()));
}
/// The sum of products over the last `dims` dimensions of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);
/// The same over pairs of dimensions.
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b);
/// The sum of products over the last dimension of each; a 0-dim operand is a factor.
Tensor inner(const Tensor& a, const Tensor& b);
/// x1 W x2 + bias for each row: (..., I), (..., J), weight (O, I, J) -> (..., O).
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = {});

}  // namespace tapir::inline v0
