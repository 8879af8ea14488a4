// Convolutions, pooling, normalisation, dropout.
#include <algorithm>
#include <cmath>

#include "case.h"

namespace op_cases {

namespace {
/// Windows over the spatial axes (those after the first two).
struct Window {
  Dims stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
  static int64_t of(const Dims& d, int64_t axis) { return d.size() == 1 ? d[0] : d[axis]; }
  /// Where tap k of output i reads.
  int64_t source(int64_t axis, int64_t i, int64_t k) const { return i * of(stride, axis) - of(padding, axis) + k * of(dilation, axis); }
};
}  // namespace

/// The positions that the window of output `at` (n, c, spatial...) reads, in order; those in the padding are left out.
static std::vector<Dims> taps(const Window& w, const Shape& input, const Dims& at, const Shape& kernel) {
  std::vector<Dims> out;
  Dims k = Dims::filled(kernel.size(), 0);
  do {
    Dims from = at;
    bool inside = true;
    for (int64_t axis = 0; axis < kernel.size(); ++axis) {
      from[2 + axis] = w.source(axis, at[2 + axis], k[axis]);
      inside &= from[2 + axis] >= 0 && from[2 + axis] < input[2 + axis];
    }
    if (inside) out.push_back(from);
  } while (next(k, kernel));
  return out;
}
static Shape windows(const Window& w, Shape input, const Shape& kernel) {
  for (int64_t a = 0; a < kernel.size(); ++a) {
    const int64_t extent = Window::of(w.dilation, a) * (kernel[a] - 1) + 1;
    input[2 + a] = (input[2 + a] + 2 * Window::of(w.padding, a) - extent) / Window::of(w.stride, a) + 1;
  }
  return input;
}

/// y[n, o, i] = bias[o] + sum of w[o, c, k] x[n, c of o's group, source(i, k)]
static std::function<Array(const Arrays&)> convolved(Window win) {
  return [win](const Arrays& x) {
    const Array& w = x[1];
    Shape kernel = w.shape;
    kernel.erase(0), kernel.erase(0);
    Shape shape = windows(win, x[0].shape, kernel);
    shape[1] = w.shape[0];
    const int64_t per_group = w.shape[1], outs = w.shape[0] / win.groups;
    return make(shape, [&](const Dims& i) {
      double s = x.size() > 2 ? x[2].at(i[1]) : 0;
      Shape reach = kernel;
      reach.insert(0, per_group);
      Dims k = Dims::filled(reach.size(), 0);
      do {
        Dims at = i, weight = k;
        weight.insert(0, i[1]);
        at[1] = i[1] / outs * per_group + k[0];
        bool inside = true;
        for (int64_t a = 0; a < kernel.size(); ++a) {
          at[2 + a] = win.source(a, i[2 + a], k[1 + a]);
          inside &= at[2 + a] >= 0 && at[2 + a] < x[0].shape[2 + a];
        }
        if (inside) s += x[0].at(at) * w.at(weight);
      } while (next(k, reach));
      return s;
    });
  };
}
/// The transpose: y[n, o, source(i, k)] += w[c, o, k] x[n, c, i]
static std::function<Array(const Arrays&)> convolved_back(Window win, int64_t output_padding) {
  return [=](const Arrays& x) {
    const Array& w = x[1];
    const int64_t spatial = w.shape.size() - 2, outs = w.shape[1], ins = x[0].shape[1] / win.groups;
    Shape shape = x[0].shape, reach = w.shape;
    shape[1] = outs * win.groups;
    for (int64_t a = 0; a < spatial; ++a)
      shape[2 + a] = win.source(a, x[0].shape[2 + a] - 1, w.shape[2 + a] - 1) - Window::of(win.padding, a) + output_padding + 1;
    Array y = make(shape, [&](const Dims& i) { return x.size() > 2 ? x[2].at(i[1]) : 0; });
    reach.erase(0);
    Dims i = Dims::filled(shape.size(), 0);
    if (!x[0].v.empty()) do {
        Dims k = Dims::filled(reach.size(), 0);
        do {
          Dims to = i, weight = k;
          weight.insert(0, i[1]);
          to[1] = i[1] / ins * outs + k[0];
          bool inside = true;
          for (int64_t a = 0; a < spatial; ++a) {
            to[2 + a] = win.source(a, i[2 + a], k[1 + a]);
            inside &= to[2 + a] >= 0 && to[2 + a] < shape[2 + a];
          }
          if (inside) y.at(to) += x[0].at(i) * w.at(weight);
        } while (next(k, reach));
      } while (next(i, x[0].shape));
    return y;
  };
}

static void convolutions(Table& table) {
  // Fast algorithms mix neighbours, so that a NaN may spread: finite_only.
  const auto line = [](Case& c, std::function<Array(const Arrays&)> f) -> Case& { return c.of(kNumbers).within(32).finite_only().expect(std::move(f)); };
  line(CASE(conv1d, conv1d(x[0], x[1], x[2])), convolved({})).on("(2,3,7) (4,3,3) (4) | (0,3,7) (4,3,3) (4) | (1,1,40) (8,1,5) (8)");
  line(CASE(conv1d, conv1d(x[0], x[1], {}, {.stride = 2, .padding = 1, .dilation = 2})), convolved({2, 1, 2})).on("(2,3,9) (4,3,3)");
  line(CASE(conv2d, conv2d(x[0], x[1], x[2])), convolved({}))
      .on("(2,3,5,6) (4,3,3,2) (4) | (2,3,5,6) (1,3,1,1) (1) | (0,3,5,6) (4,3,3,3) (4) | (1,1,9,8) (16,1,3,3) (16) | (1,16,1,1) (8,16,1,1) (8) | (1,16,1,7) "
          "(1,16,1,3) (1)")
      .perf("(16,64,28,28) (64,64,3,3) (64)");
  line(CASE(conv2d, conv2d(x[0], x[1], {}, {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}})), convolved({{2, 1}, {1, 2}, {1, 2}}))
      .on("(2,3,5,6) (4,3,3,3)");
  line(CASE(conv2d, conv2d(x[0], x[1], x[2], {.padding = "same", .groups = 2})), convolved({1, 1, 1, 2})).on("(2,4,5,4) (6,2,3,3) (6)");
  line(CASE(conv2d, conv2d(x[0], x[1], x[2], {.padding = 1, .groups = 3})), convolved({1, 1, 1, 3})).on("(2,3,5,4) (3,1,3,3) (3)");
  line(CASE(conv2d, conv2d(x[0], x[1], x[2], {.padding = 1, .groups = 16})), convolved({1, 1, 1, 16}))
      .on("(1,16,5,4) (16,1,3,3) (16) | (1,16,1,1) (32,1,3,3) (32)");
  line(CASE(conv3d, conv3d(x[0], x[1], x[2], {.padding = 1})), convolved({1, 1})).on("(1,2,3,4,3) (2,2,3,3,2) (2) | (1,1,3,4,3) (8,1,2,2,2) (8)");
  line(CASE(conv_transpose1d, conv_transpose1d(x[0], x[1], x[2])), convolved_back({}, 0)).on("(2,3,5) (3,4,3) (4) | (0,3,5) (3,4,3) (4) | (1,1,9) (1,8,5) (8)");
  line(CASE(conv_transpose2d, conv_transpose2d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .output_padding = 1})), convolved_back({2, 1}, 1))
      .on("(2,3,4,3) (3,2,3,3) (2) | (1,16,1,1) (16,8,3,3) (8)")
      .perf("(16,64,28,28) (64,64,3,3) (64)");
  line(CASE(conv_transpose2d, conv_transpose2d(x[0], x[1], {}, {.groups = 2, .dilation = 2})), convolved_back({1, 0, 2, 2}, 0)).on("(2,4,3,3) (4,3,2,3)");
  line(CASE(conv_transpose3d, conv_transpose3d(x[0], x[1], x[2])), convolved_back({}, 0)).on("(1,2,2,3,2) (2,2,2,2,3) (2) | (1,8,1,1,1) (8,1,2,2,2) (1)");
}

