#pragma once
#include "../nn/linear.h"
#include "../ops/float8.h"

// Note [Training in 8-bit floats]
//     quant::float8_training_(net);  // before the optimizer is made or after it
// From then on products of linear layers, forward and backward, are float8_linear()'s: their operands are rounded to 8-bit floats, each
// tensor with a scale of its own at each call (torchao's "tensorwise, dynamic"). Parameters are the same objects as before and stay wide, as do
// state_dict keys, optimizers and all between the layers. Where the modules stand: Note [Modules in the place of others].
namespace tapir::inline v0::quant {

/// nn::Linear by float8_linear(), with the very parameters of `from`.
struct Float8Linear : nn::Module {
  int64_t in_features, out_features;
  Parameter weight, bias;
  explicit Float8Linear(const nn::Linear& from);
  Tensor forward(const Tensor& x) { return float8_linear(x, weight, bias); }
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(in_features, out_features, weight, bias)
};
/// The same of nn::Conv1D, whose weight lies (in, out).
struct Float8Conv1D : nn::Module {
  Parameter weight, bias;
  explicit Float8Conv1D(const nn::Conv1D& from);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(weight, bias)
};

struct Float8Options {
  std::vector<std::string> skip = {};  // names of modules: "lm_head", "blocks.0"
};
/// Linear and Conv1D become Float8Linear and Float8Conv1D, but for those in `skip` and those whose sizes are not both multiples of 16, which a GPU's
/// tensor cores do not take; returns how many. Only modules of exactly these types are touched, not structs derived from them.
int64_t float8_training_(nn::Module& model, const Float8Options& options = {});

}  // namespace tapir::inline v0::quant
