#pragma once
#include "../nn/conv.h"
#include "../nn/linear.h"
#include "../nn/rnn.h"
#include "../nn/sparse.h"
#include "../ops/quantize.h"
#include "observer.h"

// What stands in the place of a module after quantization. Weights are int8, symmetric, with one scale for each output (or group); all
// are buffers, so that they are saved and loaded as those of any module.
namespace tapir::inline v0::quant {

struct WeightOptions {
  int64_t bits = 8;   // or 4
  int64_t group = 0;  // so many weights of a row share a scale; 0: all of it of 8 bits, 64 of 4
};
struct QuantizedWeight {
  Tensor weight, scale;  // (O, K) int8 or (O, K / 2) uint8; (O) or (O, groups) float32
};
/// A matrix (O, K), or for 8 bits without groups any (O, ...). ValueError for NaN and infinity, other bits, groups that do not divide K.
QuantizedWeight quantize_weight(const Tensor& weight, const WeightOptions& options = {});

/// What quantized linear layers share.
struct LinearBase : nn::Module {
  int64_t in_features, out_features, bits;
  Buffer weight, scale, bias;
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(in_features, out_features, bits, weight, scale, bias)

 protected:
  /// weight: (O, K) floats
  LinearBase(const Tensor& weight, const Tensor& bias, const WeightOptions& options);
};
/// Float activations, weights of 8 or 4 bits: for decoding, where reading the weights is what takes the time.
struct WeightOnlyLinear : LinearBase {
  WeightOnlyLinear(const Tensor& weight, const Tensor& bias, const WeightOptions& options = {})
      : LinearBase(weight, bias, options) {}
  Tensor forward(const Tensor& x) { return quantized_linear(x, weight, scale, {.bias = bias, .bits = bits}); }
  TAPIR_DECLARE_FIELDS_WITH_BASE(LinearBase)
};
/// Activations are quantized to 8 bits at each call, each row by its own range.
struct DynamicLinear : LinearBase {
  DynamicLinear(const Tensor& weight, const Tensor& bias) : LinearBase(weight, bias, {}) {}
  Tensor forward(const Tensor& x) { return quantized_linear(x, weight, scale, {.bias = bias, .dynamic = true}); }
  TAPIR_DECLARE_FIELDS_WITH_BASE(LinearBase)
};
/// Activations are quantized to 8 bits by a range known from calibration.
struct Linear : LinearBase {
  Buffer input_scale, input_zero_point;
  Linear(const Tensor& weight, const Tensor& bias, const QuantizationParams& input)
      : LinearBase(weight, bias, {}), input_scale(input.scale), input_zero_point(input.zero_point) {}
  Tensor forward(const Tensor& x) {
    return quantized_linear(x, weight, scale,
                            {.bias = bias, .input_scale = input_scale, .input_zero_point = input_zero_point});
  }
  TAPIR_DECLARE_FIELDS_WITH_BASE(LinearBase, input_scale, input_zero_point)
};
/// A convolution of 1 to 3 spatial axes, as Linear.
struct Conv : nn::ConvBase {
  Buffer int_weight, scale, float_bias, input_scale, input_zero_point;
  Conv(nn::ConvBase&& from, const QuantizationParams& input);
  Tensor forward(const Tensor& x);
  void tapir_rename(std::vector<nn::Field>& fields) override;
  TAPIR_DECLARE_FIELDS_WITH_BASE(nn::ConvBase, int_weight, scale, float_bias, input_scale, input_zero_point)
};
/// Rows of 8 bits, each with its scale.
struct Embedding : nn::Module {
  int64_t num_embeddings, embedding_dim;
  Buffer weight, scale;
  explicit Embedding(const Tensor& weight);
  Tensor forward(const Tensor& index);
  TAPIR_DECLARE_FIELDS(num_embeddings, embedding_dim, weight, scale)
};
/// An LSTM of DynamicLinear products; biases and weight_hr stay floats.
struct DynamicLSTM : nn::LSTM {
  std::vector<Buffer>
      quantized;  // weight_ih_l0, its scale, weight_hh_l0, its scale, then those of the next layer or direction
  explicit DynamicLSTM(nn::LSTM&& from);
  void tapir_rename(std::vector<nn::Field>& fields) override;
  TAPIR_DECLARE_FIELDS_WITH_BASE(nn::LSTM, quantized)

 protected:
  RnnResult run_layer(int64_t at, const Tensor& x, const nn::LSTMState& state, const Tensor& batch_sizes) override;
};

/// A float module that watches its input: what prepare() puts in the place of M.
template <class M> struct Observed : M {
  Observer input;
  Observed(M&& from, const ObserverOptions& options) : M(std::move(from)), input(options) {}
  Tensor forward(const Tensor& x) { return M::forward(input(x)); }
  TAPIR_FIELDS_WITH_BASE(M, input)
};

}  // namespace tapir::inline v0::quant