/// The largest of each window (where there are NaNs the last of them) and its position in the plane.
static std::function<Arrays(const Arrays&)> pooled_max(Window w, Shape kernel, bool indices) {
  return [=](const Arrays& x) {
    const Shape shape = windows(w, x[0].shape, kernel);
    Array places = make(shape, [&](const Dims& i) {
      Dims best;
      for (const Dims& at : taps(w, x[0].shape, i, kernel))
        if (best.empty() || std::isnan(x[0].at(at)) || x[0].at(at) > x[0].at(best)) best = at;
      int64_t place = 0;
      for (int64_t d = 2; d < best.size(); ++d) place = place * x[0].shape[d] + best[d];
      return double(place);
    });
    int64_t plane = 1;
    for (int64_t d = 2; d < x[0].shape.size(); ++d) plane *= x[0].shape[d];
    Array y = make(shape, [&](const Dims& i) { return x[0].v[size_t((i[0] * x[0].shape[1] + i[1]) * plane + int64_t(places.at(i)))]; });
    return indices ? Arrays{y, places} : Arrays{y};
  };
}
static std::function<Array(const Arrays&)> pooled_mean(Window w, Shape kernel, bool count_padding) {
  return [=](const Arrays& x) {
    return make(windows(w, x[0].shape, kernel), [&](const Dims& i) {
      double s = 0;
      const std::vector<Dims> places = taps(w, x[0].shape, i, kernel);
      for (const Dims& at : places) s += x[0].at(at);
      return s / double(count_padding ? numel_of(kernel) : int64_t(places.size()));
    });
  };
}
/// Output i of n covers floor(i size / n) to ceil((i + 1) size / n).
static std::function<Array(const Arrays&)> pooled_to(Shape to) {
  return [=](const Arrays& x) {
    Shape shape = x[0].shape;
    for (int64_t a = 0; a < to.size(); ++a) shape[2 + a] = to[a] < 0 ? shape[2 + a] : to[a];
    return make(shape, [&](const Dims& i) {
      double s = 0, count = 0;
      Dims at = Dims::filled(shape.size(), 0);
      if (!x[0].v.empty()) do {
          bool inside = at[0] == i[0] && at[1] == i[1];
          for (int64_t d = 2; d < at.size(); ++d)
            inside &= at[d] >= i[d] * x[0].shape[d] / shape[d] && at[d] < ((i[d] + 1) * x[0].shape[d] + shape[d] - 1) / shape[d];
          if (inside) s += x[0].at(at), ++count;
        } while (next(at, x[0].shape));
      return s / count;
    });
  };
}

