// Padding, windows, resampling, sampling, unpooling, channels.
#include <algorithm>
#include <cmath>

#include "case.h"

namespace op_cases {

/// The position in [0, n) that stands for i, -1: the value.
static int64_t source(int64_t i, int64_t n, std::string_view mode) {
  if (mode == "constant") return i < 0 || i >= n ? -1 : i;
  if (mode == "replicate") return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == "circular") return (i + n) % n;
  return i < 0 ? -i : i >= n ? 2 * n - 2 - i : i;
}
/// before and after: of each dimension.
static std::function<Array(const Arrays&)> padded(std::string_view mode, Dims before, Dims after, double value = 0) {
  return [=](const Arrays& x) {
    Shape shape = x[0].shape;
    for (int64_t d = 0; d < shape.size(); ++d) shape[d] += before[d] + after[d];
    return make(shape, [&](Dims i) {
      for (int64_t d = 0; d < shape.size(); ++d)
        if ((i[d] = source(i[d] - before[d], x[0].shape[d], mode)) < 0) return value;
      return x[0].at(i);
    });
  };
}

static void padding(Table& table) {
  CASE(pad, pad(x[0], {1, 2, 0, 1}, {.value = 3})).of(kNumbers).on("(2,3,4) | (2,0)").expect([](const Arrays& x) {
    const Dims none = Dims::filled(x[0].shape.size() - 2, 0);
    Dims before = none, after = none;
    before.push_back(0), before.push_back(1), after.push_back(1), after.push_back(2);
    return padded("constant", before, after, 3)(x);
  });
  CASE(pad, pad(x[0], {-1, 2, 0, -2})).of(kAll).on("(2,3,4)").expect(padded("constant", {0, 0, -1}, {0, -2, 2}));
  CASE(pad, pad(x[0], {2, 1, 1, 0}, {.mode = "reflect"})).of(kNumbers).on("(2,3,4)").expect(padded("reflect", {0, 1, 2}, {0, 0, 1}));
  CASE(pad, pad(x[0], {6, 1, 1, 0}, {.mode = "replicate"})).of(kNumbers).on("(2,3,4) | (0,3,4)").expect(padded("replicate", {0, 1, 6}, {0, 0, 1}));
  CASE(pad, pad(x[0], {2, 1, 1, 0}, {.mode = "circular"})).of(kAll).on("(2,3,4)").expect(padded("circular", {0, 1, 2}, {0, 0, 1}));
}

/// Calls f(column (c kh kw), window, row, column of the padded image) for each tap of a 2 x 3 kernel, stride (1, 2), padding (1, 0), dilation (2, 1).
static void each_tap(int64_t channels, int64_t height, int64_t width, const std::function<void(int64_t c, int64_t at, int64_t l, int64_t h, int64_t w)>& f) {
  const int64_t rows = height + 2 - 2, columns = (width - 3) / 2 + 1;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 3; ++j)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t q = 0; q < columns; ++q) f(c, (c * 2 + i) * 3 + j, r * columns + q, r + 2 * i - 1, 2 * q + j);
}

static void sliding(Table& table) {
  CASE(unfold, unfold(x[0], {2, 3}, {.dilation = {2, 1}, .padding = {1, 0}, .stride = {1, 2}}))
      .of(kNumbers)
      .on("(2,3,4,5) | (0,3,4,5)")
      .expect([](const Arrays& x) {
        Array y({x[0].shape[0], 18, 8});
        for (int64_t n = 0; n < x[0].shape[0]; ++n)
          each_tap(3, 4, 5, [&](int64_t c, int64_t at, int64_t l, int64_t h, int64_t w) { y.at({n, at, l}) = h < 0 || h > 3 ? 0 : x[0].at({n, c, h, w}); });
        return y;
      });
  CASE(unfold, unfold(x[0], 2)).of(kBools | kFloats).on("(3,4,5)");
  CASE(fold, fold(x[0], {4, 5}, {2, 3}, {.dilation = {2, 1}, .padding = {1, 0}, .stride = {1, 2}}))
      .of(kNumbers)
      .within(8)
      .on("(2,18,8)")
      .expect([](const Arrays& x) {
        Array y({2, 3, 4, 5});
        for (int64_t n = 0; n < 2; ++n)
          each_tap(3, 4, 5, [&](int64_t c, int64_t at, int64_t l, int64_t h, int64_t w) {
            if (h >= 0 && h < 4) y.at({n, c, h, w}) += x[0].at({n, at, l});
          });
        return y;
      });
  CASE(fold, fold(x[0], 4, 2)).on("(8,9)");
}

