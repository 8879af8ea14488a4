#pragma once
#include <string>
#include <vector>

#include "modules.h"

// Note [Quantizing a model]
//     auto small = quant::quantize_dynamic(net);                         // Linear, Conv1D and LSTM: 8-bit weights and activations
//     auto small = quant::quantize_weights(net, {.bits = 4});            // for decoding: float activations
//     auto small = quant::quantize(net, example, [&](Net& net) {         // static: Conv and Linear, ranges of activations are measured
//       for (auto& [x, y] : calibration) net(x);
//     });
// Each gives a copy, and has a twin in place with PyTorch's underscore. Members keep their types: quantized modules stand behind them,
// Note [Modules in the place of others]; their float weights are gone. Only modules of exactly these types are touched, not structs
// derived from them, and none whose name is in `skip`, or below one that is.
namespace tapir::inline v0::quant {

struct DynamicOptions {
  std::vector<std::string> skip = {};  // names of modules: "fc", "blocks.0"
};
struct WeightsOptions {
  int64_t bits = 8, group = 0;  // as WeightOptions
  bool embeddings = false;      // nn::Embedding too, of 8 bits; its weight must not be read by others
  std::vector<std::string> skip = {};
};
struct StaticOptions {
  ObserverOptions activations = {};
  std::vector<std::string> skip = {};
};
struct ConvertOptions {
  bool uncalibrated = false;  // ranges of [0, 1] where nothing was seen: for a model that is then loaded from a file
};

/// Linear, Conv1D and LSTM become DynamicLinear and DynamicLSTM. ValueError for weights with NaN or infinity; the model is then half done.
void quantize_dynamic_(nn::Module& model, const DynamicOptions& options = {});
/// Linear and Conv1D become WeightOnlyLinear. ValueError for other bits than 8 and 4 and for groups that do not divide all rows.
void quantize_weights_(nn::Module& model, const WeightsOptions& options = {});
/// Switches to eval() and folds each batch norm into the convolution or linear layer whose output it takes, as a call with `example` shows;
/// returns how many. ValueError where the result is another then: a convolution's output has a second reader.
int64_t fold_batch_norm_(nn::Module& model, const Tensor& example);
/// fold_batch_norm_ (with an example), then Linear, Conv1d, Conv2d and Conv3d watch their inputs: call the model on calibration data, then convert.
void prepare_(nn::Module& model, const Tensor& example = {}, const StaticOptions& options = {});
/// What was prepared becomes quant::Linear and quant::Conv. ValueError that names a module which saw no data.
void convert_(nn::Module& model, const ConvertOptions& options = {});

template <nn::ModuleField M> M quantize_dynamic(M& model, const DynamicOptions& options = {}) {
  M q = model.clone();
  quantize_dynamic_(q, options);
  return q;
}
template <nn::ModuleField M> M quantize_weights(M& model, const WeightsOptions& options = {}) {
  M q = model.clone();
  quantize_weights_(q, options);
  return q;
}
template <nn::ModuleField M> M prepare(M& model, const Tensor& example = {}, const StaticOptions& options = {}) {
  M q = model.clone();
  prepare_(q, example, options);
  return q;
}
template <nn::ModuleField M> M convert(M& model, const ConvertOptions& options = {}) {
  M q = model.clone();
  convert_(q, options);
  return q;
}
/// prepare, calibrate(prepared model) without gradients, convert.
template <nn::ModuleField M, class F>
M quantize(M& model, const Tensor& example, F&& calibrate, const StaticOptions& options = {}) {
  M q = prepare(model, example, options);
  {
    NoGrad guard;
    calibrate(q);
  }
  convert_(q);
  return q;
}

}  // namespace tapir::inline v0::quant