static void pooling(Table& table) {
  const auto max_line = [](Case& c, Window w, Shape kernel, bool indices) -> Case& { return c.of(kNumbers).expect(pooled_max(w, kernel, indices)); };
  max_line(CASE(max_pool1d, max_pool1d(x[0], 3, {.stride = 1, .padding = 1, .dilation = 2})), {1, 1, 2}, 3, false).on("(2,3,7)");
  max_line(CASE(max_pool2d, max_pool2d(x[0], 2)), {2}, {2, 2}, false).on("(2,3,5,4) | (0,3,4,4)").perf("(16,64,56,56)");
  max_line(CASE(max_pool2d, max_pool2d(x[0], {3, 2}, {.stride = {2, 1}, .padding = {1, 0}})), {{2, 1}, {1, 0}}, {3, 2}, false).on("(2,3,5,4)");
  max_line(CASE(max_pool3d, max_pool3d(x[0], 2, {.stride = 1})), {1}, {2, 2, 2}, false).on("(1,2,3,4,3)");
  max_line(CASE(max_pool1d_with_indices, max_pool1d_with_indices(x[0], 2)), {2}, 2, true).on("(2,3,7)");
  max_line(CASE(max_pool2d_with_indices, max_pool2d_with_indices(x[0], 3, {.stride = 2, .padding = 1})), {2, 1}, {3, 3}, true).on("(2,3,5,4)");
  max_line(CASE(max_pool3d_with_indices, max_pool3d_with_indices(x[0], 2)), {2}, {2, 2, 2}, true).on("(1,2,4,4,2)");
  CASE(avg_pool1d, avg_pool1d(x[0], 3, {.stride = 2, .padding = 1})).of(kNumbers).within(8).on("(2,3,7)").expect(pooled_mean({2, 1}, 3, true));
  CASE(avg_pool2d, avg_pool2d(x[0], 2)).of(kNumbers).within(8).on("(2,3,5,4) | (0,3,4,4)").perf("(16,64,56,56)").expect(pooled_mean({2}, {2, 2}, true));
  CASE(avg_pool2d, avg_pool2d(x[0], 3, {.stride = 1, .padding = 1, .count_include_pad = false}))
      .within(8)
      .on("(2,3,5,4)")
      .expect(pooled_mean({1, 1}, {3, 3}, false));
  CASE(avg_pool3d, avg_pool3d(x[0], 2, {.stride = 1})).of(kNumbers).within(8).on("(1,2,3,4,3)").expect(pooled_mean({1}, {2, 2, 2}, true));
  CASE(adaptive_avg_pool1d, adaptive_avg_pool1d(x[0], 3)).within(8).on("(2,3,7)").expect(pooled_to(3));
  CASE(adaptive_avg_pool2d, adaptive_avg_pool2d(x[0], {2, -1})).within(8).on("(2,3,5,4)").expect(pooled_to({2, -1}));
  CASE(adaptive_avg_pool3d, adaptive_avg_pool3d(x[0], 2)).within(8).on("(1,2,3,4,3)").expect(pooled_to({2, 2, 2}));
}

