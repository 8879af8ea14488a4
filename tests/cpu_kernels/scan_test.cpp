#include "../modes.h"
#include "operands.h"

using namespace kernel_tests;

TEST_CASE("scan: sums and products along each dimension, every dtype and layout") {
  Numbers numbers;
  for (const DType t : kAllDTypes)
    for (const Layout layout : kLayouts)
      for (const Shape& shape : {Shape{4, 6, 70}, Shape{2, 30, 40}, Shape{5, 1, 3}, Shape{0, 3, 2}, Shape{3, 0, 2}})
        for (int64_t dim = 0; dim < 3; ++dim)
          for (const ScanOp op : {ScanOp::CumSum, ScanOp::CumProd}) {
            Array x(t, shape, layout);
            for (int64_t i = 0; i < x.numel(); ++i)
              x.set(i, op == ScanOp::CumSum || t == kBool  ? numbers.value(t)
                       : numbers.next() % 9 || t == kUInt8 ? 1
                                                           : -1);
            Array out(is_floating(t) ? t : kInt64, shape, layout == Layout::Gaps ? Layout::Reversed : Layout::Dense);
            cpu().scan(ctx(), {.out = out.view, .x = x.view, .params = {op, dim}});
            int64_t inner = 1;
            for (int64_t d = dim + 1; d < 3; ++d) inner *= shape[d];
            const auto expected = [&](int64_t i) {
              double v = op == ScanOp::CumSum ? 0 : 1;
              for (int64_t k = i / inner % shape[dim]; k >= 0; --k) {
                const double e = x.get(i - k * inner);
                v = op == ScanOp::CumSum ? v + e : v * e;
              }
              return v;
            };
            REQUIRE(difference(out, expected) == "");
          }
}

TEST_CASE("scan: long rows, a 0-dim tensor, in place") {
  Array ones(kFloat32, {100000}), out(kFloat32, {100000});
  cpu().fill(ctx(), {ones.view, 0.1f});
  cpu().scan(ctx(), {.out = out.view, .x = ones.view, .params = {ScanOp::CumSum, 0}});
  CHECK(difference(out, [](int64_t i) { return double(0.1f) * double(i + 1); }) == "");
  cpu().scan(ctx(), {.out = ones.view, .x = ones.view, .params = {ScanOp::CumSum, 0}});
  CHECK(ones.memory == out.memory);
  Array one(kInt32, {}), result(kInt64, {});
  one.set(0, 7);
  cpu().scan(ctx(), {.out = result.view, .x = one.view, .params = {ScanOp::CumSum, 0}});
  CHECK(result.get(0) == 7);
}

TEST_CASE("scan: lines side by side are those alone, over several tiles, by any number of threads") {
  Numbers numbers;
  Array x(kFloat32, {7, 2500});
  for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double(numbers.next() % 1000) / 997 - 0.5);
  for (const ScanOp op : {ScanOp::CumSum, ScanOp::LogCumSumExp}) {
    Array alone(kFloat32, {7, 2500});
    for (int64_t row = 0; row < 7; ++row) {
      const auto line = [row](const Array& a) {
        TensorView v = a.view;
        v.rank = 1, v.sizes[0] = 2500, v.strides[0] = 1;
        v.data = v.as<float>() + row * 2500;
        return v;
      };
      cpu().scan(ctx(), {.out = line(alone), .x = line(x), .params = {op, 0}});
    }
    for (const int threads : {1, 2, 3}) {
      const tapir_tests::ThreadCount guard(threads);
      Array together(kFloat32, {7, 2500});
      cpu().scan(ctx(), {.out = together.view, .x = x.view, .params = {op, 1}});
      CHECK(together.memory == alone.memory);
    }
  }
}
