#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

struct Case {
  NormParams params;
  std::vector<int64_t> shape;
  std::vector<int> order;
  int64_t gap = 0;
};
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto add = [&](NormOp op, int64_t axes, int64_t groups, bool training, std::vector<int64_t> shape,
                       std::vector<int> order, int64_t gap = 0) {
    NormParams p{op};
    p.axes = axes, p.groups = groups, p.training = training;
    cases.push_back({p, std::move(shape), std::move(order), gap});
  };
  for (bool training : {true, false}) {
    add(NormOp::Batch, 1, 1, training, {4, 6, 5, 7}, {0, 1, 2, 3});
    add(NormOp::Batch, 1, 1, training, {4, 6, 5, 7}, {0, 2, 3, 1});
    add(NormOp::Batch, 1, 1, training, {4, 6, 5, 7}, {3, 1, 0, 2}, 1);
    add(NormOp::Batch, 1, 1, training, {40, 1030}, {0, 1});
    add(NormOp::Batch, 1, 1, training, {300, 3}, {1, 0});
    add(NormOp::Batch, 1, 1, training, {2, 3, 40, 40}, {0, 1, 2, 3});
    add(NormOp::Batch, 1, 1, training, {2, 1, 33}, {0, 1, 2});
    add(NormOp::Batch, 1, 1, training, {20, 3, 2, 3}, {0, 1, 2, 3});
  }
  add(NormOp::Group, 1, 2, true, {3, 6, 5, 7}, {0, 1, 2, 3});
  add(NormOp::Group, 1, 3, true, {3, 6, 5, 7}, {0, 2, 3, 1});
  add(NormOp::Group, 1, 6, true, {3, 6, 5, 7}, {3, 1, 0, 2}, 1);
  add(NormOp::Group, 1, 2, true, {8, 6}, {0, 1});
  for (NormOp op : {NormOp::Layer, NormOp::Rms}) {
    add(op, 1, 1, true, {5, 3, 40}, {0, 1, 2});
    add(op, 2, 1, true, {70, 3, 8}, {0, 1, 2});
    add(op, 3, 1, true, {2, 3, 4}, {2, 1, 0}, 2);
    add(op, 1, 1, true, {3, 2500}, {0, 1});
    add(op, 1, 1, true, {1100, 6}, {1, 0});
  }
  return cases;
}

bool by_channel(const NormParams& p) { return p.op == NormOp::Batch || p.op == NormOp::Group; }
/// Which set of statistics a place belongs to, and which weight.
int64_t set_of(const Case& c, const Place& at) {
  if (c.params.op == NormOp::Batch) return at[1];
  if (c.params.op == NormOp::Group) return at[0] * c.params.groups + at[1] / (c.shape[1] / c.params.groups);
  int64_t set = 0;
  for (size_t d = 0; d + size_t(c.params.axes) < c.shape.size(); ++d) set = set * c.shape[d] + at[d];
  return set;
}
int64_t weight_of(const Case& c, const Place& at) {
  if (by_channel(c.params)) return at[1];
  int64_t w = 0;
  for (size_t d = c.shape.size() - size_t(c.params.axes); d < c.shape.size(); ++d) w = w * c.shape[d] + at[d];
  return w;
}
std::vector<int64_t> statistics_shape(const Case& c) {
  if (c.params.op == NormOp::Batch) return {c.shape[1]};
  if (c.params.op == NormOp::Group) return {c.shape[0], c.params.groups};
  return {c.shape.begin(), c.shape.end() - c.params.axes};
}
std::vector<int64_t> weight_shape(const Case& c) {
  if (by_channel(c.params)) return {c.shape[1]};
  return {c.shape.end() - c.params.axes, c.shape.end()};
}

