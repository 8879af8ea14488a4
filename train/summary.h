#pragma once
#include <string>
#include <vector>

#include "../nn/module.h"

namespace tapir::inline v0::train {

struct LayerSummary {
  std::string name, type;  // "" and the type for the model itself
  int depth = 0;
  bool has_children = false;
  Shape output;                                         // of the last call; what the tensor counts is in output_bytes
  int64_t calls = 0, parameters = 0, output_bytes = 0;  // with all below
  double flops = 0;                                     // of all calls, with all below
};
/// What a forward pass showed. FLOPs are the multiplications and additions of matrix products, convolutions, attention and recurrent
/// layers, counted where the kernels are called (Note [Work] in core/work.h): whatever a forward is made of, they are its own.
struct Summary {
  std::vector<LayerSummary> layers;                        // the model first, then in the order of named_modules()
  int64_t parameters = 0, trainable = 0, state_bytes = 0;  // state: parameters and buffers
  int64_t output_bytes = 0;                                // of all layers without children: what training keeps, about
  double flops = 0;
  /// A table of layers with a line of totals below.
  std::string str() const;
};

struct SummaryOptions {
  DType dtype = kFloat32;  // of the input; kInt64 for tokens
};

namespace detail {
/// Watches a model from its making to finish(): in evaluation mode, without a tape.
class SummaryRun {
 public:
  explicit SummaryRun(nn::Module& model);
  ~SummaryRun();
  SummaryRun(const SummaryRun&) = delete;
  Summary finish();

 private:
  struct State;
  State* state_;
};
}  // namespace detail

/// Calls the model on zeros of that shape, on the device of its parameters: std::cout << train::summary(net, {1, 3, 32, 32}).str();
Summary summary(nn::Module& model, const Shape& input, const SummaryOptions& options = {});
/// Calls it on these inputs.
template <class M, class... A> Summary summary(M& model, const Tensor& input, const A&... more) {
  detail::SummaryRun run(model);
  model(input, more...);
  return run.finish();
}

}  // namespace tapir::inline v0::train
