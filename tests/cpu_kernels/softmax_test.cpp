#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

std::vector<double> naive_softmax(const Array& x, int64_t dim, bool log) {
  std::vector<double> y;
  const int64_t n = x.view.rank ? x.view.sizes[dim] : 1;
  for_places(x.view.shape(), [&](const Place& at) {
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; ++i) top = std::max(top, get(x, with(at, dim, i)));
    for (int64_t i = 0; i < n; ++i) sum += std::exp(get(x, with(at, dim, i)) - top);
    y.push_back(log ? get(x, at) - top - std::log(sum) : std::exp(get(x, at) - top) / sum);
  });
  return y;
}
std::vector<double> naive_grad(const Array& dy, const Array& y, int64_t dim, bool log) {
  std::vector<double> dx;
  const int64_t n = y.view.rank ? y.view.sizes[dim] : 1;
  for_places(y.view.shape(), [&](const Place& at) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += get(dy, with(at, dim, i)) * (log ? 1 : get(y, with(at, dim, i)));
    dx.push_back(log ? get(dy, at) - std::exp(get(y, at)) * sum : (get(dy, at) - sum) * get(y, at));
  });
  return dx;
}

struct Case {
  std::vector<int64_t> shape;
  std::vector<int> order;
  int64_t gap;
};
const Case cases[] = {{{3, 5, 7}, {0, 1, 2}, 0},
                      {{3, 5, 7}, {2, 0, 1}, 0},
                      {{2, 40, 9}, {0, 1, 2}, 2},
                      {{40, 3, 70}, {0, 2, 1}, 0},
                      {{70, 10}, {0, 1}, 0},
                      {{3, 100}, {0, 1}, 1},
                      {{100}, {0}, 0},
                      {{}, {}, 0},
                      {{2, 0, 3}, {0, 1, 2}, 0}};

}  // namespace

TEST_CASE("softmax and log_softmax: every float, dimension and layout; their gradients") {
  for (DType t : float_dtypes)
    for (const Case& c : cases)
      for (bool log : {false, true})
        for (int64_t dim = 0; dim < std::max<int64_t>(1, int64_t(c.shape.size())); ++dim)
          for (bool same_layout : {true, false}) {
            Array x(t, c.shape, c.order, {}, c.gap), dy(t, c.shape, c.order, {}, c.gap);
            Array y(t, c.shape, same_layout ? c.order : std::vector<int>{}),
                dx(t, c.shape, same_layout ? c.order : std::vector<int>{});
            eighths(x, 3), eighths(dy, 4);
            cpu_table().softmax(cpu_context(), {y.view, x.view, {dim, log}});
            CHECK(distance(values(y.view), naive_softmax(x, dim, log)) < tolerance(t));
            cpu_table().softmax_backward(cpu_context(), {dx.view, dy.view, y.view, {dim, log}});
            // 16-bit results are rounded to their own size, which the sums above have not
            CHECK(distance(values(dx.view), naive_grad(dy, y, dim, log)) < tolerance(t) * (size_of(t) == 2 ? 4 : 1));
          }
}

TEST_CASE("softmax: infinities, huge values and NaN as PyTorch has them") {
  for (int64_t width : {1, 50})  // alone, and as a tile of lanes
    for (int64_t n : {4, 60}) {
      Array x(kFloat32, {width, n}), y(kFloat32, {width, n});
      const auto run = [&](double fill, double first, bool log) {
        x.fill(fill);
        for (int64_t i = 0; i < width; ++i) put(x, {i, 0}, first);
        cpu_table().softmax(cpu_context(), {y.view, x.view, {1, log}});
      };
      run(-INFINITY, -INFINITY, false);
      CHECK(std::isnan(get(y, {0, 0})));
      run(-INFINITY, 3, false);
      CHECK((get(y, {0, 0}) == 1 && get(y, {0, 1}) == 0));
      run(-1e30, 1e30, false);
      CHECK((get(y, {0, 0}) == 1 && get(y, {0, 1}) == 0));
      run(-1e30, 1e30, true);
      CHECK((get(y, {0, 0}) == 0 && get(y, {0, 1}) == Approx(-2e30)));
      run(0, INFINITY, false);
      CHECK((std::isnan(get(y, {0, 0})) && std::isnan(get(y, {0, 1}))));
      run(0, NAN, false);
      CHECK(std::isnan(get(y, {0, 1})));
    }
}

TEST_CASE("softmax: in place, and the same for any number of threads") {
  for (int64_t dim : {0, 1}) {
    std::vector<double> first;
    for (int threads : {1, 4}) {
      const Threads guard(threads);
      Array x(kFloat32, {130, 170});
      eighths(x, 8);
      const auto expected = naive_softmax(x, dim, false);
      cpu_table().softmax(cpu_context(), {x.view, x.view, {dim, false}});
      CHECK(distance(values(x.view), expected) < 1e-5);
      if (threads == 1) first = values(x.view);
      else CHECK(values(x.view) == first);
    }
  }
}