/// Output i of n along an axis, as weights of the inputs.
using Weights = std::vector<double> (*)(int64_t i, int64_t in, int64_t out);
static double cubic(double d, double a) {
  d = std::abs(d);
  return d < 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1 : d < 2 ? a * (d * d * d - 5 * d * d + 8 * d - 4) : 0;
}
static std::vector<double> nearest(int64_t i, int64_t in, int64_t out) {
  std::vector<double> w(size_t(in), 0);
  return w[size_t(i * in / out)] = 1, w;
}
static std::vector<double> nearest_exact(int64_t i, int64_t in, int64_t out) {
  std::vector<double> w(size_t(in), 0);
  return w[size_t((2 * i + 1) * in / (2 * out))] = 1, w;
}
static std::vector<double> linear_at(double s, int64_t in) {
  std::vector<double> w(size_t(in), 0);
  s = std::clamp(s, 0.0, double(in - 1));
  for (int64_t j = 0; j < in; ++j) w[size_t(j)] = std::max(0.0, 1 - std::abs(s - double(j)));
  return w;
}
static std::vector<double> linear(int64_t i, int64_t in, int64_t out) { return linear_at((double(i) + 0.5) * double(in) / double(out) - 0.5, in); }
static std::vector<double> linear_corners(int64_t i, int64_t in, int64_t out) { return linear_at(double(i) * double(in - 1) / double(out - 1), in); }
static std::vector<double> cubic_taps(int64_t i, int64_t in, int64_t out) {
  std::vector<double> w(size_t(in), 0);
  const double s = (double(i) + 0.5) * double(in) / double(out) - 0.5;
  for (auto j = int64_t(std::floor(s)) - 1; j <= int64_t(std::floor(s)) + 2; ++j) w[size_t(std::clamp<int64_t>(j, 0, in - 1))] += cubic(s - double(j), -0.75);
  return w;
}
template <bool kCubic> static std::vector<double> filtered(int64_t i, int64_t in, int64_t out) {
  const double step = double(in) / double(out), stretch = std::max(step, 1.0), centre = (double(i) + 0.5) * step - 0.5;
  std::vector<double> w;
  double total = 0;
  for (int64_t j = 0; j < in; ++j) {
    const double d = (double(j) - centre) / stretch;
    w.push_back(kCubic ? cubic(d, -0.5) : std::max(0.0, 1 - std::abs(d))), total += w.back();
  }
  for (double& v : w) v /= total;
  return w;
}
static std::vector<double> area(int64_t i, int64_t in, int64_t out) {
  std::vector<double> w(size_t(in), 0);
  const int64_t first = i * in / out, last = ((i + 1) * in + out - 1) / out;
  for (int64_t j = first; j < last; ++j) w[size_t(j)] = 1 / double(last - first);
  return w;
}
static std::function<Array(const Arrays&)> resampled(Dims size, Weights weights) {
  return [=](const Arrays& x) {
    Array y = x[0];
    for (int64_t a = 0; a < size.size(); ++a) {
      Shape shape = y.shape;
      shape[2 + a] = size[a];
      y = make(shape, [&](Dims i) {
        const std::vector<double> w = weights(i[2 + a], y.shape[2 + a], size[a]);
        double s = 0;
        for (int64_t j = 0; j < y.shape[2 + a]; ++j) i[2 + a] = j, s += w[size_t(j)] == 0 ? 0 : w[size_t(j)] * y.at(i);
        return s;
      });
    }
    return y;
  };
}