/// Everything a norm gives, in double.
struct Naive {
  std::vector<double> mean, var, rstd, count, y, dx, dweight, dbias;
};
Naive naive_norm(const Case& c, const Array& x, const Array& dy, const Array* weight, const Array* bias,
                 const std::vector<double>& running_mean, const std::vector<double>& running_var) {
  Naive n;
  const size_t sets = size_t(numel_of(Dims(statistics_shape(c)))), weights = size_t(numel_of(Dims(weight_shape(c))));
  for (auto* v : {&n.mean, &n.var, &n.rstd, &n.count}) v->assign(sets, 0);
  n.dweight.assign(weights, 0), n.dbias.assign(weights, 0);
  const auto set = [&](const Place& at) { return size_t(set_of(c, at)); };
  const std::vector<double> ws = weight ? values(weight->view) : std::vector<double>(weights, 1),
                            bs = bias ? values(bias->view) : std::vector<double>(weights, 0);
  const bool rms = c.params.op == NormOp::Rms, fixed = !c.params.training;
  for_places(x.view.shape(), [&](const Place& at) { n.count[set(at)]++, n.mean[set(at)] += rms ? 0 : get(x, at); });
  for (size_t s = 0; s < sets; ++s) n.mean[s] /= n.count[s];
  for_places(x.view.shape(), [&](const Place& at) { n.var[set(at)] += std::pow(get(x, at) - n.mean[set(at)], 2); });
  for (size_t s = 0; s < sets; ++s) {
    n.var[s] /= n.count[s];
    if (fixed) n.mean[s] = running_mean[s], n.var[s] = running_var[s];
    n.rstd[s] = 1 / std::sqrt(n.var[s] + c.params.eps);
  }
  std::vector<double> a(sets, 0), b(sets, 0);
  const auto hat = [&](const Place& at) { return (get(x, at) - n.mean[set(at)]) * n.rstd[set(at)]; };
  for_places(x.view.shape(), [&](const Place& at) {
    const size_t k = size_t(weight_of(c, at));
    const double g = get(dy, at) * ws[k];
    n.y.push_back(hat(at) * ws[k] + bs[k]);
    a[set(at)] += rms ? 0 : g, b[set(at)] += g * hat(at);
    n.dweight[k] += get(dy, at) * hat(at), n.dbias[k] += get(dy, at);
  });
  for_places(x.view.shape(), [&](const Place& at) {
    const size_t s = set(at);
    const double g = get(dy, at) * ws[size_t(weight_of(c, at))];
    n.dx.push_back(n.rstd[s] * (fixed ? g : g - a[s] / n.count[s] - hat(at) * b[s] / n.count[s]));
  });
  return n;
}

void check_case(const Case& c, DType t, bool affine, bool other_layout) {
  INFO("op " << int(c.params.op) << " training " << c.params.training << " dtype " << int(t) << " shape "
             << Dims(c.shape).str() << " affine " << affine << " other layout " << other_layout);
  const DType wide = t == kFloat64 ? kFloat64 : kFloat32, wt = affine && size_of(t) == 2 ? kFloat32 : t;
  const std::vector<int> plain;
  Array x(t, c.shape, c.order, {}, c.gap), dy(t, c.shape, other_layout ? plain : c.order),
      y(t, c.shape, other_layout ? plain : c.order);
  Array dx(t, c.shape, other_layout ? plain : c.order), weight(wt, weight_shape(c)),
      bias(wt, weight_shape(c), {}, {}, 1);
  Array dweight(wt, weight_shape(c)), dbias(wt, weight_shape(c)), mean(wide, statistics_shape(c)),
      rstd(wide, statistics_shape(c));
  Array running_mean(wide, {c.shape[1]}), running_var(wide, {c.shape[1]}, {}, {}, 1);
  eighths(x, 3), eighths(dy, 4), eighths(weight, 5), eighths(bias, 6), eighths(running_mean, 7);
  running_var.random(9, 1, 5);
  const auto old_mean = values(running_mean.view), old_var = values(running_var.view);
  const bool batch = c.params.op == NormOp::Batch;
  const Naive n = naive_norm(c, x, dy, affine ? &weight : nullptr, affine ? &bias : nullptr, old_mean, old_var);
  const TensorView none{}, &w = affine ? weight.view : none, &b = affine ? bias.view : none;
  cpu_table().norm(cpu_context(), {.y = y.view,
                                   .mean = mean.view,
                                   .rstd = rstd.view,
                                   .x = x.view,
                                   .weight = w,
                                   .bias = b,
                                   .running_mean = batch ? running_mean.view : none,
                                   .running_var = batch ? running_var.view : none,
                                   .params = c.params});
  const double allowed = tolerance(t) * 2;
  CHECK(distance(values(y.view), n.y) < allowed);
  if (c.params.op != NormOp::Rms) CHECK(distance(values(mean.view), n.mean) < tolerance(wide));
  CHECK(distance(values(rstd.view), n.rstd) < tolerance(wide));
  if (batch && c.params.training)
    for (size_t i = 0; i < n.mean.size(); ++i) {
      CHECK(values(running_mean.view)[i] == Approx(0.9 * old_mean[i] + 0.1 * n.mean[i]).margin(1e-5));
      CHECK(values(running_var.view)[i] ==
            Approx(0.9 * old_var[i] + 0.1 * n.var[i] * n.count[i] / (n.count[i] - 1)).margin(1e-5));
    }
  else CHECK((values(running_mean.view) == old_mean && values(running_var.view) == old_var));
  cpu_table().norm_backward(cpu_context(), {.dx = dx.view,
                                            .dweight = affine ? dweight.view : none,
                                            .dbias = affine ? dbias.view : none,
                                            .dy = dy.view,
                                            .x = x.view,
                                            .weight = w,
                                            .mean = mean.view,
                                            .rstd = rstd.view,
                                            .params = c.params});
  CHECK(distance(values(dx.view), n.dx) < allowed);
  if (!affine) return;
  CHECK(distance(values(dweight.view), n.dweight) < tolerance(wide) * 20);
  CHECK(distance(values(dbias.view), n.dbias) < tolerance(wide) * 20);
}

}  // namespace

