#include "arrays.h"
#include "catch.h"

#include <cmath>
#include <limits>

using namespace tapir_tests;

namespace {

struct Case {
  int64_t n, c;
  std::vector<int64_t> in, kernel, stride, padding, dilation;
  bool ceil_mode = false;
};

int64_t output_size(const Case& k, size_t d, int64_t dilation) {
  const int64_t reach = dilation * (k.kernel[d] - 1) + 1, room = k.in[d] + 2 * k.padding[d] - reach;
  int64_t out = (room + (k.ceil_mode ? k.stride[d] - 1 : 0)) / k.stride[d] + 1;
  if (k.ceil_mode && (out - 1) * k.stride[d] >= k.in[d] + k.padding[d]) --out;
  return out;
}
std::vector<int> order(size_t rank, int kind) {
  std::vector<int> o{0};
  if (kind != 1) o.push_back(1);
  for (size_t d = 2; d < rank; ++d) o.push_back(int(d));
  if (kind == 1) o.push_back(1);
  if (kind == 2) std::swap(o[0], o.back());
  return o;
}
int64_t offset(const TensorView& v, int64_t n, int64_t c, const std::vector<int64_t>& at) {
  int64_t sum = n * v.strides[0] + c * v.strides[1];
  for (size_t d = 0; d < at.size(); ++d) sum += at[d] * v.strides[d + 2];
  return sum;
}
/// f(position) for all positions of a box, row-major.
template <class F> void each(const std::vector<int64_t>& extents, F&& f) {
  int64_t total = 1;
  for (const int64_t e : extents) total *= e;
  std::vector<int64_t> at(extents.size());
  for (int64_t i = 0; i < total; ++i) {
    int64_t left = i;
    for (size_t d = extents.size(); d-- > 0;) at[d] = left % extents[d], left /= extents[d];
    f(at);
  }
}

struct Pooling {
  Case k;
  PoolOp op;
  DType t;
  PoolParams p;
  std::vector<int64_t> out;
  Array x, y, dx, dy, indices;

  /// `gradient_kind`: the order of dy, where it is another.
  Pooling(const Case& c, PoolOp o, DType type, int kind, std::vector<int64_t> adaptive = {}, int gradient_kind = -1)
      : k(c), op(o), t(type) {
    p.op = op, p.spatial = int64_t(k.in.size()), p.ceil_mode = k.ceil_mode;
    std::vector<int64_t> xs{k.n, k.c}, ys{k.n, k.c};
    for (size_t d = 0; d < k.in.size(); ++d) {
      p.kernel[d] = k.kernel[d], p.stride[d] = k.stride[d], p.padding[d] = k.padding[d],
      p.dilation[d] = op == PoolOp::Max ? k.dilation[d] : 1;
      out.push_back(op == PoolOp::AdaptiveAvg ? adaptive[d] : output_size(k, d, p.dilation[d]));
      xs.push_back(k.in[d]), ys.push_back(out[d]);
    }
    const auto o4 = order(xs.size(), kind);
    x = Array(t, xs, o4), dx = Array(t, xs, o4), y = Array(t, ys, o4),
    dy = Array(t, ys, gradient_kind < 0 ? o4 : order(xs.size(), gradient_kind)), indices = Array(kInt64, ys, o4);
    x.random(1, -50, 50), dy.random(2, -3, 3);
  }

  /// The window of an output position along axis d: its elements, and how many count for the mean with padding.
  std::vector<int64_t> window(size_t d, int64_t o, int64_t& extent) const {
    std::vector<int64_t> at;
    if (op == PoolOp::AdaptiveAvg) {
      for (int64_t i = o * k.in[d] / out[d]; i < ((o + 1) * k.in[d] + out[d] - 1) / out[d]; ++i) at.push_back(i);
      extent = int64_t(at.size());
      return at;
    }
    const int64_t start = o * k.stride[d] - k.padding[d];
    extent = std::min(start + k.kernel[d], k.in[d] + k.padding[d]) - start;
    for (int64_t i = 0; i < k.kernel[d]; ++i)
      if (const int64_t q = start + i * p.dilation[d]; q >= 0 && q < k.in[d]) at.push_back(q);
    return at;
  }