static void resampling(Table& table) {
  const auto line = [](Case& c) -> Case& { return c.within(32).finite_only(); };
  line(CASE(interpolate, interpolate(x[0], {.size = {7, 2}}))).of(kNumbers).on("(2,3,4,5) | (0,3,4,5)").expect(resampled({7, 2}, nearest));
  line(CASE(interpolate, interpolate(x[0], {.scale_factor = {2}}))).of(kNumbers).on("(1,2,3)").perf("(16,64,784)").expect(resampled({6}, nearest));
  line(CASE(interpolate, interpolate(x[0], {.size = {3, 4, 6}, .mode = "nearest-exact"}))).on("(1,2,5,4,3)").expect(resampled({3, 4, 6}, nearest_exact));
  line(CASE(interpolate, interpolate(x[0], {.size = {7}, .mode = "linear", .align_corners = true}))).on("(2,3,4)").expect(resampled({7}, linear_corners));
  line(CASE(interpolate, interpolate(x[0], {.scale_factor = {2}, .mode = "bilinear"})))
      .on("(2,3,4,5)")
      .perf("(16,64,28,28)")
      .expect(resampled({8, 10}, linear));
  line(CASE(interpolate, interpolate(x[0], {.size = {3, 7}, .mode = "bicubic"}))).on("(1,2,4,5)").expect(resampled({3, 7}, cubic_taps));
  line(CASE(interpolate, interpolate(x[0], {.size = {3, 2, 4}, .mode = "trilinear"}))).on("(1,2,2,3,3)").expect(resampled({3, 2, 4}, linear));
  line(CASE(interpolate, interpolate(x[0], {.size = {2, 7}, .mode = "bilinear", .antialias = true})))
      .on("(1,2,5,5)")
      .expect(resampled({2, 7}, filtered<false>));
  line(CASE(interpolate, interpolate(x[0], {.size = {2, 7}, .mode = "bicubic", .antialias = true}))).on("(1,2,7,5)").expect(resampled({2, 7}, filtered<true>));
  line(CASE(interpolate, interpolate(x[0], {.size = {2, 7}, .mode = "area"}))).on("(1,2,5,5)").expect(resampled({2, 7}, area));
}

/// What lies at position p of plane (n, c), between elements linearly, zeros outside.
static double bilinear(const Array& x, int64_t n, int64_t c, const std::vector<double>& p) {
  double s = 0;
  Dims i = Dims::filled(int64_t(p.size()), 0), extent = i;
  for (int64_t d = 0; d < i.size(); ++d) extent[d] = x.shape[2 + d];
  do {
    double w = 1;
    Dims at = i;
    for (int64_t d = 0; d < i.size(); ++d) w *= std::max(0.0, 1 - std::abs(p[size_t(d)] - double(i[d])));
    at.insert(0, c), at.insert(0, n);
    s += w == 0 ? 0 : w * x.at(at);
  } while (next(i, extent));
  return s;
}
static Array sampled(const Array& x, const Array& grid, bool corners) {
  Shape shape = grid.shape;
  const int64_t axes = shape.back();
  shape.erase(shape.size() - 1), shape.insert(1, x.shape[1]);
  return make(shape, [&](const Dims& i) {
    std::vector<double> p;
    for (int64_t d = 0; d < axes; ++d) {
      Dims at = i;
      at.erase(1), at.push_back(axes - 1 - d);
      const double size = double(x.shape[2 + d]), g = grid.at(at) + 1;
      p.push_back(corners ? g * (size - 1) / 2 : (g * size - 1) / 2);
    }
    return bilinear(x, i[0], i[1], p);
  });
}

