#include "arrays.h"
#include "catch.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include <tapir/core/parallel.h>

using namespace tapir_tests;

namespace {

struct Case {
  int64_t n, c, o, groups;
  std::vector<int64_t> in, kernel, stride, padding, dilation;
};

/// A convolution by its definition, in double; coordinates are padded to three axes.
struct Reference {
  const Case& k;
  ConvParams p;
  std::vector<int64_t> out;

  explicit Reference(const Case& c) : k(c) {
    p.spatial = int64_t(c.in.size()), p.groups = c.groups;
    for (size_t d = 0; d < c.in.size(); ++d) {
      p.stride[d] = c.stride[d], p.padding[d] = c.padding[d], p.dilation[d] = c.dilation[d];
      out.push_back((c.in[d] + 2 * c.padding[d] - (c.kernel[d] - 1) * c.dilation[d] - 1) / c.stride[d] + 1);
    }
  }
  std::vector<int64_t> shape(int64_t a, int64_t b, const std::vector<int64_t>& rest) const {
    std::vector<int64_t> s{a, b};
    s.insert(s.end(), rest.begin(), rest.end());
    return s;
  }
  std::vector<int64_t> x() const { return shape(k.n, k.c, k.in); }
  std::vector<int64_t> w() const { return shape(k.o, k.c / k.groups, k.kernel); }
  std::vector<int64_t> y() const { return shape(k.n, k.o, out); }

  static int64_t offset(const Array& a, int64_t i, int64_t j, const int64_t* at) {
    int64_t sum = i * a.view.strides[0] + j * a.view.strides[1];
    for (int64_t d = 2; d < a.view.rank; ++d) sum += at[d - 2] * a.view.strides[d];
    return sum;
  }
  /// f(n, o, c, offsets in y, x, w) for each product of the convolution; offsets of the arrays given.
  template <class F> void each(const Array& xa, const Array& wa, const Array& ya, F&& f) const {
    const size_t axes = k.in.size();
    int64_t outs = 1, taps = 1;
    for (size_t d = 0; d < axes; ++d) outs *= out[d], taps *= k.kernel[d];
    for (int64_t n = 0; n < k.n; ++n)
      for (int64_t o = 0; o < k.o; ++o)
        for (int64_t i = 0; i < outs; ++i)
          for (int64_t t = 0; t < taps; ++t) {
            int64_t to[3] = {}, tap[3] = {}, from[3] = {}, left = i, rest = t;
            bool inside = true;
            for (size_t d = axes; d-- > 0;) {
              to[d] = left % out[d], left /= out[d], tap[d] = rest % k.kernel[d], rest /= k.kernel[d];
              from[d] = to[d] * k.stride[d] - k.padding[d] + tap[d] * k.dilation[d];
              inside = inside && from[d] >= 0 && from[d] < k.in[d];
            }
            const int64_t yi = offset(ya, n, o, to);
            int64_t xi = offset(xa, n, o / (k.o / k.groups) * (k.c / k.groups), from), wi = offset(wa, o, 0, tap);
            for (int64_t c = 0; inside && c < k.c / k.groups; ++c, xi += xa.view.strides[1], wi += wa.view.strides[1])
              f(xi, wi, yi, o);
          }
  }
};

/// Orders of the dimensions in memory: contiguous, channels last, and one that is neither.
std::vector<int> order(size_t rank, int kind) {
  std::vector<int> o;
  if (kind == 0)
    for (size_t d = 0; d < rank; ++d) o.push_back(int(d));
  else if (kind == 1) {
    o.push_back(0);
    for (size_t d = 2; d < rank; ++d) o.push_back(int(d));
    o.push_back(1);
  } else {
    for (size_t d = rank; d-- > 0;) o.push_back(int(d));
  }
  return o;
}

int64_t mismatches(const Array& a, const std::vector<double>& expected) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < a.count; ++i) {
    const double got = read(a.view.dtype, a.view.data, i), want = as_type(a.view.dtype, expected[size_t(i)]);
    wrong += !(std::abs(got - want) <= 1e-5 * std::abs(want));
  }
  return wrong;
}

