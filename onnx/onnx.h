#pragma once
/// Export of models to other runtimes: onnx::save(net, x, "net.onnx"). See docs/onnx.md.
#include <string>
#include <tuple>
#include <vector>

#include "../data/fields.h"
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

/// Appends the defined tensors of a result, which is a tensor, or a list, a tuple or an aggregate of results.
template <class R> void collect(std::vector<Tensor>& out, R&& result) {
  using Plain = std::remove_cvref_t<R>;
  if constexpr (std::is_convertible_v<R&, const Tensor&>) {
    if (const Tensor& t = result; t.defined()) out.push_back(t);
  } else if constexpr (requires { result.begin(); }) {
    for (auto& r : result) collect(out, r);
  } else if constexpr (requires { result.tensors(); }) collect(out, result.tensors());
  else if constexpr (requires { std::tuple_size<Plain>::value; })
    std::apply([&](auto&... r) { (collect(out, r), ...); }, result);
  else data::visit_fields(result, [&](Tensor& t) { collect(out, t); });
}
template <class M, class... X> std::vector<Tensor> call(M& model, const X&... x) {
  std::vector<Tensor> out;
  if constexpr (requires { model.forward(x...); }) collect(out, model(x...));
  else fail(ErrorKind::Value, "[onnx::save] expected a model whose forward() takes {} tensors", int64_t(sizeof...(X)));
  return out;
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