/// Groups of elements with one key are normalised: (x - mean) / sqrt(var + eps), or without the mean x / sqrt(mean x^2 + eps).
static Array normalised(const Array& x, const std::function<int64_t(const Dims&)>& key, double eps, bool centred = true) {
  std::vector<long double> count, sum, squares;  // long: nearer to the truth than float64 results
  const auto each = [&](const std::function<void(size_t, double)>& f) { make(x.shape, [&](const Dims& i) { return f(size_t(key(i)), x.at(i)), 0; }); };
  each([&](size_t k, double v) {
    if (k >= sum.size()) count.resize(k + 1), sum.resize(k + 1), squares.resize(k + 1);
    ++count[k], sum[k] += v;
  });
  const auto mean = [&](size_t k) { return centred ? sum[k] / count[k] : 0.0L; };
  each([&](size_t k, double v) { squares[k] += (v - mean(k)) * (v - mean(k)); });
  return make(x.shape, [&](const Dims& i) {
    const size_t k = size_t(key(i));
    return double((x.at(i) - mean(k)) / std::sqrt(squares[k] / count[k] + eps));
  });
}
/// y weight[c] + bias[c] with c = i[1]
static Array scaled(const Array& y, const Array& weight, const Array& bias) {
  return make(y.shape, [&](const Dims& i) { return y.at(i) * weight.at(i[1]) + bias.at(i[1]); });
}