void check_case(const Case& k, DType t, int x_order, int y_order, int w_order, bool with_bias) {
  const Reference r(k);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Array x(t, r.x(), order(r.x().size(), x_order)), y(t, r.y(), order(r.y().size(), y_order)),
      w(t, r.w(), order(r.w().size(), w_order));
  Array bias(t, {k.o});
  x.random(1, -2, 2), w.random(2, -1, 1), bias.random(3);
  CAPTURE(name_of(t), k.n, k.c, k.o, k.groups, k.in, k.kernel, k.stride, k.padding, k.dilation, x_order, y_order,
          w_order, with_bias);

  std::vector<double> ey(size_t(y.count), 0.0), ex(size_t(x.count), 0.0), ew(size_t(w.count), 0.0),
      eb(size_t(k.o), 0.0);
  std::vector<double> vx = x.values(), vy;
  const std::vector<double> vw = w.values(), vb = bias.values();
  y.fill(nan);
  r.each(x, w, y,
         [&](int64_t xi, int64_t wi, int64_t yi, int64_t) { ey[size_t(yi)] += vx[size_t(xi)] * vw[size_t(wi)]; });
  cpu_table().conv(
      cpu_context(),
      {.y = y.view, .x = x.view, .w = w.view, .bias = with_bias ? bias.view : TensorView(), .params = r.p});
  int64_t spatial = 1;
  for (const int64_t e : r.out) spatial *= e;
  for (int64_t i = 0; with_bias && i < k.n * k.o * spatial; ++i) {
    int64_t at[3] = {}, left = i % spatial;
    for (size_t d = r.out.size(); d-- > 0;) at[d] = left % r.out[d], left /= r.out[d];
    ey[size_t(Reference::offset(y, i / spatial / k.o, i / spatial % k.o, at))] += vb[size_t(i / spatial % k.o)];
  }
  CHECK(mismatches(y, ey) == 0);

  y.random(4, -1, 1);
  vy = y.values();
  x.fill(nan);
  r.each(x, w, y,
         [&](int64_t xi, int64_t wi, int64_t yi, int64_t) { ex[size_t(xi)] += vy[size_t(yi)] * vw[size_t(wi)]; });
  cpu_table().conv_backward_data(cpu_context(), {.dx = x.view, .dy = y.view, .w = w.view, .params = r.p});
  CHECK(mismatches(x, ex) == 0);

  x.random(5, -1, 1);
  vx = x.values();
  w.fill(nan), bias.fill(nan);
  r.each(x, w, y,
         [&](int64_t xi, int64_t wi, int64_t yi, int64_t) { ew[size_t(wi)] += vx[size_t(xi)] * vy[size_t(yi)]; });
  for (int64_t i = 0; i < k.n * k.o * spatial; ++i) {
    int64_t at[3] = {}, left = i % spatial;
    for (size_t d = r.out.size(); d-- > 0;) at[d] = left % r.out[d], left /= r.out[d];
    eb[size_t(i / spatial % k.o)] += vy[size_t(Reference::offset(y, i / spatial / k.o, i / spatial % k.o, at))];
  }
  cpu_table().conv_backward_weight(
      cpu_context(),
      {.dw = w.view, .dbias = with_bias ? bias.view : TensorView(), .dy = y.view, .x = x.view, .params = r.p});
  CHECK(mismatches(w, ew) == 0);
  if (with_bias) CHECK(mismatches(bias, eb) == 0);
}

