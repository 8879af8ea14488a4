#pragma once
/// Export of models to other runtimes: onnx::save(net, x, "net.onnx"). See docs/onnx.md.
#include <string>
#include <vector>

#include "../nn/module.h"

namespace tapir::inline v0::onnx {

struct Options {
  int64_t opset = 17;                          // version of ONNX's operator set, 17 to 20
  std::vector<std::string> input_names = {};   // default: input, or input_0, input_1, ...
  std::vector<std::string> output_names = {};  // default: output, or output_0, output_1, ...
  bool dynamic_batch = false;                  // the first dimension of every input may have any size
};

namespace detail {

using Forward = std::vector<Tensor> (*)(void* model, const std::vector<Tensor>& inputs);
void save(nn::Module& model, void* self, Forward forward, const std::vector<Tensor>& inputs, const std::string& path,
          const Options& options);

/// The tensors of the result; undefined ones do not count.
template <class M, class... X> std::vector<Tensor> call(M& model, const X&... x) {
  if constexpr (requires { model.forward(x...); }) {
    auto&& result = model(x...);
    std::vector<Tensor> out = nn::detail::tensors_of(result);
    std::erase_if(out, [](const Tensor& t) { return !t.defined(); });
    return out;
  } else
    fail(ErrorKind::Value, "[onnx::save] expected a model whose forward() takes {} tensors", int64_t(sizeof...(X)));
}
template <class M> std::vector<Tensor> call_with(M& model, const std::vector<Tensor>& x) {
  if (x.size() == 1) return call(model, x[0]);
  if (x.size() == 2) return call(model, x[0], x[1]);
  check(x.size() == 3, "[onnx::save] expected 1 to 3 inputs, got {}", int64_t(x.size()));
  return call(model, x[0], x[1], x[2]);
}

}  // namespace detail

/// Writes what `model(inputs...)` computes in evaluation mode to an ONNX file. Initializers have the names of parameters and buffers.
/// ValueError where an operation has no ONNX form or the host reads a value: the text names the operation and where it was called.
template <class M>
void save(M& model, const std::vector<Tensor>& inputs, const std::string& path, const Options& o = {}) {
  const auto forward = [](void* self, const std::vector<Tensor>& x) {
    return detail::call_with(*static_cast<M*>(self), x);
  };
  detail::save(model, &model, forward, inputs, path, o);
}
template <class M> void save(M& model, const Tensor& input, const std::string& path, const Options& o = {}) {
  save(model, std::vector<Tensor>{input}, path, o);
}

}  // namespace tapir::inline v0::onnx
