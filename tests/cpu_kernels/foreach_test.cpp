#include "catch.h"
#include "naive.h"

using namespace tapir_tests;

namespace {

std::vector<Array> some(DType t) {
  std::vector<Array> xs;
  xs.emplace_back(t, std::vector<int64_t>{3, 5});
  xs.emplace_back(t, std::vector<int64_t>{4, 3, 2}, std::vector<int>{2, 0, 1}, std::vector<int>{}, 1);
  xs.emplace_back(t, std::vector<int64_t>{});
  xs.emplace_back(t, std::vector<int64_t>{0, 2});
  xs.emplace_back(t, std::vector<int64_t>{20000});
  for (size_t i = 0; i < xs.size(); ++i) eighths(xs[i], uint32_t(i + 1));
  return xs;
}
std::vector<TensorView> views_of(const std::vector<Array>& xs) {
  std::vector<TensorView> views;
  for (const Array& x : xs) views.push_back(x.view);
  return views;
}
double norm(const std::vector<TensorView>& xs, double p) {
  Array out(kFloat64, {});
  cpu_table().foreach (cpu_context(), {.out = out.view, .xs = xs, .params = {ForeachOp::NormP, p}});
  return get(out, {});
}

}  // namespace

TEST_CASE("foreach: the norm of all elements, for any p") {
  for (DType t : float_dtypes) {
    const std::vector<Array> xs = some(t);
    for (double p : {0.0, 1.0, 2.0, 3.0, double(INFINITY), -double(INFINITY)}) {
      double expected = std::isinf(p) && p < 0 ? INFINITY : 0;
      for (const Array& x : xs)
        for (double v : values(x.view)) {
          const double a = std::abs(v);
          if (std::isinf(p)) expected = p > 0 ? std::max(expected, a) : std::min(expected, a);
          else expected += p == 0 ? v != 0 : std::pow(a, p);
        }
      if (!std::isinf(p) && p > 0) expected = std::pow(expected, 1 / p);
      CHECK(norm(views_of(xs), p) == Approx(expected));
    }
  }
  CHECK(norm({}, 2) == 0);
}

TEST_CASE("foreach: NaN and overflow in norms, any number of threads") {
  Array x(kFloat32, {50000});
  x.fill(3e30);
  CHECK(norm({x.view}, 2) == Approx(3e30 * std::sqrt(50000.0)));
  eighths(x, 3);
  double one = 0;
  for (int threads : {1, 4}) {
    const Threads guard(threads);
    const double n = norm({x.view, x.view}, 2);
    if (threads == 1) one = n;
    else CHECK(n == one);
  }
  put(x, {777}, NAN);
  for (double p : {1.0, 2.0, double(INFINITY), -double(INFINITY)}) CHECK(std::isnan(norm({x.view}, p)));
}

TEST_CASE("foreach: scale, clamp, zero") {
  for (DType t : float_dtypes)
    for (ForeachOp op : {ForeachOp::Scale, ForeachOp::ClampValue, ForeachOp::Zero}) {
      const std::vector<Array> xs = some(t);
      put(xs[0].view, {0, 1}, NAN);
      std::vector<std::vector<double>> expected;
      for (const Array& x : xs) {
        expected.push_back(values(x.view));
        for (double& v : expected.back())
          v = op == ForeachOp::Zero    ? 0
              : op == ForeachOp::Scale ? v * 0.75
              : std::isnan(v)          ? v
                                       : std::clamp(v, -0.75, 0.75);
      }
      Array factor(kFloat32, {});
      factor.fill(0.75);
      cpu_table().foreach (
          cpu_context(),
          {.xs = views_of(xs), .factor = op == ForeachOp::Zero ? TensorView{} : factor.view, .params = {op}});
      for (size_t i = 0; i < xs.size(); ++i) CHECK(distance(values(xs[i].view), expected[i]) < tolerance(t));
    }
  Array ints(kInt32, {3, 2}, {1, 0}, {}, 1);
  ints.fill(7);
  cpu_table().foreach (cpu_context(), {.xs = std::vector<TensorView>{ints.view}, .params = {ForeachOp::Zero}});
  CHECK(values(ints.view) == std::vector<double>(6, 0));
}
