#pragma once
#include <string>

#include "module.h"

namespace tapir::inline v0::nn {

struct ReLUOptions {
  bool inplace = false;  // overwrites the input
};
struct ReLU : Module {
  bool inplace;
  explicit ReLU(const ReLUOptions& options = {}) : inplace(options.inplace) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() override { return inplace ? "inplace=True" : ""; }
  TAPIR_FIELDS(inplace)
};
struct Sigmoid : Module {
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS()
};
struct Tanh : Module {
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS()
};
struct SiLU : Module {
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS()
};
/// approximate: "none" or "tanh".
struct GELU : Module {
  std::string approximate;
  explicit GELU(std::string approximate = "none") : approximate(std::move(approximate)) {}
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS(approximate)
};
struct LeakyReLU : Module {
  double negative_slope;
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope(negative_slope) {}
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS(negative_slope)
};
struct Softmax : Module {
  int64_t dim;
  explicit Softmax(int64_t dim) : dim(dim) {}
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS(dim)
};
struct LogSoftmax : Module {
  int64_t dim;
  explicit LogSoftmax(int64_t dim) : dim(dim) {}
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS(dim)
};

}  // namespace tapir::inline v0::nn