const Case cases[] = {
    {2, 1, 4, 1, {9, 9}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
    {2, 1, 32, 1, {12, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 16, 1, {11, 13}, {5, 3}, {2, 2}, {2, 1}, {1, 1}},
    {1, 32, 64, 1, {8, 9}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
    {2, 16, 33, 1, {7, 6}, {3, 3}, {1, 2}, {1, 2}, {1, 2}},
    {2, 8, 12, 4, {8, 8}, {3, 3}, {2, 1}, {1, 1}, {1, 1}},
    {2, 16, 16, 16, {8, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {3, 20, 24, 1, {6, 6}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 20, 24, 1, {7, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
    {2, 5, 7, 1, {20}, {4}, {3}, {2}, {2}},
    {1, 16, 16, 1, {33}, {3}, {1}, {1}, {1}},
    {2, 3, 4, 1, {5, 6, 7}, {2, 3, 2}, {1, 2, 1}, {1, 1, 0}, {2, 1, 1}},
    {1, 4, 6, 2, {4, 4, 5}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {1, 2, 2, 1, {3, 3}, {3, 3}, {2, 2}, {4, 4}, {1, 1}},  // windows that lie wholly in the padding
    {2, 16, 24, 1, {8, 9}, {3, 5}, {1, 1}, {1, 2}, {1, 1}},
    {1, 18, 16, 1, {9, 8}, {3, 3}, {1, 1}, {2, 2}, {2, 2}},
    {40, 2, 6, 1, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
};

}  // namespace

TEST_CASE("conv: float32 and float64, groups, strides, padding, dilation, 1 to 3 axes, every layout", "[isa]") {
  for (const Case& k : cases)
    for (int form = 0; form < 9; ++form)
      for (const DType t : {kFloat32, kFloat64}) check_case(k, t, form % 3, form / 3, form % 2, form % 4 < 2);
}

TEST_CASE("conv: many channels on small planes", "[isa]") {
  const Case small[] = {
      {9, 128, 144, 1, {4, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {16, 128, 128, 1, {5, 6}, {3, 2}, {2, 2}, {1, 0}, {1, 1}},
      {30, 128, 128, 1, {5}, {3}, {1}, {2}, {2}},
      {33, 144, 128, 1, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {33, 128, 128, 1, {3, 4}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
  };
  for (const Case& k : small)
    for (int w_order : {0, 1}) check_case(k, kFloat32, 1, 1, w_order, w_order == 0);
}

TEST_CASE("conv: single points with strides of few channels, also by oneDNN for AVX2, write nothing but their result",
          "[isa]") {
  if (!std::getenv("ONEDNN_MAX_CPU_ISA"))
    CHECK(run_alone("ONEDNN_MAX_CPU_ISA=AVX2 MALLOC_CHECK_=3 timeout -s KILL 60", "conv: single points with*") == 0);
  for (const int64_t channels : {1, 3, 4, 7, 8, 12})
    for (int form = 0; form < 9; ++form)
      check_case({2, channels, 8, 1, {16, 15}, {1, 1}, {2, 3}, {0, 0}, {1, 1}}, kFloat32, form % 3, form / 3, form % 2,
                 form % 4 < 2);
}

TEST_CASE("conv: 16-bit floats", "[isa]") {  // BI-099
  for (const Case& k : cases)
    for (int form = 0; form < 2; ++form)
      for (const DType t : {kFloat16, kBFloat16}) check_case(k, t, form, form, form, form == 0);
}

TEST_CASE("review 1: convolutions with extents of 1, whose strides say nothing", "[isa]") {
  const Case lone[] = {
      {1, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},     // nothing else
      {1, 1, 16, 1, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    // one channel in
      {1, 16, 1, 1, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    // one channel out
      {3, 1, 16, 1, {1, 9}, {1, 3}, {1, 1}, {0, 1}, {1, 1}},    // one row
      {3, 16, 1, 1, {9, 1}, {3, 1}, {1, 1}, {1, 0}, {1, 1}},    // one column
      {1, 16, 32, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},   // one pixel
      {5, 32, 16, 1, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},   // one pixel within padding
      {1, 24, 17, 1, {6, 7}, {6, 7}, {1, 1}, {0, 0}, {1, 1}},   // one pixel out: a product
      {1, 48, 17, 1, {70}, {1}, {1}, {0}, {1}},                 // a product
      {1, 70, 1, 1, {48}, {1}, {1}, {0}, {1}},                  // with one row
      {2, 1, 1, 1, {40}, {5}, {2}, {1}, {1}},                   // one channel, in and out
      {1, 16, 16, 16, {1, 1}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},  // depthwise, one pixel
      {2, 16, 16, 16, {9, 1}, {3, 1}, {2, 1}, {1, 0}, {1, 1}},  // depthwise, one column
      {1, 3, 6, 3, {8, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},     // groups of one channel
      {2, 16, 2, 2, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},    // groups with one output each
      {1, 1, 8, 1, {4, 1, 5}, {2, 1, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
      {2, 8, 1, 1, {1, 4, 1}, {1, 3, 1}, {1, 1, 1}, {0, 1, 0}, {1, 1, 1}},
  };
  for (const Case& k : lone)
    for (int form = 0; form < 9; ++form)
      for (const DType t : {kFloat32, kBFloat16}) check_case(k, t, form % 3, form / 3, form % 2, form % 4 < 2);
}

TEST_CASE("conv: zero sizes", "[isa]") {  // BI-103, BI-104
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    check_case({0, 3, 4, 1, {8, 8}, {3, 3}, {1, 1}, {0, 0}, {1, 1}}, t, 0, 0, 0, true);
    check_case({2, 0, 4, 1, {8, 8}, {3, 3}, {1, 1}, {0, 0}, {1, 1}}, t, 0, 0, 0, true);
    check_case({2, 3, 0, 1, {8, 8}, {3, 3}, {1, 1}, {0, 0}, {1, 1}}, t, 0, 0, 0, true);
    check_case({2, 3, 4, 1, {0, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, t, 0, 0, 0, true);
  }
}

TEST_CASE("conv: an expanded input and a sliced weight", "[isa]") {
  const Case k{2, 4, 6, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  const Reference r(k);
  for (const DType t : {kFloat32, kFloat64}) {
    Array x(t, r.x(), {}, {0, 1}), w(t, r.w(), {}, {}, 2), y(t, r.y(), {}, {}, 1);
    x.random(1), w.random(2);
    std::vector<double> expected(size_t(y.count), 0.0);
    y.fill(0);
    r.each(x, w, y, [&](int64_t xi, int64_t wi, int64_t yi, int64_t) {
      expected[size_t(yi)] += read(t, x.view.data, xi) * read(t, w.view.data, wi);
    });
    cpu_table().conv(cpu_context(), {.y = y.view, .x = x.view, .w = w.view, .params = r.p});
    CHECK(mismatches(y, expected) == 0);
  }
}

TEST_CASE("conv: integers are exact, beyond what a double holds", "[isa]") {
  Array x(kInt64, {1, 1, 2, 2}), w(kInt64, {1, 1, 2, 2}), y(kInt64, {1, 1, 1, 1});
  int64_t *xs = x.view.as<int64_t>(), *ws = w.view.as<int64_t>();
  for (int i = 0; i < 4; ++i) xs[i] = (int64_t(1) << 53) + i, ws[i] = 1;
  cpu_table().conv(cpu_context(), {.y = y.view, .x = x.view, .w = w.view, .params = {}});
  CHECK(y.view.as<int64_t>()[0] == (int64_t(1) << 55) + 6);
  Array truth(kBool, {1, 1, 2, 2});
  CHECK_THROWS_AS(cpu_table().conv(cpu_context(), {.y = truth.view, .x = truth.view, .w = truth.view, .params = {}}),
                  ValueError);
}

TEST_CASE("dilated weight gradients in bfloat16 take in nothing that lies behind the images", "[isa]") {
  manual_seed(1);
  for (const int64_t groups : {1, 2})
    for (const auto& [c, o, k, dilation] :
         {std::tuple(24, 48, 3, 3), std::tuple(40, 48, 2, 2), std::tuple(20, 3, 7, 2)}) {
      INFO(c << " " << o << " " << k << " " << dilation);
      const Tensor memory = full({3, 30, 30, c * groups + 1}, INFINITY, {.dtype = kBFloat16});
      const Tensor x =
          memory.view({-1}).narrow(0, 0, 3 * 900 * c * groups).view({3, 30, 30, c * groups}).permute({0, 3, 1, 2});
      x.copy_(randn(x.shape()));
      const ConvOptions options{.padding = k / 2, .dilation = dilation, .groups = groups};
      const Tensor w = randn({o * groups, c, k, k}).to(kBFloat16).requires_grad_(true);
      const Tensor wide = w.detach().to(kFloat64).requires_grad_(true);
      const Tensor y = conv2d(x, w, {}, options), dy = randn_like(y).contiguous(kChannelsLast);
      y.backward(dy);
      conv2d(x.to(kFloat64), wide, {}, options).backward(dy.to(kFloat64));
      const Tensor error = max(abs(w.grad().to(kFloat64) - wide.grad()));
      CHECK(error.item<double>() < 0.01 * max(abs(wide.grad())).item<double>());
    }
}

TEST_CASE("a stride that nothing uses may be any") {
  for (const int64_t stride : {int64_t(1), int64_t(2147483647), int64_t(1) << 40})
    CHECK(equal(conv1d(ones({1, 1, 1}), ones({1, 1, 9}), {}, {.stride = stride, .padding = 4}), ones({1, 1, 1})));
}
