#include "gradcheck.h"

#include <cmath>
#include <span>

#include "../autograd/engine.h"
#include "../core/generator.h"
#include "../core/modes.h"

namespace tapir::inline v0::detail {

// Note [Checking by directions]
// For an input x, a direction u of x and weights v of the outputs, u' J' v is one number. The tape gives it as <u,
// grad of <v, f>>, differences as <v, f(x + eps u) - f(x - eps u)> / 2 eps. A wrong element of J shows unless u and v
// happen to hide it. Where the numbers differ, or in full mode, u runs through the unit vectors and v through single
// outputs' elements.
namespace {

using List = std::vector<double>;

List values_of(const Tensor& x) { return x.to_vector<double>(); }

Tensor tensor_of(const List& values, const Tensor& like) {
  const Tensor y =
      tensor_from_host(values.data(), kFloat64, like.shape(), {.dtype = like.dtype(), .device = like.device()});
  if (!is_dense(like.shape(), like.strides()) || like.is_contiguous()) return y;
  Tensor placed = empty_like(like);  // an input that is permuted stays so
  NoGrad guard;
  placed.copy_(y);
  return placed;
}

/// n numbers in (0.25, 1) or (-1, -0.25): none is too small to be seen.
List direction(uint64_t seed, uint64_t stream, int64_t n) {
  List u(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const auto b = Philox::block(seed + stream, uint64_t(i));
    u[size_t(i)] = (0.25 + 0.75 * Philox::uniform(b.word[0], b.word[1])) * (b.word[2] & 1 ? 1 : -1);
  }
  return u;
}

double dot(const List& a, const List& b) {
  double s = 0;
  for (size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}

class Check {
 public:
  Check(const char* name, const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& o)
      : name_(name), f_(f), o_(o) {
    check(o.eps > 0 && std::isfinite(o.eps), "[{}] expected a finite eps above 0, got {}", name, o.eps);
    check(o.atol >= 0 && o.rtol >= 0, "[{}] expected atol and rtol of at least 0, got {} and {}", name, o.atol, o.rtol);
    for (const Tensor& x : inputs) {
      const bool wanted = x.defined() && x.requires_grad();
      check(!wanted || x.dtype() == kFloat64,
            "[{}] expected float64 inputs, got {}: differences are too coarse in other types", name, x);
      inputs_.push_back(wanted ? leaf(x) : x);
      if (wanted) wanted_.push_back(inputs_.size() - 1);
    }
    check(!wanted_.empty(), "[{}] expected at least one input that requires a gradient", name);
  }

  void run() {
    outputs_ = forward(inputs_);
    check(!outputs_.empty(), "[{}] expected a function that gives a tensor of floating point dtype, got none", name_);
    if (o_.full) return every_element();
    std::vector<List> v;
    for (size_t k = 0; k < outputs_.size(); ++k) v.push_back(direction(o_.seed, 1000 + k, outputs_[k].numel()));
    const std::vector<List> gradients = analytic(v);
    for (size_t w = 0; w < wanted_.size(); ++w) {
      const List u = direction(o_.seed, w, inputs_[wanted_[w]].numel());
      const double numeric = difference(wanted_[w], u, v), exact = dot(u, gradients[w]);
      if (agree(numeric, exact)) continue;
      every_element();  // names the element
      fail(ErrorKind::Value, "[{}] input {}: the derivative along a random direction is {} (analytic) but {} (numeric)",
           name_, int64_t(wanted_[w]), exact, numeric);
    }
  }

 private:
  static Tensor leaf(const Tensor& x) {
    Tensor y = tensor_of(values_of(x), x);
    return y.requires_grad_();
  }
  std::vector<Tensor> forward(const std::vector<Tensor>& x) const {
    std::vector<Tensor> floats;
    for (Tensor& y : f_.call(x))
      if (y.defined() && is_floating(y.dtype())) floats.push_back(std::move(y));
    return floats;
  }
  bool agree(double numeric, double exact) const {
    return std::abs(numeric - exact) <= o_.atol + o_.rtol * std::abs(numeric);
  }

  /// Gradients of <v, outputs> with respect to each wanted input, by the tape.
  std::vector<List> analytic(const std::vector<List>& v) const {
    std::vector<Tensor> ys, gs, xs;
    for (size_t k = 0; k < outputs_.size(); ++k)
      if (outputs_[k].requires_grad()) ys.push_back(outputs_[k]), gs.push_back(tensor_of(v[k], outputs_[k]));
    for (size_t i : wanted_) xs.push_back(inputs_[i]);
    std::vector<Tensor> found(xs.size());
    if (!ys.empty()) found = grad(ys, xs, gs, {.retain_graph = true, .allow_unused = true});
    std::vector<List> out;
    for (size_t w = 0; w < xs.size(); ++w) {
      check(!found[w].defined() || (found[w].shape() == xs[w].shape() && found[w].dtype() == xs[w].dtype()),
            "[{}] expected a gradient like input {}, {}, got {}", name_, int64_t(wanted_[w]), xs[w], found[w]);
      out.push_back(found[w].defined() ? values_of(found[w]) : List(size_t(xs[w].numel())));
    }
    return out;
  }
  /// The derivative of <v, outputs> along u, by central differences.
  double difference(size_t input, const List& u, const std::vector<List>& v) const {
    const double ahead = weighted(input, u, o_.eps, v), behind = weighted(input, u, -o_.eps, v);
    return (ahead - behind) / (2 * o_.eps);
  }
  double weighted(size_t input, const List& u, double step, const std::vector<List>& v) const {
    List values = values_of(inputs_[input]);
    for (size_t i = 0; i < u.size(); ++i) values[i] += step * u[i];
    std::vector<Tensor> x = inputs_;
    x[input] = tensor_of(values, inputs_[input]).requires_grad_();  // f may itself take gradients
    const std::vector<Tensor> y = forward(x);
    double s = 0;
    for (size_t k = 0; k < y.size(); ++k) s += dot(v[k], values_of(y[k]));
    return s;
  }

  void every_element() const {
    std::vector<List> v;
    for (const Tensor& y : outputs_) v.emplace_back(size_t(y.numel()));
    for (size_t k = 0; k < v.size(); ++k)
      for (size_t j = 0; j < v[k].size(); ++j) {
        v[k][j] = 1;
        one_row(k, j, v, analytic(v));
        v[k][j] = 0;
      }
  }
  void one_row(size_t output, size_t element, const std::vector<List>& v, const std::vector<List>& gradients) const {
    for (size_t w = 0; w < wanted_.size(); ++w) {
      List u(gradients[w].size());
      for (size_t i = 0; i < u.size(); ++i) {
        u[i] = 1;
        const double numeric = difference(wanted_[w], u, v);
        if (!agree(numeric, gradients[w][i])) {
          fail(ErrorKind::Value,
               "[{}] input {}, element {}: the derivative of output {}, element {} is {} (analytic) but {} (numeric)",
               name_, int64_t(wanted_[w]), int64_t(i), int64_t(output), int64_t(element), gradients[w][i], numeric);
        }
        u[i] = 0;
      }
    }
  }

  const char* name_;
  const TensorFunction& f_;
  const GradcheckOptions& o_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<size_t> wanted_;  // positions of the inputs that are checked
};

/// (inputs, incoming gradients) -> gradients of f.
struct GradientOf final : TensorFunction {
  const TensorFunction& f;
  size_t inputs;
  std::vector<bool> wanted;
  GradientOf(const TensorFunction& f, const std::vector<Tensor>& x) : f(f), inputs(x.size()) {
    for (const Tensor& t : x) wanted.push_back(t.defined() && t.requires_grad());
  }
  std::vector<Tensor> call(const std::vector<Tensor>& all) const override {
    const std::vector<Tensor> x(all.begin(), all.begin() + std::ptrdiff_t(inputs)),
        v(all.begin() + std::ptrdiff_t(inputs), all.end());
    std::vector<Tensor> ys, xs;
    for (Tensor& y : f.call(x))
      if (y.defined() && y.requires_grad()) ys.push_back(std::move(y));
    for (size_t i = 0; i < x.size(); ++i)
      if (wanted[i]) xs.push_back(x[i]);
    return grad(ys, xs, v, {.create_graph = true, .allow_unused = true});
  }
};

}  // namespace

bool gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  EnableGrad guard;
  Check("gradcheck", f, inputs, options).run();
  return true;
}

bool gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  EnableGrad guard;
  std::vector<Tensor> all = inputs;
  uint64_t stream = 2000;
  for (const Tensor& y : f.call(inputs))
    if (y.defined() && y.requires_grad())
      all.push_back(tensor_of(direction(options.seed, stream++, y.numel()), y).requires_grad_());
  Check("gradgradcheck", GradientOf(f, inputs), all, options).run();
  return true;
}

}  // namespace tapir::inline v0::detail
