// First and second derivatives against finite differences, in float64; of the op, of its twin, and of the twin on a view.
#include <tapir/functional/gradcheck.h>

#include "modes.h"
#include "place.h"

namespace op_cases {

namespace {
/// The inputs of one check: leaves (the whole storage where the layout has gaps or repeats), and the op's view of each.
struct Inputs {
  List leaves;
  std::vector<std::optional<std::pair<Shape, Geometry>>> views;
  List seen(const List& leaves) const {
    List x;
    for (size_t k = 0; k < leaves.size(); ++k)
      x.push_back(views[k] ? as_strided(leaves[k], views[k]->first, views[k]->second.strides, views[k]->second.offset) : leaves[k]);
    return x;
  }
};
}  // namespace

static Inputs inputs_of(const Case& c, const std::vector<Shape>& shapes, const Variant& v, Device device) {
  Inputs out;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const Values& values = c.values_of(k);
    const DType dtype = dtype_of_input(values, kFloat64);
    const bool dense = v.layouts[k] <= Layout::Rotated, wanted = is_floating(dtype) && !values.constant;
    Placed p = place(fill(values, shapes[k], kFloat64, k), dtype, v.layouts[k], device);
    if (wanted && !dense) {
      NoGrad guard;
      p.base.masked_fill_(isnan(p.base), 0.5);  // the gaps are part of the leaf
      out.leaves.push_back(p.base);
      out.views.push_back({{shapes[k], p.geometry}});
    } else {
      out.leaves.push_back(p.view);
      out.views.push_back({});
    }
    if (wanted) out.leaves.back() = out.leaves.back().detach().requires_grad_();
  }
  return out;
}

/// Gradients exist and fit; their values are not looked at.
static void run_backward(const List& leaves, const std::function<List(const List&)>& f) {
  List x;
  for (const Tensor& leaf : leaves) x.push_back(leaf.requires_grad() ? leaf.detach().requires_grad_() : leaf);
  for (const Tensor& y : f(x))
    if (y.requires_grad()) y.backward(ones_like(y), true);
  for (const Tensor& leaf : x)
    if (leaf.grad().defined()) check(leaf.grad().shape() == leaf.shape(), "expected a gradient like {}, got {}", leaf, leaf.grad());
}
static void check_function(const Case& c, const List& leaves, const std::function<List(const List&)>& f) {
  for (const Tensor& leaf : leaves)
    if (leaf.requires_grad() && leaf.numel() == 0) return run_backward(leaves, f);  // there is nothing to vary
  for (const Tensor& y : f(leaves))
    if (is_floating(y.dtype()) && isnan(y).any().item<bool>()) return run_backward(leaves, f);
  gradcheck(f, leaves);
  if (c.second_order) gradgradcheck(f, leaves);
}

static List call(const Case& c, const List& x) {
  manual_seed(7);
  return c.call(x);
}
static Tensor call_twin(const Case& c, Tensor self, List x) {
  x[0] = self;
  manual_seed(7);
  return *c.twin_call(self, x);
}

/// Operand k is self too: the twin's result and gradients are those of the op with one tensor in both places, or backward says that it cannot.
static std::string check_aliased(const Case& c, const List& inputs, size_t k, bool view) {
  Tensor written;
  const auto run = [&](bool in_place) {  // the result, and the gradients of all leaves
    List leaves, out;
    for (const Tensor& x : inputs) leaves.push_back(x.requires_grad() ? x.detach().requires_grad_() : x);
    List x = leaves;
    const Tensor self = written = leaves[0].mul(1);
    x[0] = self, x[k] = view ? self.view(self.shape()) : self;
    const Tensor y = in_place ? call_twin(c, self, x) : call(c, x)[0];
    const Tensor weights = linspace(1, 2, y.numel(), {.dtype = y.dtype(), .device = y.device()}).view(y.shape());
    (y * weights).sum().backward();
    out.push_back(y.detach());
    for (const Tensor& leaf : leaves)
      if (leaf.grad().defined()) out.push_back(leaf.grad());
    return out;
  };
  const List expected = run(false);
  List got;
  try {
    got = run(true);
  } catch (const std::exception& e) {
    if (std::string_view(e.what()).find("modified by an inplace operation") == std::string_view::npos) throw;
    written.detach_();  // a graph that backward did not free holds what it saved
    return "";
  }
  for (size_t i = 0; i < expected.size(); ++i)
    if (got.size() != expected.size() || !allclose(got[i], expected[i], {.equal_nan = true}))
      return (i ? "gradient " + std::to_string(i) : "the result") + " is another one than out of place";
  return "";
}

void check_gradients(const Case& c, const Settings& s, Report& report) {
  if (!contains(c.dtypes, kFloat64)) return;
  for (size_t k = 0; k < c.shapes.size(); ++k) {
    const std::vector<Shape>& shapes = c.shapes[k];
    int64_t largest = 0;
    for (const Shape& shape : shapes) largest = std::max(largest, numel_of(shape));
    if (largest > 300) continue;
    bool first = true;
    for (const Variant& v : variants(shapes, c.expands)) {
      if (!std::exchange(first, false) && (k > 0 || !c.differentiable)) break;  // layouts: with the first shapes
      const Inputs in = inputs_of(c, shapes, v, s.device);
      bool any_leaf = false;
      for (const Tensor& leaf : in.leaves) any_leaf |= leaf.requires_grad();
      if (!any_leaf) return;
      const auto check_it = [&](const char* form, const std::function<List(const List&)>& f) {
        report.add(c, form + text_of(shapes) + " " + v.name, outcome([&]() -> std::string {
                     if (c.differentiable) return check_function(c, in.leaves, f), "";
                     for (const Tensor& y : f(in.leaves))
                       if (y.requires_grad() && !is_floating(y.dtype())) return "integers require a gradient";
                     return "";
                   }));
      };
      check_it("", [&](const List& leaves) { return call(c, in.seen(leaves)); });
      if (!c.twin_call || !c.differentiable || v.layouts[0] > Layout::Step) continue;
      const List y = call(c, in.seen(in.leaves));
      if (!c.reshapes && !(y[0].shape() == shapes[0])) continue;
      check_it((c.twin_name + " ").c_str(), [&](const List& leaves) {
        List x = in.seen(leaves);
        return List{call_twin(c, x[0].mul(1), x)};
      });
      for (size_t i = 1; i < shapes.size() && v.layouts[0] == Layout::Contiguous; ++i)
        if (shapes[i] == shapes[0] && in.leaves[i].dtype() == in.leaves[0].dtype() && numel_of(shapes[0]) > 0 && !c.reshapes)
          for (const bool view : {false, true})
            report.add(c, c.twin_name + (view ? " with a view of self" : " with self") + " as operand " + std::to_string(i) + " " + v.name,
                       outcome([&] { return check_aliased(c, in.seen(in.leaves), i, view); }));
      if (in.views[0] && !c.reshapes)  // into a part of a larger tensor: the rest keeps its gradient
        check_it((c.twin_name + " on a view ").c_str(), [&](const List& leaves) {
          const auto& [shape, g] = *in.views[0];
          const Tensor base = leaves[0].mul(1);
          call_twin(c, as_strided(base, shape, g.strides, g.offset), in.seen(leaves));
          return List{base};
        });
    }
  }
}

}  // namespace op_cases
