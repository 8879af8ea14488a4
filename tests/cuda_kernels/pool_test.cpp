#include "both.h"

using namespace tapir_tests;

namespace {
struct Case {
  std::vector<int64_t> x, y;
  PoolParams p;
};
const std::vector<Case> cases = {
    {{2, 3, 9}, {2, 3, 4}, {PoolOp::Max, 1, {3}, {2}, {0}, {1}}},
    {{2, 8, 7, 6}, {2, 8, 3, 3}, {PoolOp::Max, 2, {2, 2}, {2, 2}, {0, 0}, {1, 1}}},
    {{2, 8, 7, 6}, {2, 8, 5, 5}, {PoolOp::Max, 2, {3, 2}, {1, 1}, {1, 1}, {2, 3}}},
    {{1, 8, 4, 5, 6}, {1, 8, 2, 3, 3}, {PoolOp::Max, 3, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, true}},
    {{2, 8, 7, 6}, {2, 8, 4, 3}, {PoolOp::Avg, 2, {3, 3}, {2, 2}, {1, 1}, {1, 1}}},
    {{2, 8, 7, 6}, {2, 8, 4, 4}, {PoolOp::Avg, 2, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true, false}},
    {{2, 3, 7, 6}, {2, 3, 2, 3}, {PoolOp::Avg, 2, {3, 2}, {3, 2}, {0, 0}, {1, 1}, false, true, 5}},
    {{2, 16, 9, 8}, {2, 16, 1, 1}, {PoolOp::AdaptiveAvg, 2}},
    {{2, 8, 9, 8}, {2, 8, 4, 11}, {PoolOp::AdaptiveAvg, 2}},
    {{2, 8, 9, 8}, {2, 8, 4, 3}, {PoolOp::AdaptiveMax, 2}},
};
/// Row-major, or with channels innermost.
std::vector<int> order_of(size_t rank, bool channels_last) {
  std::vector<int> order;
  for (size_t d = 0; d < rank; ++d)
    if (!channels_last || d != 1) order.push_back(int(d));
  if (channels_last) order.push_back(1);
  return order;
}
}  // namespace

TEST_CASE("CUDA pool: all operations, layouts and dtypes") {
  NEEDS_DEVICE();
  for (const Case& c : cases)
    for (const bool last : {false, true})
      for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kUInt8}) {
        const bool max = c.p.op == PoolOp::Max || c.p.op == PoolOp::AdaptiveMax;
        const std::vector<int> order = order_of(c.x.size(), last);
        Array x(t, c.x, order), y(t, c.y, order), indices(kInt64, c.y, order);
        x.random(5, t == kUInt8 ? 0 : -9, 9);
        if (max && is_floating(t)) write(t, x.view.data, 40, std::nan(""));
        const double tolerance = t == kFloat16 ? 2e-3 : t == kBFloat16 ? 2e-2 : 1e-6;
        for (const bool with_indices : {false, true}) {
          if (with_indices && !max) continue;
          CHECK(differ({&y, &indices, &x}, tolerance,
                       [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                         table.pool(ctx, {v[0], with_indices ? v[1] : TensorView(), v[2], c.p});
                       }) == "");
        }
        if (!is_floating(t)) continue;
        Array dx(t, c.x, order), dy(t, c.y, order);
        dy.random(8);
        CHECK(differ({&dx, &dy, &indices}, tolerance,
                     [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                       table.pool_backward(ctx, {v[0], v[1], max ? v[2] : TensorView(), c.p});
                     }) == "");
      }
}
