#pragma once
#include "../core/tensor.h"

// Weight initialisation, in place and unrecorded; each returns its argument.
namespace tapir::inline v0::nn::init {

enum class FanMode : uint8_t { FanIn, FanOut };
enum class Nonlinearity : uint8_t { Linear, Sigmoid, Tanh, Relu, LeakyRelu, Selu };

/// Inputs and outputs of one unit: (out, in, kernel...). ValueError below rank 2.
std::pair<int64_t, int64_t> fan_in_and_out(const Tensor& weight);
/// The factor by which a nonlinearity asks weights to grow; `slope` is of LeakyRelu.
double gain_of(Nonlinearity nonlinearity, double slope = 0.01);

Tensor& constant_(const Tensor& x, double value);
Tensor& zeros_(const Tensor& x);
Tensor& ones_(const Tensor& x);
Tensor& uniform_(const Tensor& x, double from = 0, double to = 1);
Tensor& normal_(const Tensor& x, double mean = 0, double std = 1);
/// Normal, redrawn by inversion so that all values lie in [from, to].
Tensor& trunc_normal_(const Tensor& x, double mean = 0, double std = 1, double from = -2, double to = 2);
/// Glorot and Bengio 2010.
Tensor& xavier_uniform_(const Tensor& x, double gain = 1);
Tensor& xavier_normal_(const Tensor& x, double gain = 1);

struct KaimingOptions {
  double a = 0;  // negative slope of LeakyRelu
  FanMode mode = FanMode::FanIn;
  Nonlinearity nonlinearity = Nonlinearity::LeakyRelu;
};
/// He et al. 2015, arXiv 1502.01852.
Tensor& kaiming_uniform_(const Tensor& x, const KaimingOptions& options = {});
Tensor& kaiming_normal_(const Tensor& x, const KaimingOptions& options = {});

}  // namespace tapir::inline v0::nn::init