static void sampling(Table& table) {
  const Values outwards = {.low = -1.3, .high = 1.4};
  CASE(grid_sample, grid_sample(x[0], x[1]))
      .in({kAny, outwards})
      .within(64)
      .finite_only()
      .on("(2,3,4,5) (2,3,2,2) | (0,3,4,5) (0,3,2,2)")
      .EXPECT(sampled(x[0], x[1], false));
  CASE(grid_sample, grid_sample(x[0], x[1], {.align_corners = true}))
      .in({kAny, outwards})
      .within(64)
      .finite_only()
      .on("(1,2,3,2,4) (1,2,3,2,3)")
      .EXPECT(sampled(x[0], x[1], true));
  // Coordinates are rounded with their dtype, so that others than float64 may read other elements.
  const auto line = [](Case& c) -> Case& { return c.of(set_of({kFloat64})).in({kAny, Values{.low = -1.3, .high = 1.4}}).within(64).finite_only(); };
  line(CASE(grid_sample, grid_sample(x[0], x[1], {.mode = "nearest", .padding_mode = "reflection"}))).on("(2,3,4,5) (2,3,2,2)");
  line(CASE(grid_sample, grid_sample(x[0], x[1], {.mode = "bicubic", .padding_mode = "border"}))).on("(2,3,4,5) (2,3,2,2)");
  line(CASE(grid_sample, grid_sample(x[0], x[1], {.padding_mode = "reflection", .align_corners = true}))).on("(2,3,4,5) (2,3,2,2)");
  for (bool corners : {false, true})
    CASE(affine_grid, affine_grid(x[0], {2, 1, 3, 4}, corners)).within(16).finite_only().on("(2,2,3)").expect([=](const Arrays& x) {
      const auto centre = [&](int64_t i, int64_t n) { return corners ? 2 * double(i) / double(n - 1) - 1 : (2 * double(i) + 1) / double(n) - 1; };
      return make({2, 3, 4, 2}, [&](const Dims& i) {
        return x[0].at({i[0], i[3], 0}) * centre(i[2], 4) + x[0].at({i[0], i[3], 1}) * centre(i[1], 3) + x[0].at({i[0], i[3], 2});
      });
    });
  CASE(affine_grid, affine_grid(x[0], {1, 1, 2, 3, 1})).within(16).on("(1,3,4)");
}

/// Windows of adaptive pooling, their largest elements and where those are.
static Arrays largest_to(const Array& x, Shape to, bool indices) {
  Shape shape = x.shape;
  int64_t plane = 1;
  for (int64_t a = 0; a < to.size(); ++a) shape[2 + a] = to[a], plane *= x.shape[2 + a];
  const Array places = make(shape, [&](const Dims& i) {
    double best = -INFINITY;
    int64_t place = 0;
    Dims at = Dims::filled(to.size(), 0), extent = at;
    for (int64_t a = 0; a < to.size(); ++a) extent[a] = x.shape[2 + a];
    for (int64_t flat = 0; flat < plane; ++flat, next(at, extent)) {
      bool inside = true;
      for (int64_t a = 0; a < to.size(); ++a) inside &= at[a] >= i[2 + a] * extent[a] / to[a] && at[a] < ((i[2 + a] + 1) * extent[a] + to[a] - 1) / to[a];
      const double v = x.v[size_t((i[0] * x.shape[1] + i[1]) * plane + flat)];
      if (inside && (v > best || std::isnan(v))) best = v, place = flat;
    }
    return double(place);
  });
  const Array y = make(shape, [&](const Dims& i) { return x.v[size_t((i[0] * x.shape[1] + i[1]) * plane) + size_t(places.at(i))]; });
  return indices ? Arrays{y, places} : Arrays{y};
}