static void normalisation(Table& table) {
  CASE(batch_norm, batch_norm(x[0], x[1], x[2], x[3], x[4]))
      .in({kAny, kConstant, kConstant, kAny})
      .within(16)
      .on("(2,3,4) (3) (3) (3) (3) | (2,3,4,2) (3) (3) (3) (3) | (0,3) (3) (3) (3) (3)")
      .expect([](const Arrays& x) {
        return make(x[0].shape, [&](const Dims& i) {
          const int64_t c = i[1];
          return (x[0].at(i) - x[1].at(c)) / std::sqrt(x[2].at(c) + 1e-5) * x[3].at(c) + x[4].at(c);
        });
      });
  CASE(batch_norm, batch_norm(x[0], {}, {}, x[1], x[2], {.training = true}))
      .within(64)
      .on("(4,3) (3) (3) | (2,3,4,2) (3) (3)")
      .perf("(32,64,28,28) (64) (64)")
      .expect([](const Arrays& x) {
        return scaled(normalised(
                          x[0], [](const Dims& i) { return i[1]; }, 1e-5),
                      x[1], x[2]);
      });
  const auto running = [](const List& x) {  // the statistics that follow in place
    const Tensor mean = clone(x[1]), var = clone(x[2]);
    batch_norm(x[0], mean, var, {}, {}, {.training = true, .momentum = 0.25});
    return List{mean, var};
  };
  CASE(batch_norm, running(x)).in({kAny, kConstant}).finite_only().no_gradient().within(32).on("(2,3,4) (3) (3)").expect([](const Arrays& x) {
    const Arrays stats = fold(x[0], {0, 2}, false, [](const std::vector<double>& v) {
      double mean = 0, s = 0;
      for (double a : v) mean += a / double(v.size());
      for (double a : v) s += (a - mean) * (a - mean);
      return std::vector<double>{mean, s / double(v.size() - 1)};
    });
    const auto mix = [&](int k) { return make(3, [&](const Dims& i) { return 0.75 * x[size_t(k + 1)].at(i) + 0.25 * stats[size_t(k)].at(i); }); };
    return Arrays{mix(0), mix(1)};
  });
  CASE(instance_norm, instance_norm(x[0], {}, {}, x[1], x[2])).within(64).on("(2,3,4) (3) (3) | (2,3,4,2) (3) (3)").expect([](const Arrays& x) {
    return scaled(normalised(
                      x[0], [](const Dims& i) { return i[0] * 3 + i[1]; }, 1e-5),
                  x[1], x[2]);
  });
  CASE(layer_norm, layer_norm(x[0], {3, 4}, {.weight = x[1], .bias = x[2]}))
      .within(64)
      .on("(2,3,4) (3,4) (3,4) | (2,2,3,4) (3,4) (3,4) | (0,3,4) (3,4) (3,4)")
      .expect([](const Arrays& x) {
        const bool deep = x[0].shape.size() == 4;
        const Array y = normalised(
            x[0], [&](const Dims& i) { return deep ? i[0] * 2 + i[1] : i[0]; }, 1e-5);
        return make(y.shape, [&](const Dims& i) { return y.at(i) * broadcast_at(x[1], i) + broadcast_at(x[2], i); });
      });
  CASE(layer_norm, layer_norm(x[0], 5, {.eps = 0.1})).within(64).on("(3,5) | (5)").perf("(1024,5)").expect([](const Arrays& x) {
    return normalised(
        x[0], [&](const Dims& i) { return i.size() == 1 ? 0 : i[0]; }, 0.1);
  });
  CASE(group_norm, group_norm(x[0], 2, {.weight = x[1], .bias = x[2]})).within(64).on("(2,4,3) (4) (4) | (2,4,3,2) (4) (4)").expect([](const Arrays& x) {
    return scaled(normalised(
                      x[0], [](const Dims& i) { return i[0] * 2 + i[1] / 2; }, 1e-5),
                  x[1], x[2]);
  });
  CASE(rms_norm, rms_norm(x[0], 4, {.weight = x[1], .eps = 1e-3})).within(32).on("(3,4) (4) | (0,4) (4)").expect([](const Arrays& x) {
    const Array y = normalised(
        x[0], [](const Dims& i) { return i[0]; }, 1e-3, false);
    return make(y.shape, [&](const Dims& i) { return y.at(i) * x[1].at(i[1]); });
  });
}

/// Each element is 0 or x / (1 - p), and some are kept.
static std::string dropped(const List& x, const Tensor& y, double p) {
  const auto from = x[0].to_vector<double>(), to = y.to_vector<double>();
  double kept = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    const double want = from[i] / (1 - p);
    if (to[i] == 0) continue;
    ++kept;
    if (!(std::abs(to[i] - want) <= 0.02 * std::abs(want))) return "an element is neither 0 nor x / (1 - p)";
  }
  return to.size() > 1000 && std::abs(kept / double(to.size()) - (1 - p)) > 0.05 ? "wrong share of zeros" : "";
}

