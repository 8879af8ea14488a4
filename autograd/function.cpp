#include "function.h"

#include <algorithm>

#include "meta.h"

namespace tapir::inline v0 {

Tensor FunctionContext::saved(int64_t i) const {
  check(i >= 0 && i < int64_t(saved_.size()), "[{}] expected a saved tensor below {}, got {}",
        node_ ? node_->name : "saved", int64_t(saved_.size()), i);
  return saved_[size_t(i)].unpack(node_);
}

bool FunctionContext::needs_input_grad(int64_t i) const {
  const int64_t inputs = node_ ? int64_t(node_->num_edges) : 64;
  check(i >= 0 && i < inputs, "[{}] expected an input below {}, got {}", node_ ? node_->name : "needs_input_grad",
        inputs, i);
  return needs_[i];
}

Grads FunctionNode::apply(const Grads& g, Needs needs) {
  context_.needs_ = needs;
  Grads inputs = backward(g);
  check(inputs.size() == int64_t(num_edges), "[{}] backward returned {} gradients, expected {}, one for each input",
        name, inputs.size(), int64_t(num_edges));
  for (uint32_t i = 0; i < num_edges; ++i) {
    if (!edges[i] || !inputs[i].defined()) continue;
    const Edge& e = edges[i];
    const DType dtype = e.node() ? e.node()->output(e.index()).dtype : e.leaf().dtype();
    const Shape& shape = e.node() ? e.node()->output(e.index()).shape : e.leaf().shape();
    check(inputs[i].dtype() == dtype && inputs[i].shape() == shape,
          "[{}] backward returned an invalid gradient at index {} - got {} but expected {} {}", name, int64_t(i),
          inputs[i], dtype, shape);
  }
  return inputs;
}

void FunctionNode::free_saved() {
  if (!context_.saved_.empty()) freed = true;
  context_.saved_.clear();
}

uint64_t FunctionNode::versions_of(const std::vector<Tensor>& inputs) {
  uint64_t sum = 0;  // versions only rise
  for (const Tensor& x : inputs) sum += x.defined() ? x.version() : 0;
  return sum;
}

void FunctionNode::finish(FunctionNode* node, std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs) {
  FunctionContext& ctx = node->context_;
  std::vector<Tensor> saved = std::move(ctx.to_save_);
  for (Tensor& y : outputs) {
    const bool is_input = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& x) { return x.is_same(y); });
    if (is_input || (y.defined() && y.requires_grad())) {  // its own history stays untouched
      const Tensor fresh = y.detach();
      for (Tensor& s : saved)
        if (s.is_same(y) && !is_input) s = fresh;
      for (Tensor& c : ctx.constants_)
        if (c.is_same(y)) c = fresh;
      y = fresh;
    }
  }
  std::vector<Tensor> tied;
  for (const Tensor& y : outputs) {
    const bool constant =
        std::any_of(ctx.constants_.begin(), ctx.constants_.end(), [&](const Tensor& c) { return c.is_same(y); });
    tied.push_back(constant ? Tensor() : y);
  }
  ctx.constants_.clear();
  ctx.node_ = node;
  for (const Tensor& s : saved) ctx.saved_.emplace_back(s, tied);
  node->retain();  // for tie_outputs, which adopts one
  tie_outputs(node, tied);
}

}  // namespace tapir::inline v0
