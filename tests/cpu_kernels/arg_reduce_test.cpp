#include "operands.h"

using namespace kernel_tests;

namespace {
void check_arg(DType t, const Shape& shape, int64_t dim, Layout layout, bool with_nan) {
  Numbers numbers;
  Array x = Array(t, shape, layout).fill(numbers);
  if (with_nan)
    for (int64_t i = 0; i < x.numel(); i += 37) x.set(i, kNaN);
  Shape kept = shape;
  if (shape.size()) kept[dim] = 1;
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  const int64_t n = shape.size() ? shape[dim] : 1;
  for (const ArgReduceOp op : {ArgReduceOp::ArgMax, ArgReduceOp::ArgMin}) {
    Array out(kInt64, kept, layout);
    cpu().arg_reduce(ctx(), {out.view, x.view, {op, dim}});
    const auto expected = [&](int64_t i) {
      int64_t best = 0;
      const auto at = [&](int64_t k) { return x.get(i / inner * inner * n + k * inner + i % inner); };
      for (int64_t k = 1; k < n; ++k) {
        if (std::isnan(at(best))) break;
        if (std::isnan(at(k)) || (op == ArgReduceOp::ArgMax ? at(k) > at(best) : at(k) < at(best))) best = k;
      }
      return double(best);
    };
    REQUIRE(difference(out, expected) == "");
  }
}
}  // namespace

TEST_CASE("arg_reduce: the first of equals, the first NaN, every dtype and layout") {
  for (const DType t : kAllDTypes)
    for (const Layout layout : kLayouts)
      for (const bool with_nan : {false, true}) {
        if (with_nan && !is_floating(t)) continue;
        for (int64_t dim = 0; dim < 3; ++dim)
          for (const Shape& shape : {Shape{6, 20, 7}, Shape{30, 3, 70}, Shape{100, 2, 1}})
            check_arg(t, shape, dim, layout, with_nan);
        check_arg(t, {200000}, 0, layout, false);
        check_arg(t, {3, 5000}, 1, layout, with_nan);
        check_arg(t, {5000, 3}, 0, layout, with_nan);
        check_arg(t, {}, 0, layout, false);
      }
}

TEST_CASE("arg_reduce: infinities and the extremes of int64") {
  for (const int64_t n : {2, 100, 3000}) {
    const Array low = Array(kFloat32, {n}).fill({-kInf});
    Array out(kInt64, {1});
    cpu().arg_reduce(ctx(), {out.view, low.view, {ArgReduceOp::ArgMax, 0}});
    CHECK(out.get(0) == 0);
  }
  Array x(kInt64, {3}), out(kInt64, {1});
  x.view.as<int64_t>()[0] = INT64_MAX - 1, x.view.as<int64_t>()[1] = INT64_MAX, x.view.as<int64_t>()[2] = INT64_MIN;
  cpu().arg_reduce(ctx(), {out.view, x.view, {ArgReduceOp::ArgMax, 0}});
  CHECK(out.get(0) == 1);
  cpu().arg_reduce(ctx(), {out.view, x.view, {ArgReduceOp::ArgMin, 0}});
  CHECK(out.get(0) == 2);
}
