#include "transforms.h"

#include "../autograd/engine.h"
#include "../core/modes.h"
#include "../ops/ops.h"

namespace tapir::inline v0::detail {

using Tensors = std::vector<Tensor>;

/// Copies that want gradients; with a graph to come, views that lead on to the caller's.
static Tensors leaves(const char* op, const Tensors& x, bool create_graph) {
  check(!x.empty(), "[{}] expected at least one input, got none", op);
  Tensors out;
  for (const Tensor& t : x) {
    check(t.defined(), "[{}] expected inputs, got an undefined tensor", op);
    check(is_floating(t.dtype()), "[{}] expected inputs of floating point dtype, got {}", op, t);
    out.push_back(create_graph && t.requires_grad() ? view(t, t.shape()) : t.detach().requires_grad_());
  }
  return out;
}

/// f(x), of which each is a tensor.
static Tensors results(const char* op, const TensorFunction& f, const Tensors& x) {
  Tensors y = f.call(x);
  for (const Tensor& t : y) check(t.defined(), "[{}] expected a function of tensors, got an undefined one", op);
  return y;
}

/// grad() where nothing may depend on anything: zeros instead of undefined.
static Tensors gradients(const Tensors& y, const Tensors& x, const Tensors& v, bool create_graph) {
  Tensors ys, vs, g(x.size());
  for (size_t i = 0; i < y.size(); ++i)
    if (y[i].requires_grad()) ys.push_back(y[i]), vs.push_back(i < v.size() ? v[i] : Tensor());
  if (!ys.empty()) g = grad(ys, x, vs, {.retain_graph = true, .create_graph = create_graph, .allow_unused = true});
  for (size_t i = 0; i < g.size(); ++i)
    if (!g[i].defined()) g[i] = zeros_like(x[i]);
  return g;
}

static Tensors finished(Tensors y, bool create_graph) {
  if (!create_graph)
    for (Tensor& t : y) t = t.detach();
  return y;
}

Results vjp(const TensorFunction& f, const Tensors& x, const Tensors& v, bool create_graph) {
  EnableGrad guard;
  const Tensors inputs = leaves("vjp", x, create_graph), y = results("vjp", f, inputs);
  check(v.size() == y.size(), "[vjp] expected {} vectors, one for each output, got {}", int64_t(y.size()),
        int64_t(v.size()));
  for (size_t i = 0; i < v.size(); ++i)
    check(!v[i].defined() || (v[i].shape() == y[i].shape() && v[i].dtype() == y[i].dtype()),
          "[vjp] expected a vector like output {}, {}, got {}", int64_t(i), y[i], v[i]);
  const Tensors g = gradients(y, inputs, v, create_graph);
  return {finished(y, create_graph), finished(g, create_graph)};
}

static void check_like(const char* op, const Tensors& v, const Tensors& x) {
  check(v.size() == x.size(), "[{}] expected {} vectors, one for each input, got {}", op, int64_t(x.size()),
        int64_t(v.size()));
  for (size_t i = 0; i < v.size(); ++i)
    check(v[i].defined() && v[i].shape() == x[i].shape() && v[i].dtype() == x[i].dtype(),
          "[{}] expected a vector like input {}, {}, got {}", op, int64_t(i), x[i], v[i]);
}

// v' J is linear in v, so its gradient with respect to v along u is J u (the "double backward trick").
Results jvp(const TensorFunction& f, const Tensors& x, const Tensors& v, bool create_graph) {
  EnableGrad guard;
  const Tensors inputs = leaves("jvp", x, create_graph);
  check_like("jvp", v, x);
  const Tensors y = results("jvp", f, inputs);
  Tensors dummies;
  for (const Tensor& t : y) dummies.push_back(zeros_like(t).requires_grad_());
  const Tensors g = gradients(y, inputs, dummies, true);
  return {finished(y, create_graph), finished(gradients(g, dummies, v, create_graph), create_graph)};
}

/// Rows of dy/dx for every element of y.
static Tensors rows(const char* op, const Tensor& y, const Tensors& x, bool create_graph) {
  check(is_floating(y.dtype()), "[{}] expected an output of floating point dtype, got {}", op, y);
  std::vector<Tensors> columns(x.size());
  const Tensor flat = reshape(y, {y.numel()});
  for (int64_t i = 0; i < y.numel(); ++i) {
    const Tensors g = gradients({select(flat, 0, i)}, x, {}, create_graph);
    for (size_t k = 0; k < x.size(); ++k) columns[k].push_back(g[k]);
  }
  Tensors out;
  for (size_t k = 0; k < x.size(); ++k) {
    Shape shape = y.shape();
    for (const int64_t n : x[k].shape()) shape.push_back(n);
    const TensorOptions options = {.dtype = y.dtype(), .device = y.device()};
    out.push_back(columns[k].empty() ? zeros(shape, options) : reshape(stack(columns[k], 0), shape));
  }
  return out;
}

Tensors jacobian(const TensorFunction& f, const Tensors& x, bool create_graph) {
  EnableGrad guard;
  const Tensors inputs = leaves("jacobian", x, create_graph), y = results("jacobian", f, inputs);
  check(y.size() == 1, "[jacobian] expected a function with one output, got {}", int64_t(y.size()));
  return finished(rows("jacobian", y[0], inputs, create_graph), create_graph);
}

/// f(x), which must be one element.
static Tensors element(const char* op, const TensorFunction& f, const Tensors& x) {
  Tensors y = results(op, f, x);
  check(y.size() == 1 && y[0].numel() == 1, "[{}] expected a function with one output of one element, got {}", op,
        y.empty() ? Tensor() : y[0]);
  return y;
}

Tensors hessian(const TensorFunction& f, const Tensors& x, bool create_graph) {
  EnableGrad guard;
  const Tensors inputs = leaves("hessian", x, create_graph), y = element("hessian", f, inputs);
  Tensors out;
  for (const Tensor& g : gradients(y, inputs, {}, true))
    for (Tensor& block : rows("hessian", g, inputs, create_graph)) out.push_back(std::move(block));
  return finished(std::move(out), create_graph);
}

/// The vectors of a product with the Hessian: 1 where none is given and x is one element.
static Tensors directions(const char* op, const Tensors& v, const Tensors& x) {
  if (x.size() == 1 && x[0].numel() == 1 && v.size() == 1 && !v[0].defined()) return {ones_like(x[0].detach())};
  return check_like(op, v, x), v;
}

Results vhp(const TensorFunction& f, const Tensors& x, const Tensors& v, bool create_graph) {
  EnableGrad guard;
  const Tensors inputs = leaves("vhp", x, create_graph), along = directions("vhp", v, x), y = element("vhp", f, inputs);
  const Tensors slopes = gradients(y, inputs, {}, true);
  return {finished(y, create_graph), finished(gradients(slopes, inputs, along, create_graph), create_graph)};
}

// As jvp, of the gradient.
Results hvp(const TensorFunction& f, const Tensors& x, const Tensors& v, bool create_graph) {
  EnableGrad guard;
  const Tensors inputs = leaves("hvp", x, create_graph), along = directions("hvp", v, x), y = element("hvp", f, inputs);
  Tensors dummies;
  for (const Tensor& t : inputs) dummies.push_back(zeros_like(t.detach()).requires_grad_());
  const Tensors g = gradients(gradients(y, inputs, {}, true), inputs, dummies, true);
  return {finished(y, create_graph), finished(gradients(g, dummies, along, create_graph), create_graph)};
}

}  // namespace tapir::inline v0::detail