/// Channels are whole or zero.
static std::string channels_dropped(const List& x, const Tensor& y, double p) {
  const int64_t plane = x[0].numel() / (x[0].shape()[0] * x[0].shape()[1]);
  const auto to = y.to_vector<double>();
  for (size_t i = 0; i < to.size(); ++i)
    if ((to[i] == 0) != (to[i / size_t(plane) * size_t(plane)] == 0)) return "a channel is neither whole nor zero";
  return dropped(x, y, p);
}
/// Elements are a x + b or the limit's image; p = 0.5: a = 1 / sqrt((limit^2 / 2 + 1) / 2).
static std::string limited(const List& x, const Tensor& y) {
  const auto from = x[0].to_vector<double>(), to = y.to_vector<double>();
  const double limit = -1.7580993408473766, a = 1 / std::sqrt((limit * limit / 2 + 1) / 2);
  for (size_t i = 0; i < to.size(); ++i)
    if (std::abs(to[i] - a * (from[i] - limit / 2)) > 0.03 && std::abs(to[i] - a * limit / 2) > 0.03) return "an element is neither kept nor at the limit";
  return "";
}
static void dropouts(Table& table) {
  const auto line = [](Case& c) -> Case& {
    return c.in({kNonzero}).finite_only().must([](const List& x, const Tensor& y) { return channels_dropped(x, y, 0.4); });
  };
  line(CASE(dropout1d, dropout1d(x[0], 0.4))).on("(40,43,2)");
  line(CASE(dropout2d, dropout2d(x[0], 0.4))).on("(2,3,4,2) | (40,43,2)");
  line(CASE(dropout3d, dropout3d(x[0], 0.4))).on("(40,43,1,2,1)");
  CASE(alpha_dropout, alpha_dropout(x[0], 0.5, true)).finite_only().on("(2,3,4) | (40,43)").must(limited);
  CASE(rrelu, rrelu(x[0])).EACH(1, a > 0 ? a : a * 11 / 48);
  CASE(rrelu, rrelu(x[0], {.lower = 0.2, .upper = 0.4, .training = true}))
      .in({kNonzero})
      .finite_only()
      .on("(2,3,4) | (40,43)")
      .must([](const List& x, const Tensor& y) {
        const auto from = x[0].to_vector<double>(), to = y.to_vector<double>();
        for (size_t i = 0; i < to.size(); ++i)
          if (from[i] > 0 ? to[i] != from[i] : to[i] > 0.198 * from[i] || to[i] < 0.402 * from[i]) return "a slope outside [lower, upper)";
        return "";
      });
  for (bool hard : {false, true}) {
    Case& gumbel =
        CASE(gumbel_softmax, gumbel_softmax(x[0], {.tau = 0.7, .hard = hard})).finite_only().on("(3,4) | (0,4)").must([hard](const List&, const Tensor& y) {
          const auto sums = sum(to(y, kFloat64), -1).to_vector<double>(), each = y.to_vector<double>();
          for (double s : sums)
            if (std::abs(s - 1) > 0.02) return "a row does not sum to 1";
          for (double v : each)
            if (hard && std::abs(v) > 0.01 && std::abs(v - 1) > 0.01) return "neither 0 nor 1";
          return "";
        });
    if (hard) gumbel.no_gradient();  // it is that of the soft samples, by intent
  }
  CASE(feature_alpha_dropout, feature_alpha_dropout(x[0], 0.5, true)).finite_only().on("(2,3,4) | (40,43,2)").must(limited);
}

void nn_cases(Table& table) {
  convolutions(table);
  pooling(table);
  normalisation(table);
  image_cases(table), attention_cases(table);
  CASE(dropout, dropout(x[0], 0.4))
      .on("(2,3,4) | () | (0,3) | (40,43)")
      .finite_only()
      .perf("(1024,1024)")
      .must([](const List& x, const Tensor& y) { return dropped(x, y, 0.4); })
      .TWIN(dropout_, 0.4);
  CASE(dropout, dropout(x[0], 0.4, false)).of(kAll).EACH(1, a).views(Shares::Maybe);
  dropouts(table);
}

}  // namespace op_cases
