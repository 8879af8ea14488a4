#pragma once
#include <string_view>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// max(x, 0); keeps integers.
Tensor relu(const Tensor& x);
Tensor& relu_(Tensor& self);
/// x where x > 0, else slope x. Floating point only.
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor& leaky_relu_(Tensor& self, double negative_slope = 0.01);
/// x Phi(x), or with approximate "tanh" x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. Hendrycks and Gimpel 2016,
/// arXiv 1606.08415.
Tensor gelu(const Tensor& x, std::string_view approximate = "none");
/// x sigmoid(x)
Tensor silu(const Tensor& x);
Tensor& silu_(Tensor& self);
/// 1 / (1 + e^-x); integers give float32.
Tensor sigmoid(const Tensor& x);
Tensor& sigmoid_(Tensor& self);
Tensor tanh(const Tensor& x);
Tensor& tanh_(Tensor& self);

}  // namespace tapir::inline v0
