#include "both.h"

using namespace tapir_tests;

namespace {
/// Few different values, so that positions decide; some NaNs.
Array numbers(DType t, std::vector<int64_t> shape, std::vector<int> order, uint32_t seed, bool nans) {
  Array x(t, std::move(shape), std::move(order));
  x.random(seed, -40, 40);
  for (int64_t i = 3; nans && is_floating(t) && i < x.count; i += 97) write(t, x.view.data, i, std::nan(""));
  return x;
}
std::string sorts_alike(DType t, std::vector<int64_t> shape, std::vector<int> order, const SortParams& p,
                        bool nans = true, bool with_values = true) {
  Array x = numbers(t, shape, order, 7, nans);
  if (!shape.empty())
    shape[size_t(p.dim)] = p.op == SortOp::Sort ? shape[size_t(p.dim)] : p.op == SortOp::TopK ? p.k : 1;
  Array values(t, shape), indices(kInt64, shape);
  return differ({&values, &indices, &x}, 0,
                [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                  table.sort(ctx, {with_values ? v[0] : TensorView(), v[1], v[2], p});
                });
}
}  // namespace

TEST_CASE("CUDA sort: short and long lines, all dtypes, both orders") {
  NEEDS_DEVICE();
  for (DType t : all_dtypes)
    for (const bool descending : {false, true}) {
      CHECK(sorts_alike(t, {5, 37}, {}, {SortOp::Sort, 1, 0, descending}) == "");
      CHECK(sorts_alike(t, {70, 3}, {1, 0}, {SortOp::Sort, 0, 0, descending}) == "");
      CHECK(sorts_alike(t, {2100}, {}, {SortOp::Sort, 0, 0, descending}) == "");
      CHECK(sorts_alike(t, {3, 2100}, {1, 0}, {SortOp::Sort, 1, 0, descending}) == "");
    }
  CHECK(sorts_alike(kFloat32, {1, 2048}, {}, {SortOp::Sort, 1, 0, false}) == "");
  CHECK(sorts_alike(kFloat32, {400, 1}, {}, {SortOp::Sort, 1, 0, false}) == "");
  CHECK(sorts_alike(kFloat32, {}, {}, {SortOp::Sort, 0, 0, false}) == "");
}

TEST_CASE("CUDA sort: parts of the order") {
  NEEDS_DEVICE();
  for (DType t : {kFloat32, kFloat64, kFloat16, kInt64, kInt8})
    for (const int64_t n : {1, 6, 300, 2500}) {
      const bool few = n == 1;
      CHECK(sorts_alike(t, {4, n}, {}, {SortOp::TopK, 1, few ? 1 : 5, true}) == "");
      CHECK(sorts_alike(t, {2, n}, {}, {SortOp::TopK, 1, n, false}) == "");
      CHECK(sorts_alike(t, {4, n}, {}, {SortOp::Kth, 1, n / 2, false}, true, false) == "");
      for (const bool nans : {false, true}) {
        CHECK(sorts_alike(t, {4, n}, {1, 0}, {SortOp::Median, 1, 0, false}, nans) == "");
        CHECK(sorts_alike(t, {4, n}, {}, {SortOp::TopK, 1, n / 2, false}, nans) == "");
        CHECK(sorts_alike(t, {4, n}, {}, {SortOp::NanMedian, 1, 0, false}, nans) == "");
      }
    }
}
