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

// Floating point only, except where it says otherwise.

/// x where x > 0, else alpha (e^x - 1). Clevert et al. 2015, arXiv 1511.07289.
Tensor elu(const Tensor& x, double alpha = 1);
/// max(0, x) + min(0, alpha (e^(x / alpha) - 1)). Barron 2017, arXiv 1704.07483.
Tensor celu(const Tensor& x, double alpha = 1);
/// elu with the constants that keep mean 0 and variance 1. Klambauer et al. 2017, arXiv 1706.02515.
Tensor selu(const Tensor& x);
/// ln(1 + e^(beta x)) / beta; x itself where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
/// x tanh(softplus(x)). Misra 2019, arXiv 1908.08681.
Tensor mish(const Tensor& x);
/// ln(sigmoid(x))
Tensor logsigmoid(const Tensor& x);
/// x clamp(x + 3, 0, 6) / 6. Howard et al. 2019, arXiv 1905.02244.
Tensor hardswish(const Tensor& x);
/// clamp(x + 3, 0, 6) / 6
Tensor hardsigmoid(const Tensor& x);
/// x clamped to [min_val, max_val]; keeps integers. The gradient at the bounds is 0.
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1);
/// hardtanh(x, 0, 6)
Tensor relu6(const Tensor& x);
/// x where x > threshold, else value; keeps integers.
Tensor threshold(const Tensor& x, double threshold, double value);
/// x outside [-lambd, lambd], else 0.
Tensor hardshrink(const Tensor& x, double lambd = 0.5);
/// x moved by lambd towards 0, which it does not pass; lambd >= 0.
Tensor softshrink(const Tensor& x, double lambd = 0.5);
/// x / (1 + |x|); integers give float32.
Tensor softsign(const Tensor& x);
/// x - tanh(x); integers give float32.
Tensor tanhshrink(const Tensor& x);
/// x where x > 0, else weight x; weight has one element, or one for each channel (dimension 1 of x). He et al. 2015, arXiv 1502.01852.
Tensor prelu(const Tensor& x, const Tensor& weight);
/// a sigmoid(b) of the halves a, b of x along dim. Dauphin et al. 2016, arXiv 1612.08083.
Tensor glu(const Tensor& x, int64_t dim = -1);

Tensor& elu_(Tensor& self, double alpha = 1);
Tensor& celu_(Tensor& self, double alpha = 1);
Tensor& selu_(Tensor& self);
Tensor& mish_(Tensor& self);
Tensor& hardswish_(Tensor& self);
Tensor& hardsigmoid_(Tensor& self);
Tensor& hardtanh_(Tensor& self, double min_val = -1, double max_val = 1);
Tensor& relu6_(Tensor& self);
Tensor& threshold_(Tensor& self, double threshold, double value);

}  // namespace tapir::inline v0
