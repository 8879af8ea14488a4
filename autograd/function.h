#pragma once
// Note [Custom functions]
// A struct with forward and backward, whose other fields are its options:
//     struct Scale {
//       double factor;
//       Tensor forward(FunctionContext& ctx, const Tensor& x) { ctx.save(x); return x * x * factor; }
//       Grads backward(FunctionContext& ctx, const Tensor& g) { return {g * ctx.saved(0) * (2 * factor)}; }
//     };
//     Tensor y = apply_function("scale", Scale{0.5}, x);
// or two functions, of which the second gets the gradient, the inputs and the output:
//     auto square = custom_function("square", [](const Tensor& x) { return x * x; },
//                                   [](const Tensor& g, const Tensor& x, const Tensor& y) { return g * 2 * x; });
// forward runs under NoGrad. backward is made of operations and is recorded itself under create_graph, so second derivatives
// need no more. Tensors reach backward by ctx.save() only; a Tensor kept in a field of the struct would have lost its history.
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/modes.h"
#include "../core/tensor.h"
#include "node.h"
#include "record.h"

namespace tapir::inline v0 {

/// What a custom function hands from forward to backward.
class FunctionContext {
 public:
  /// Inputs, outputs or values in between, in the order in which saved(i) gives them back.
  template <class... T> void save(const T&... tensors) { (to_save_.push_back(tensors), ...); }
  /// In backward: a saved tensor. ValueError when it was written to since, or when there are fewer.
  Tensor saved(int64_t i) const;
  /// An output that gets no gradient; integer outputs never get one.
  void mark_non_differentiable(const Tensor& output) { constants_.push_back(output); }
  /// Is the gradient of input i wanted?
  bool needs_input_grad(int64_t i) const;

 private:
  friend class FunctionNode;
  std::vector<Tensor> to_save_, constants_;
  std::vector<SavedTensor> saved_;
  Node* node_ = nullptr;
  Needs needs_;
};

/// The node of a custom function.
class FunctionNode : public Node {
 public:
  Grads apply(const Grads& g, Needs needs) final;
  void free_saved() final;

 protected:
  virtual Grads backward(const Grads& g) = 0;
  static uint64_t versions_of(const std::vector<Tensor>& inputs);
  /// Takes what forward saved, ties the outputs, and gives them; an output that is an input becomes a view of it.
  static void finish(FunctionNode* node, std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs);
  FunctionContext context_;
};

namespace detail {

template <class F> struct CustomNode final : FunctionNode {
  F f;
  explicit CustomNode(F&& f) : f(std::move(f)) {}
  Grads backward(const Grads& g) override {
    if constexpr (std::is_invocable_v<decltype(&F::backward), F&, FunctionContext&, const Grads&>)
      return list(f.backward(context_, g));
    else return list(f.backward(context_, g[0]));
  }
  static Grads list(Grads g) { return g; }
  static Grads list(Tensor g) { return Grads(std::move(g)); }

  template <class... X> static auto run(const char* name, F&& f, const X&... x) {
    const auto forward = [&](F& function, FunctionContext& context) {
      NoGrad guard;
      const profiler::Range range(name);
      return function.forward(context, x...);
    };
    if (!wants_grad({x...})) {
      FunctionContext context;
      return forward(f, context);
    }
    check(name != nullptr, "[apply_function] expected a name, got a null pointer");
    const std::vector<Tensor> inputs{x...};
    const uint64_t versions = versions_of(inputs);
    auto* node = NodeBuilder::make<CustomNode>(name, std::span(inputs), std::move(f));
    const Hold hold{node};  // until the outputs hold it
    auto y = forward(node->f, node->context_);
    check(versions == versions_of(inputs),
          "[{}] expected a forward that leaves its inputs as they are; it wrote to one", name);
    std::vector<Tensor> outputs;
    if constexpr (std::is_same_v<decltype(y), Tensor>) outputs = {y};
    else if constexpr (requires { std::tuple_size<decltype(y)>::value; })
      std::apply([&](const auto&... t) { outputs = {t...}; }, y);
    else outputs.assign(y.begin(), y.end());
    finish(node, outputs, inputs);
    if constexpr (std::is_same_v<decltype(y), Tensor>) y = outputs[0];
    else if constexpr (requires { std::tuple_size<decltype(y)>::value; })
      std::apply([&, i = size_t(0)](auto&... t) mutable { ((t = outputs[i++]), ...); }, y);
    else
      for (size_t i = 0; i < outputs.size(); ++i) y[i] = outputs[i];
    return y;
  }
  struct Hold {
    Node* node;
    ~Hold() { node->release(); }
  };
};

}  // namespace detail

/// f.forward(ctx, inputs...), recorded with f.backward as its gradient. forward gives a Tensor, or a tuple, pair, array or
/// vector of them; backward takes the output's gradient (`const Grads&` where there are several; undefined: zero) and gives
/// that of each input. ValueError when forward writes to an input.
template <class F, class... X> auto apply_function(const char* name, F f, const X&... inputs) {
  return detail::CustomNode<F>::run(name, std::move(f), static_cast<const Tensor&>(inputs)...);
}

namespace detail {
template <class Forward, class Backward, size_t N> struct FunctionPair {
  Forward forward_;
  Backward backward_;
  template <class... X> Tensor forward(FunctionContext& ctx, const X&... x) {
    Tensor y = forward_(x...);
    ctx.save(x..., y);
    return y;
  }
  Grads backward(FunctionContext& ctx, const Tensor& g) {
    return [&]<size_t... At>(std::index_sequence<At...>) {
      return CustomNode<FunctionPair>::list(backward_(g, ctx.saved(int64_t(At))...));
    }
    (std::make_index_sequence<N + 1>());
  }
};
}  // namespace detail

/// A function of tensors from forward(x...) -> Tensor and backward(g, x..., y) -> Tensor, or Grads where there are several x.
template <class Forward, class Backward> auto custom_function(const char* name, Forward forward, Backward backward) {
  return [=](const auto&... x) -> Tensor requires(std::is_invocable_v<const Forward&, decltype(x)...>) {
    return apply_function(name, detail::FunctionPair<Forward, Backward, sizeof...(x)>{forward, backward}, x...);
  };
}

}  // namespace tapir::inline v0
