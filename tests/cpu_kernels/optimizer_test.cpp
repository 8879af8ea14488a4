#include <tapir/core/formulas/optimizer.h>

#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

/// One element's way through torch.optim's formulas, in double.
struct Naive {
  double p, m = 0, v = 0, x = 0;
  void step(const OptimizerParams& o, double g, double lr, double t, double inv_scale) {
    g *= o.maximize ? -inv_scale : inv_scale;
    if (o.op == OptimizerOp::Sgd) {
      g += o.weight_decay * p;
      if (o.beta1 != 0) {
        m = t == 1 ? g : o.beta1 * m + (1 - o.beta2) * g;
        g = o.nesterov ? g + o.beta1 * m : m;
      }
      p -= lr * g;
      return;
    }
    if (o.op == OptimizerOp::AdamW) p *= 1 - lr * o.weight_decay;
    else g += o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    x = std::max(x, v);
    const double denominator = std::sqrt(o.amsgrad ? x : v) / std::sqrt(1 - std::pow(o.beta2, t)) + o.eps;
    p -= lr / (1 - std::pow(o.beta1, t)) * m / denominator;
  }
};

std::vector<OptimizerParams> all_params() {
  std::vector<OptimizerParams> all;
  // 0.1 in float32 is 1.5e-9 more: where it cancels a gradient in exact numbers, that rest over eps is a step of its own.
  for (double decay : {0.0, 0.125})
    for (bool maximize : {false, true}) {
      for (OptimizerOp op : {OptimizerOp::Adam, OptimizerOp::AdamW})
        for (bool amsgrad : {false, true}) all.push_back({op, decay, 0.9, 0.99, 1e-6, false, amsgrad, maximize});
      all.push_back({OptimizerOp::Sgd, decay, 0, 0, 0, false, false, maximize});
      all.push_back({OptimizerOp::Sgd, decay, 0.9, 0.1, 0, false, false, maximize});
      all.push_back({OptimizerOp::Sgd, decay, 0.9, 0, 0, true, false, maximize});
    }
  return all;
}

/// Lists of views on tensors of one kind, and what a step needs beside them.
struct Problem {
  std::vector<Array> p, g, m, v, x;
  std::vector<TensorView> views[5];
  double lr = 0.05;
  int64_t step = 0;
  float inv_scale = 0.5f, found_inf = 0, numbers[2] = {0.05f, 1};  // eta and mu of ASGD

  static TensorView scalar(void* data, DType t) {
    TensorView view(Scalar(0), t);
    view.is_scalar = false, view.data = data;
    return view;
  }
  void add(DType t, DType state, std::vector<int64_t> shape, std::vector<int> order, bool mixed) {
    const uint32_t seed = uint32_t(p.size());
    const std::vector<int> other = mixed ? std::vector<int>{} : order;
    p.emplace_back(t, shape, order), g.emplace_back(t, shape, other, std::vector<int>{}, mixed);
    for (auto* list : {&m, &v, &x}) list->emplace_back(state, shape, order), list->back().fill(0);
    eighths(p.back(), seed);
  }
  void run(const OptimizerParams& o, bool scaled = true) {
    std::vector<Array>* lists[] = {&p, &g, &m, &v, &x};
    for (int k = 0; k < 5; ++k) {
      views[k].clear();
      for (Array& a : *lists[k]) views[k].push_back(a.view);
    }
    const int states = formulas::states_of(o);
    entry::OptimizerStep c{.values = views[0],
                           .grads = views[1],
                           .lr = scalar(&lr, kFloat64),
                           .step = scalar(&step, kInt64),
                           .numbers = scalar(numbers, kFloat32),
                           .params = o};
    if (states > 0) c.first = views[2];
    if (states > 1) c.second = views[3];
    if (states > 2) c.third = views[4];
    if (scaled) c.inv_scale = scalar(&inv_scale, kFloat32), c.found_inf = scalar(&found_inf, kFloat32);
    cpu_table().optimizer_step(cpu_context(), c);
  }
};

}  // namespace