TEST_CASE("norm: batch, group, layer and rms against plain formulas, in every float and layout") {
  for (const Case& c : all_cases())
    for (DType t : float_dtypes)
      for (bool affine : {true, false})
        for (bool other_layout : {false, true}) check_case(c, t, affine, other_layout);
}

TEST_CASE("norm: a mean far from zero costs no accuracy") {
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {0, 2, 1}})
    for (NormOp op : {NormOp::Batch, NormOp::Group, NormOp::Layer}) {
      Case c{NormParams{op}, {40, 8, 300}, order};
      Array x(kFloat32, c.shape, order), dy(kFloat32, c.shape), y(kFloat32, c.shape, order);
      Array mean(kFloat32, statistics_shape(c)), rstd(kFloat32, statistics_shape(c));
      eighths(x, 3);
      for (int64_t i = 0; i < x.count; ++i) write(kFloat32, x.view.data, i, read(kFloat32, x.view.data, i) + 4096);
      const Naive n = naive_norm(c, x, dy, nullptr, nullptr, {}, {});
      const TensorView none{};
      cpu_table().norm(cpu_context(),
                       {.y = y.view, .mean = mean.view, .rstd = rstd.view, .x = x.view, .params = c.params});
      CHECK(distance(values(rstd.view), n.rstd) < 1e-5);
      CHECK(distance(values(y.view), n.y) < 1e-3);  // half an ulp of the mean, of 4096, is 2.4e-4
    }
}

TEST_CASE("norm: nothing, absent gradients, any number of threads") {
  const TensorView none{};
  for (NormOp op : {NormOp::Batch, NormOp::Group, NormOp::Layer, NormOp::Rms}) {
    Case c{NormParams{op}, {0, 4, 3}, {0, 1, 2}};
    Array x(kFloat32, c.shape), mean(kFloat32, statistics_shape(c)), rstd(kFloat32, statistics_shape(c)),
        w(kFloat32, weight_shape(c));
    Array dw(kFloat32, weight_shape(c)), running(kFloat32, {4});
    running.fill(2), dw.fill(7);
    const TensorView& r = op == NormOp::Batch ? running.view : none;
    cpu_table().norm(cpu_context(), {.y = x.view,
                                     .mean = mean.view,
                                     .rstd = rstd.view,
                                     .x = x.view,
                                     .weight = w.view,
                                     .running_mean = r,
                                     .running_var = r,
                                     .params = c.params});
    CHECK(values(running.view) == std::vector<double>(4, 2));
    cpu_table().norm_backward(cpu_context(), {.dx = x.view,
                                              .dweight = dw.view,
                                              .dy = x.view,
                                              .x = x.view,
                                              .weight = w.view,
                                              .mean = mean.view,
                                              .rstd = rstd.view,
                                              .params = c.params});
    CHECK(values(dw.view) == std::vector<double>(values(dw.view).size(), 0));
  }
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {0, 2, 3, 1}})
    for (NormOp op : {NormOp::Batch, NormOp::Group, NormOp::Layer}) {
      std::vector<std::vector<double>> first;
      for (int threads : {1, 4}) {
        const Threads guard(threads);
        Case c{NormParams{op}, {9, 24, 31, 29}, order};
        Array x(kFloat32, c.shape, order), y(kFloat32, c.shape, order), mean(kFloat32, statistics_shape(c)),
            rstd(kFloat32, statistics_shape(c));
        Array dw(kFloat32, weight_shape(c)), dx(kFloat32, c.shape, order);
        eighths(x, 3);
        cpu_table().norm(cpu_context(),
                         {.y = y.view, .mean = mean.view, .rstd = rstd.view, .x = x.view, .params = c.params});
        cpu_table().norm_backward(cpu_context(), {.dx = dx.view,
                                                  .dweight = dw.view,
                                                  .dy = y.view,
                                                  .x = x.view,
                                                  .mean = mean.view,
                                                  .rstd = rstd.view,
                                                  .params = c.params});
        const std::vector<std::vector<double>> all{values(y.view), values(mean.view), values(rstd.view),
                                                   values(dw.view), values(dx.view)};
        if (threads == 1) first = all;
        else CHECK(all == first);
        cpu_table().norm_backward(
            cpu_context(),
            {.dweight = dw.view, .dy = y.view, .x = x.view, .mean = mean.view, .rstd = rstd.view, .params = c.params});
        CHECK(values(dw.view) == all[3]);
      }
    }
}

