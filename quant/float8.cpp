#include "float8.h"

#include "../ops/shape.h"

namespace tapir::inline v0::quant {

Float8Linear::Float8Linear(const nn::Linear& from)
    : in_features(from.in_features), out_features(from.out_features), weight(from.weight), bias(from.bias) {}
std::string Float8Linear::extra_repr() {
  return tapir::format("in_features={}, out_features={}, bias={}", in_features, out_features,
                       nn::detail::bool_text(bias.defined()));
}

Float8Conv1D::Float8Conv1D(const nn::Conv1D& from) : weight(from.weight), bias(from.bias) {}
Tensor Float8Conv1D::forward(const Tensor& x) { return float8_linear(x, t(weight), bias); }

TAPIR_DEFINE_FIELDS(Float8Linear, Float8Conv1D)

}  // namespace tapir::inline v0::quant
