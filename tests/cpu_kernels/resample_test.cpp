#include <tapir/core/resample.h>
#include <cmath>
#include <limits>

#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

struct Resampling {
  std::vector<int64_t> in, out;
  ResampleParams p;
  std::vector<ResampleAxis> axes;

  Resampling(ResampleOp op, std::vector<int64_t> from, std::vector<int64_t> to, bool align = false,
             std::vector<double> scale = {})
      : in(std::move(from)), out(std::move(to)), p{.op = op, .spatial = int64_t(in.size()), .align_corners = align} {
    for (size_t d = 0; d < scale.size(); ++d) p.scale[d] = scale[d];
    for (size_t d = 0; d < in.size(); ++d) axes.emplace_back(p, int64_t(d), in[d], out[d]);
  }
  static std::vector<int64_t> shape(int64_t n, int64_t c, const std::vector<int64_t>& spatial) {
    std::vector<int64_t> s{n, c};
    s.insert(s.end(), spatial.begin(), spatial.end());
    return s;
  }
  /// f(place in x, weight) for the taps of a place of y.
  template <class F> void each(const Place& at, size_t d, Place from, double weight, F&& f) const {
    if (d == in.size()) return f(from, weight);
    axes[d].each_tap(at[d + 2], [&](int64_t, int64_t place, double w) {
      Place next = from;
      next[d + 2] = place;
      if (w != 0) each(at, d + 1, next, weight * w, f);
    });
  }
};

/// order: 0 contiguous, 1 channels last, 2 channels last with gaps, 3 spatial axes first.
std::vector<int> order(size_t rank, int kind) {
  std::vector<int> o;
  for (size_t d = 2; d < rank; ++d) o.push_back(int(d));
  if (kind == 0) o.insert(o.begin(), {0, 1});
  if (kind == 1 || kind == 2) o.insert(o.begin(), 0), o.push_back(1);
  if (kind == 3) o.push_back(1), o.push_back(0);
  return o;
}

int64_t differences(const Array& got, const std::vector<double>& want, double tolerance) {
  int64_t wrong = 0, i = 0;
  for_places(got.view.shape(), [&](const Place& at) {
    const double value = want[size_t(i++)];
    wrong += !(std::abs(get(got, at) - value) <= tolerance * std::max(1.0, std::abs(value)));
  });
  return wrong;
}

void compare(const Resampling& r, DType t, int kind, int64_t n, int64_t c) {
  CAPTURE(int(r.p.op), r.in, r.out, r.p.align_corners, name_of(t), kind, n, c);
  const auto xs = Resampling::shape(n, c, r.in), ys = Resampling::shape(n, c, r.out);
  const auto o = order(xs.size(), kind);
  const std::vector<int> none;
  const int64_t gap = kind == 2 ? 1 : 0;
  Array x(t, xs, o, none, gap), y(t, ys, o, none, gap), dx(t, xs, o, none, gap), dy(t, ys, o, none, gap);
  x.random(1, is_floating(t) ? -5 : 0, 5), dy.random(2), y.fill(1);
  dx.fill(std::numeric_limits<double>::quiet_NaN());
  std::vector<double> want;
  Array sums(kFloat64, xs);
  sums.fill(0);
  for_places(y.view.shape(), [&](const Place& at) {
    double sum = 0;
    r.each(at, 0, at, 1, [&](const Place& from, double w) {
      sum += w * get(x, from);
      put(sums, from, get(sums, from) + w * get(dy, at));
    });
    want.push_back(sum);
  });
  const double tolerance = t == kFloat64 ? 1e-12 : t == kFloat32 ? 2e-5 : t == kFloat16 ? 2e-3 : 2e-2;
  cpu_table().resample(cpu_context(), {y.view, x.view, r.p});
  CHECK(differences(y, want, tolerance) == 0);
  if (!is_floating(t)) return;
  std::vector<double> gradient;
  for_places(x.view.shape(), [&](const Place& at) { gradient.push_back(get(sums, at)); });
  cpu_table().resample_backward(cpu_context(), {dx.view, dy.view, r.p});
  CHECK(differences(dx, gradient, tolerance) == 0);
}

constexpr ResampleOp all_ops[] = {ResampleOp::Nearest, ResampleOp::NearestExact,   ResampleOp::Linear,
                                  ResampleOp::Cubic,   ResampleOp::FilteredLinear, ResampleOp::FilteredCubic};

}  // namespace

TEST_CASE("resample: every operation on every layout, and its transposed map") {
  for (const ResampleOp op : all_ops)
    for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16})
      for (int kind = 0; kind < 4; ++kind) {
        compare({op, {5, 7}, {10, 14}}, t, kind, 2, 3);
        compare({op, {9, 33}, {4, 6}}, t, kind, 1, 9);
        compare({op, {6}, {11}}, t, kind, 2, 17);
        compare({op, {3, 4, 5}, {7, 2, 8}}, t, kind, 1, 8);
      }
}

TEST_CASE("resample: scales that the sizes do not say, corners that stay, extents of 1, large steps") {
  for (const ResampleOp op : all_ops) {
    compare({op, {10, 10}, {23, 7}, false, {2.37, 0.79}}, kFloat32, 0, 1, 2);
    compare({op, {1, 6}, {5, 1}}, kFloat32, 0, 2, 2);
    compare({op, {1, 1}, {1, 1}}, kFloat32, 1, 2, 9);
    compare({op, {200}, {3}}, kFloat64, 0, 1, 2);
    compare({op, {2}, {300}}, kFloat64, 0, 1, 2);
    compare({op, {2, 3}, {40, 50}}, kFloat32, 1, 1, 16);
  }
  for (const ResampleOp op : {ResampleOp::Linear, ResampleOp::Cubic}) {
    compare({op, {5, 7}, {9, 4}, true}, kFloat32, 0, 2, 3);
    compare({op, {5, 7}, {1, 20}, true}, kFloat32, 1, 2, 16);
  }
}

TEST_CASE("resample: the nearest moves any dtype") {
  for (const DType t : all_dtypes)
    for (int kind = 0; kind < 4; ++kind) {
      compare({ResampleOp::Nearest, {4, 5}, {9, 10}}, t, kind, 2, 9);
      compare({ResampleOp::NearestExact, {4, 5}, {3, 2}}, t, kind, 2, 3);
    }
}

TEST_CASE("resample: the same for any number of threads, and infinities stay where they are read") {
  const int before = get_num_threads();
  Array x(kFloat32, {2, 16, 40, 40}), one(kFloat32, {2, 16, 80, 60}), many(kFloat32, {2, 16, 80, 60});
  x.random(3);
  x.set(std::numeric_limits<double>::infinity(), 1, 2, 7, 20);
  const ResampleParams p{.op = ResampleOp::Linear};
  set_num_threads(1);
  cpu_table().resample(cpu_context(), {one.view, x.view, p});
  set_num_threads(4);
  cpu_table().resample(cpu_context(), {many.view, x.view, p});
  set_num_threads(before);
  CHECK(one.bytes == many.bytes);
  CHECK(std::isinf(many(1, 2, 15, 30)));
  CHECK(std::isfinite(many(1, 2, 12, 30)));
}