TEST_CASE("optimizer_step: torch.optim's formulas over five steps, in every float and layout") {
  for (const DType t : float_dtypes)
    for (const OptimizerParams& o : all_params()) {
      Problem problem;
      problem.add(t, compute_type(t), {3, 5}, {0, 1}, false);
      problem.add(t, compute_type(t), {4, 3, 2}, {2, 0, 1}, false);
      problem.add(t, compute_type(t), {4, 3, 2}, {2, 0, 1}, true);
      problem.add(t, compute_type(t), {}, {}, false);
      problem.add(t, compute_type(t), {0, 3}, {0, 1}, false);
      problem.add(t, compute_type(t), {700}, {0}, false);
      std::vector<std::vector<Naive>> naive;
      for (const Array& a : problem.p) {
        naive.emplace_back();
        for (double value : values(a.view)) naive.back().push_back({value});
      }
      for (int step = 1; step <= 5; ++step) {
        for (size_t i = 0; i < problem.p.size(); ++i) {
          eighths(problem.g[i], uint32_t(31 * step + int(i)));
          const auto g = values(problem.g[i].view);
          for (size_t j = 0; j < g.size(); ++j) naive[i][j].step(o, g[j], problem.lr, step, double(problem.inv_scale));
        }
        problem.run(o);
      }
      CHECK(problem.step == 5);
      for (size_t i = 0; i < problem.p.size(); ++i) {
        std::vector<double> expected;
        for (const Naive& n : naive[i]) expected.push_back(n.p);
        CHECK(distance(values(problem.p[i].view), expected) < tolerance(t) * (size_of(t) == 2 ? 6 : 1));
      }
    }
}

TEST_CASE(
    "optimizer_step: every operation gives the same in any layout, and nearly the same in float32 as in float64") {
  using O = OptimizerOp;
  // no weight decay: where it cancels the gradient, the sign of what is left is rounding
  std::vector<OptimizerParams> all = {
      {O::Adagrad, 0, 0, 0, 1e-6}, {O::Adadelta, 0, 0, 0.9, 1e-6}, {O::Adamax, 0, 0.9, 0.99}, {O::NAdam, 0, 0.9, 0.99},
      {O::RAdam, 0, 0.5, 0.6},     {O::RMSprop, 0, 0, 0.9},        {O::RMSprop, 0, 0.5, 0.9}, {O::ASGD, 0, 0.01, 0.75},
      {O::Lion, 0, 0.9, 0.99},     {O::Rprop, 0, 0.5, 1.2}};
  all.push_back(all[5]), all.push_back(all[6]);
  for (size_t i = all.size() - 2; i < all.size(); ++i) all[i].centered = true, all[i].eps = 1e-2;
  for (OptimizerParams o : all) {
    o.b = 50;
    Problem wide, narrow;
    const auto copy = [](const TensorView& to, const TensorView& from) {
      const int64_t *a = to.strides, *b = from.strides;
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t j = 0; j < 3; ++j)
          for (int64_t k = 0; k < 9; ++k)
            write(to.dtype, to.data, i * a[0] + j * a[1] + k * a[2],
                  read(from.dtype, from.data, i * b[0] + j * b[1] + k * b[2]));
    };
    const std::vector<std::vector<int>> orders{{0, 1, 2}, {2, 0, 1}};
    for (const auto& order : orders) wide.add(kFloat64, kFloat64, {4, 3, 9}, order, false);
    for (bool mixed : {false, true}) narrow.add(kFloat32, kFloat32, {4, 3, 9}, orders[size_t(mixed)], mixed);
    for (int step = 1; step <= 5; ++step) {
      for (size_t i = 0; i < 2; ++i) copy(wide.g[i].view, eighths(narrow.g[i], uint32_t(step)).view);
      wide.run(o), narrow.run(o);
    }
    CHECK(distance(values(narrow.p[0].view), values(wide.p[0].view)) < 1e-4);
    CHECK(distance(values(narrow.p[1].view), values(wide.p[1].view)) < 1e-4);
  }
}

TEST_CASE("optimizer_step: found_inf leaves everything as it was") {
  Problem problem;
  problem.add(kFloat32, kFloat32, {9}, {0}, false);
  problem.g[0].fill(INFINITY);
  const auto before = values(problem.p[0].view);
  problem.found_inf = 1;
  problem.run({OptimizerOp::Adam});
  CHECK((problem.step == 0 && values(problem.p[0].view) == before &&
         values(problem.m[0].view) == std::vector<double>(9, 0)));
  problem.found_inf = 0;
  problem.g[0].fill(1);
  problem.run({OptimizerOp::Adam}, false);
  CHECK((problem.step == 1 && values(problem.p[0].view) != before));
}

TEST_CASE("optimizer_step: bitwise the same for any number of threads, many small tensors and large ones") {
  std::vector<std::vector<double>> first;
  for (int threads : {1, 3}) {
    const Threads guard(threads);
    Problem problem;
    for (int i = 0; i < 40; ++i) problem.add(kFloat32, kFloat32, {i % 7 + 1, 13}, {0, 1}, false);
    problem.add(kFloat32, kFloat32, {70001}, {0}, false);
    for (size_t i = 0; i < problem.g.size(); ++i) eighths(problem.g[i], uint32_t(i));
    problem.run({OptimizerOp::AdamW, 0.01}), problem.run({OptimizerOp::AdamW, 0.01});
    std::vector<std::vector<double>> all;
    for (const Array& a : problem.p) all.push_back(values(a.view));
    if (threads == 1) first = all;
    else CHECK(all == first);
  }
}