  void check() {
    CAPTURE(int(op), name_of(t), k.n, k.c, k.in, k.kernel, k.stride, k.padding, k.dilation, k.ceil_mode,
            p.count_include_pad, p.divisor, out);
    std::vector<double> ex(size_t(x.count), 0.0);
    int64_t wrong = 0;
    const bool floats = is_floating(t);
    cpu_table().pool(
        cpu_context(),
        {.y = y.view, .indices = op == PoolOp::Max ? indices.view : TensorView(), .x = x.view, .params = p});
    for (int64_t n = 0; n < k.n; ++n)
      for (int64_t c = 0; c < k.c; ++c)
        each(out, [&](const std::vector<int64_t>& o) {
          std::vector<std::vector<int64_t>> spans;
          std::vector<int64_t> extents;
          int64_t padded = 1, count = 1, best_index = -1;
          for (size_t d = 0; d < o.size(); ++d) {
            int64_t extent = 0;
            spans.push_back(window(d, o[d], extent));
            extents.push_back(int64_t(spans[d].size()));
            padded *= extent, count *= extents[d];
          }
          double best = -std::numeric_limits<double>::infinity(), sum = 0;
          const double divisor = p.divisor ? double(p.divisor) : double(p.count_include_pad ? padded : count),
                       g = read(t, dy.view.data, offset(dy.view, n, c, o));
          each(extents, [&](const std::vector<int64_t>& w) {
            std::vector<int64_t> at;
            int64_t flat = 0;
            for (size_t d = 0; d < w.size(); ++d) at.push_back(spans[d][size_t(w[d])]), flat = flat * k.in[d] + at[d];
            const double v = read(t, x.view.data, offset(x.view, n, c, at));
            sum += v;
            if (v > best || std::isnan(v) || best_index < 0) best = v, best_index = flat;
            if (op != PoolOp::Max) ex[size_t(offset(dx.view, n, c, at))] += g / divisor;
          });
          const double got = read(t, y.view.data, offset(y.view, n, c, o));
          if (op == PoolOp::Max) {
            wrong += !(got == best || (std::isnan(got) && std::isnan(best)));
            wrong += read(kInt64, indices.view.data, offset(indices.view, n, c, o)) != double(best_index);
            std::vector<int64_t> at(o.size());
            for (size_t d = o.size(); d-- > 0;) at[d] = best_index % k.in[d], best_index /= k.in[d];
            ex[size_t(offset(dx.view, n, c, at))] += g;
          } else {
            wrong += !(std::abs(got - sum / divisor) <= tolerance() * std::max(1.0, std::abs(sum / divisor)));
          }
        });
    CHECK(wrong == 0);
    if (!floats) return;
    dx.fill(std::numeric_limits<double>::quiet_NaN());
    cpu_table().pool_backward(
        cpu_context(),
        {.dx = dx.view, .dy = dy.view, .indices = op == PoolOp::Max ? indices.view : TensorView(), .params = p});
    for (int64_t i = 0; i < dx.count; ++i)
      wrong +=
          !(std::abs(read(t, dx.view.data, i) - ex[size_t(i)]) <= tolerance() * std::max(1.0, std::abs(ex[size_t(i)])));
    CHECK(wrong == 0);
  }
  double tolerance() const { return t == kFloat64 ? 1e-12 : t == kFloat32 ? 1e-5 : t == kFloat16 ? 1e-3 : 8e-3; }
};

const Case cases[] = {
    {2, 3, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {2, 70, {9, 7}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {1, 5, {11, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 64, {10, 9}, {3, 2}, {1, 3}, {1, 1}, {1, 1}},
    {1, 4, {11, 13}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
    {1, 4, {12, 14}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, true},
    {1, 3, {7, 7}, {2, 2}, {3, 3}, {1, 1}, {1, 1}, true},
    {2, 3, {13, 12}, {3, 2}, {2, 1}, {1, 1}, {2, 3}},
    {2, 3, {21}, {4}, {3}, {2}, {1}},
    {1, 2, {200}, {2}, {2}, {0}, {1}},
    {2, 3, {9, 75}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {1, 2, {4, 90}, {2, 3}, {1, 1}, {1, 1}, {1, 2}},
    {1, 2, {5, 80}, {2, 3}, {2, 3}, {0, 1}, {1, 1}, true},
    {1, 3, {60}, {20}, {3}, {7}, {1}},
    {1, 1, {300, 8}, {8, 8}, {1, 1}, {4, 4}, {1, 1}},  // short rows, too many to list what they read
    {1, 2, {19, 18}, {19, 18}, {1, 1}, {0, 0}, {1, 1}},
    {1, 2, {40, 37}, {21, 20}, {19, 17}, {1, 1}, {1, 1}},
    {1, 2, {5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, {1, 1, 1}},
    {1, 66, {4, 4, 5}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}},
};
const Case &deep = std::end(cases)[-2], &wide_and_deep = std::end(cases)[-1];
const DType floats[] = {kFloat32, kFloat64, kFloat16, kBFloat16};

}  // namespace

TEST_CASE("pool: max, indices and gradient, every layout") {
  for (const Case& k : cases)
    for (int kind = 0; kind < 3; ++kind)
      for (const DType t : floats) Pooling(k, PoolOp::Max, t, kind).check();
}

TEST_CASE("pool: gradients of channels-last planes that come in another order") {
  for (const DType t : floats)
    for (int kind : {0, 2})
      for (const Case& k : {cases[1], cases[3], cases[7], wide_and_deep}) {
        Pooling(k, PoolOp::Max, t, 1, {}, kind).check();
        Pooling(k, PoolOp::Avg, t, 1, {}, kind).check();
      }
}

TEST_CASE("pool: max of integers") {
  for (const DType t : {kInt64, kInt32, kInt16, kInt8})
    for (int kind = 0; kind < 2; ++kind) Pooling(cases[2], PoolOp::Max, t, kind).check();
}

TEST_CASE("pool: mean with and without padding, with a divisor") {
  for (const Case& k : cases)
    for (int kind = 0; kind < 3; ++kind)
      for (const DType t : floats)
        for (int form = 0; form < 3; ++form) {
          Pooling pooling(k, PoolOp::Avg, t, kind);
          pooling.p.count_include_pad = form != 1, pooling.p.divisor = form == 2 ? 3 : 0;
          pooling.check();
        }
}

TEST_CASE("pool: adaptive mean") {
  for (int kind = 0; kind < 3; ++kind)
    for (const DType t : floats) {
      for (const auto& out : {std::vector<int64_t>{1, 1}, {3, 5}, {10, 9}, {12, 13}})
        Pooling(cases[3], PoolOp::AdaptiveAvg, t, kind, out).check();
      Pooling(cases[8], PoolOp::AdaptiveAvg, t, kind, {5}).check();
      Pooling(deep, PoolOp::AdaptiveAvg, t, kind, {2, 4, 3}).check();
    }
}

TEST_CASE("pool: NaN wins and minus infinity is found") {
  for (const DType t : floats)
    for (int kind = 0; kind < 2; ++kind) {
      Pooling pooling(cases[2], PoolOp::Max, t, kind);
      pooling.x.random(3, 0, 1);
      for (int64_t i = 0; i < pooling.x.count; ++i)
        if (i % 11 == 0) write(t, pooling.x.view.data, i, std::numeric_limits<double>::quiet_NaN());
      pooling.check();
      pooling.x.fill(-std::numeric_limits<double>::infinity());
      pooling.check();
    }
}

TEST_CASE("pool: windows of padding alone are minus infinity, without a place") {
  for (const DType t : {kFloat32, kBFloat16, kInt32})
    for (const int64_t width : {8, 40}) {
      Pooling pooling({1, 2, {1, width}, {2, 1}, {1, 1}, {1, 0}, {2, 1}}, PoolOp::Max, t, 0);
      cpu_table().pool(
          cpu_context(),
          {.y = pooling.y.view, .indices = pooling.indices.view, .x = pooling.x.view, .params = pooling.p});
      for (int64_t i = 0; i < pooling.y.count; ++i) {
        const double none = t == kInt32 ? double(INT32_MIN) : -std::numeric_limits<double>::infinity();
        CHECK(read(t, pooling.y.view.data, i) == none);
        CHECK(read(kInt64, pooling.indices.view.data, i) == -1);
      }
    }
}

TEST_CASE("pool: sums of narrow integers do not overflow") {
  for (const DType t : {kInt8, kUInt8, kInt16})
    for (const int64_t width : {16, 300}) {
      Pooling pooling({1, 3, {16, width}, {16, 16}, {16, 16}, {0, 0}, {1, 1}}, PoolOp::Avg, t, 0);
      pooling.x.fill(100);
      cpu_table().pool(cpu_context(), {.y = pooling.y.view, .x = pooling.x.view, .params = pooling.p});
      for (int64_t i = 0; i < pooling.y.count; ++i) CHECK(read(t, pooling.y.view.data, i) == 100);
    }
}

TEST_CASE("pool: an empty batch, no channels") {  // BI-105
  for (const PoolOp op : {PoolOp::Max, PoolOp::Avg}) {
    Pooling(Case{0, 3, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}}, op, kFloat32, 0).check();
    Pooling(Case{2, 0, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}}, op, kFloat32, 0).check();
  }
}

TEST_CASE("pool: the mean of integers is rounded towards zero") {
  Pooling pooling(cases[0], PoolOp::Avg, kInt64, 0);
  pooling.x.fill(-7);
  cpu_table().pool(cpu_context(), {.y = pooling.y.view, .x = pooling.x.view, .params = pooling.p});
  for (int64_t i = 0; i < pooling.y.count; ++i) {
    const double got = read(kInt64, pooling.y.view.data, i);
    CHECK((got <= 0 && got >= -7));
    CHECK(got == std::trunc(got));
  }
}