static void pooled(Table& table) {
  CASE(adaptive_max_pool1d, adaptive_max_pool1d(x[0], 3)).on("(2,3,7)").finite_only().EXPECT(largest_to(x[0], 3, false));
  CASE(adaptive_max_pool2d, adaptive_max_pool2d(x[0], {2, 3})).on("(2,3,5,4) | (0,3,5,4)").finite_only().EXPECT(largest_to(x[0], {2, 3}, false));
  CASE(adaptive_max_pool3d, adaptive_max_pool3d(x[0], 2)).on("(1,2,3,4,3)").finite_only().EXPECT(largest_to(x[0], {2, 2, 2}, false));
  CASE(adaptive_max_pool1d_with_indices, adaptive_max_pool1d_with_indices(x[0], 3)).on("(2,3,7)").finite_only().EXPECT(largest_to(x[0], 3, true));
  CASE(adaptive_max_pool2d_with_indices, adaptive_max_pool2d_with_indices(x[0], {2, 3})).on("(2,3,5,4)").finite_only().EXPECT(largest_to(x[0], {2, 3}, true));
  CASE(adaptive_max_pool3d_with_indices, adaptive_max_pool3d_with_indices(x[0], 2)).on("(1,2,3,4,3)").finite_only().EXPECT(largest_to(x[0], {2, 2, 2}, true));
  // Back from a pool with kernel 2: x where it is the largest of its window, else 0.
  const auto kept = [](const Arrays& x) {
    return make(x[0].shape, [&](const Dims& i) {
      Dims window = Dims::filled(i.size() - 2, 0);
      double best = -INFINITY;
      do {
        Dims at = i;
        for (int64_t a = 2; a < i.size(); ++a) at[a] = i[a] / 2 * 2 + window[a - 2];
        best = std::max(best, x[0].at(at));
      } while (next(window, Dims::filled(i.size() - 2, 2)));
      return x[0].at(i) == best ? best : 0;
    });
  };
  const auto line = [&](Case& c) -> Case& { return c.of(kFloats).finite_only().no_expand().expect(kept); };
  line(CASE(max_unpool1d, max_unpool1d(max_pool1d(x[0], 2), max_pool1d_with_indices(x[0], 2).second, 2))).on("(2,3,6)");
  line(CASE(max_unpool2d, max_unpool2d(max_pool2d(x[0], 2), max_pool2d_with_indices(x[0], 2).second, 2, {.output_size = {4, 6}}))).on("(2,3,4,6) | (0,3,4,6)");
  line(CASE(max_unpool3d, max_unpool3d(max_pool3d(x[0], 2), max_pool3d_with_indices(x[0], 2).second, 2))).on("(1,2,4,2,4)");
  // Places drawn so that the windows of an axis of 5 begin at 0, 1 (or 2), 3.
  const auto drawn = [](const Shape& shape) { return full(shape, 0.7, {.dtype = kFloat64}); };
  const auto steps = [](const Arrays& x, int64_t axes, bool indices) {
    const int64_t begins[] = {0, 1, 3};  // (i + 0.7) 1.5 rounded down, less 1.05 so: 0, 1; the last one ends with the axis
    Shape shape = x[0].shape;
    for (int64_t a = 0; a < axes; ++a) shape[2 + a] = 3;
    const auto best = [&, axes](const Dims& i) {
      Dims k = Dims::filled(axes, 0), most;
      do {
        Dims at = i;
        for (int64_t a = 0; a < axes; ++a) at[2 + a] = begins[i[2 + a]] + k[a];
        if (most.empty() || x[0].at(at) > x[0].at(most)) most = at;
      } while (next(k, Dims::filled(axes, 2)));
      return most;
    };
    Array y = make(shape, [&](const Dims&i) { return x[0].at(best(i)); }), places = make(shape, [&](const Dims&i) {
                                                                             int64_t place = 0;
                                                                             const Dims at = best(i);
                                                                             for (int64_t a = 0; a < axes; ++a) place = place * 5 + at[2 + a];
                                                                             return double(place);
                                                                           });
    return indices ? Arrays{y, places} : Arrays{y};
  };
  const auto fractional = [](Case& c) -> Case& { return c.finite_only(); };
  fractional(CASE(fractional_max_pool2d, fractional_max_pool2d(x[0], 2, {.output_size = 3, .random_samples = drawn({2, 3, 2}).to(x[0].device())})))
      .on("(2,3,5,5)")
      .EXPECT(steps(x, 2, false));
  fractional(CASE(fractional_max_pool3d, fractional_max_pool3d(x[0], 2, {.output_ratio = {0.6}, .random_samples = drawn({1, 2, 3}).to(x[0].device())})))
      .on("(1,2,5,5,5)")
      .EXPECT(steps(x, 3, false));
  fractional(CASE(fractional_max_pool2d_with_indices,
                  fractional_max_pool2d_with_indices(x[0], 2, {.output_size = 3, .random_samples = drawn({2, 3, 2}).to(x[0].device())})))
      .on("(2,3,5,5)")
      .EXPECT(steps(x, 2, true));
  fractional(CASE(fractional_max_pool3d_with_indices,
                  fractional_max_pool3d_with_indices(x[0], 2, {.output_size = 3, .random_samples = drawn({1, 2, 3}).to(x[0].device())})))
      .on("(1,2,5,5,5)")
      .EXPECT(steps(x, 3, true));
  CASE(fractional_max_pool2d, fractional_max_pool2d(x[0], {2, 3}, {.output_size = {2, 3}})).finite_only().on("(2,3,5,5) | (3,5,6) | (0,3,5,5)");
  const auto norms = [](Dims kernel, Dims stride, double p) {
    return [=](const Arrays& x) {
      Shape shape = x[0].shape;
      for (int64_t a = 0; a < kernel.size(); ++a) shape[2 + a] = (shape[2 + a] - kernel[a]) / stride[a] + 1;
      return make(shape, [&](const Dims& i) {
        Dims k = Dims::filled(kernel.size(), 0);
        double s = 0;
        do {
          Dims at = i;
          for (int64_t a = 0; a < kernel.size(); ++a) at[2 + a] = i[2 + a] * stride[a] + k[a];
          s += std::pow(x[0].at(at), p);
        } while (next(k, kernel));
        return std::pow(s, 1 / p);
      });
    };
  };
  CASE(lp_pool1d, lp_pool1d(x[0], 3, 2)).in({kPositive}).within(32).finite_only().on("(2,3,7)").expect(norms(2, 2, 3));
  CASE(lp_pool2d, lp_pool2d(x[0], 2, {2, 3}, {.stride = 1})).in({kPositive}).within(32).finite_only().on("(2,3,4,5)").expect(norms({2, 3}, {1, 1}, 2));
  CASE(lp_pool3d, lp_pool3d(x[0], 1.5, 2)).in({kPositive}).within(32).finite_only().on("(1,2,4,2,4)").expect(norms({2, 2, 2}, {2, 2, 2}, 1.5));
}