TEST_CASE("norm_relu: what batch norm, an addition and relu make one by one, and their gradients") {
  const TensorView none{};
  const auto& table = cpu_table();
  const auto run = [&](const Case& c, DType t, bool adds, bool other_layout, bool wants_g) {
    INFO("dtype " << int(t) << " shape " << Dims(c.shape).str() << " training " << c.params.training << " adds " << adds
                  << " other layout " << other_layout << " g wanted " << wants_g);
    const std::vector<int> order = other_layout ? std::vector<int>() : c.order;
    const auto make = [&](const std::vector<int>& o) { return Array(t, c.shape, o, {}, c.gap); };
    const auto channels = [&] { return Array(t, {c.shape[1]}); };
    Array x = make(c.order), add = make(order), dy = make(order), y[2] = {make(c.order), make(c.order)},
          sum = make(c.order), dx[2] = {make(c.order), make(c.order)}, g[2] = {make(order), make(order)};
    Array weight = channels(), bias = channels(), shift = channels(), mean[2] = {channels(), channels()},
          rstd[2] = {channels(), channels()}, dw[2] = {channels(), channels()}, db[2] = {channels(), channels()},
          running[2] = {channels(), channels()}, var[2] = {channels(), channels()};
    eighths(x, 3), eighths(add, 4), eighths(dy, 5), eighths(weight, 6), eighths(bias, 7);
    write(t, adds ? add.view.data : x.view.data, 0, std::numeric_limits<double>::quiet_NaN());
    for (int i : {0, 1}) eighths(running[i], 8), var[i].random(9, 1, 5);
    const TensorView& a = adds ? add.view : none;
    Context& ctx = cpu_context();
    table.norm(ctx, {.y = sum.view,
                     .mean = mean[0].view,
                     .rstd = rstd[0].view,
                     .x = x.view,
                     .weight = weight.view,
                     .bias = bias.view,
                     .running_mean = running[0].view,
                     .running_var = var[0].view,
                     .params = c.params});
    if (adds) table.binary(ctx, {sum.view, sum.view, add.view, {BinaryOp::Add}});
    table.unary(ctx, {y[0].view, sum.view, {UnaryOp::Relu}});
    table.norm_relu(ctx, {.y = y[1].view,
                          .mean = mean[1].view,
                          .rstd = rstd[1].view,
                          .shift = adds ? none : shift.view,
                          .x = x.view,
                          .weight = weight.view,
                          .bias = bias.view,
                          .running_mean = running[1].view,
                          .running_var = var[1].view,
                          .add = a,
                          .params = c.params});
    const double allowed = other_layout ? tolerance(t) : 0;
    CHECK(distance(values(y[1].view), values(y[0].view)) <= allowed);
    for (const auto* pair : {mean, rstd, running, var})
      CHECK(distance(values(pair[1].view), values(pair[0].view)) <= allowed);
    table.binary(ctx, {g[0].view, dy.view, y[0].view, {BinaryOp::ReluGrad}});
    table.norm_backward(ctx, {.dx = dx[0].view,
                              .dweight = dw[0].view,
                              .dbias = db[0].view,
                              .dy = g[0].view,
                              .x = x.view,
                              .weight = weight.view,
                              .mean = mean[0].view,
                              .rstd = rstd[0].view,
                              .params = c.params});
    table.norm_relu_backward(ctx, {.dx = dx[1].view,
                                   .dweight = dw[1].view,
                                   .dbias = db[1].view,
                                   .dadd = wants_g ? g[1].view : none,
                                   .dy = dy.view,
                                   .x = x.view,
                                   .y = adds ? y[1].view : none,
                                   .shift = adds ? none : shift.view,
                                   .weight = weight.view,
                                   .mean = mean[1].view,
                                   .rstd = rstd[1].view,
                                   .params = c.params});
    if (wants_g) CHECK(distance(values(g[1].view), values(g[0].view)) == 0);
    for (const auto* pair : {dx, dw, db}) CHECK(distance(values(pair[1].view), values(pair[0].view)) <= allowed * 20);
    dx[1].fill(7), g[1].fill(7);  // only some of the gradients
    table.norm_relu_backward(ctx, {.dx = dx[1].view,
                                   .dadd = wants_g ? g[1].view : none,
                                   .dy = dy.view,
                                   .x = x.view,
                                   .y = adds ? y[1].view : none,
                                   .shift = adds ? none : shift.view,
                                   .weight = weight.view,
                                   .mean = mean[1].view,
                                   .rstd = rstd[1].view,
                                   .params = c.params});
    CHECK(distance(values(dx[1].view), values(dx[0].view)) <= allowed * 20);
    if (wants_g) CHECK(distance(values(g[1].view), values(g[0].view)) == 0);
  };
  for (const Case& c : all_cases())
    for (DType t : {kFloat32, kFloat64})
      for (int form = 0; form < 8 && c.params.op == NormOp::Batch; ++form) run(c, t, form & 1, form & 2, form & 4);
}