static void channels(Table& table) {
  CASE(channel_shuffle, channel_shuffle(x[0], 2)).of(kAll).on("(2,6,3) | (0,6,3)").expect([](const Arrays& x) {
    return make(x[0].shape, [&](Dims i) { return i[1] = i[1] % 2 * 3 + i[1] / 2, x[0].at(i); });
  });
  CASE(pixel_shuffle, pixel_shuffle(x[0], 2)).of(kAll).on("(2,8,3,2) | (0,4,3,2) | (4,1,2)").expect([](const Arrays& x) {
    Shape shape = x[0].shape;
    const int64_t c = shape.size() - 3;
    shape[c] /= 4, shape[c + 1] *= 2, shape[c + 2] *= 2;
    return make(shape, [&](Dims i) {
      i[c] = i[c] * 4 + i[c + 1] % 2 * 2 + i[c + 2] % 2, i[c + 1] /= 2, i[c + 2] /= 2;
      return x[0].at(i);
    });
  });
  CASE(pixel_shuffle, pixel_shuffle(x[0], 1)).on("(2,3,2,2)").expect([](const Arrays& x) { return x[0]; });
  CASE(pixel_unshuffle, pixel_unshuffle(x[0], 2)).of(kAll).on("(2,3,2,4)").expect([](const Arrays& x) {
    return make({2, 12, 1, 2}, [&](const Dims& i) { return x[0].at({i[0], i[1] / 4, i[2] * 2 + i[1] % 4 / 2, i[3] * 2 + i[1] % 2}); });
  });
  CASE(local_response_norm, local_response_norm(x[0], 3, {.alpha = 0.5, .k = 2})).within(32).finite_only().on("(2,4,3) | (0,4,3)").expect([](const Arrays& x) {
    return make(x[0].shape, [&](const Dims& i) {
      double s = 0;
      for (int64_t c = std::max<int64_t>(0, i[1] - 1); c < std::min<int64_t>(4, i[1] + 2); ++c) s += x[0].at({i[0], c, i[2]}) * x[0].at({i[0], c, i[2]});
      return x[0].at(i) / std::pow(2 + 0.5 * s / 3, 0.75);
    });
  });
}

void image_cases(Table& table) { padding(table), sliding(table), resampling(table), sampling(table), pooled(table), channels(table); }

}  // namespace op_cases
