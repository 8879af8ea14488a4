#include "both.h"

using namespace tapir_tests;

namespace {
using P = RandomParams;
std::string draws_alike(DType t, std::vector<int64_t> shape, std::vector<int> order, P p, double tolerance,
                        Array* limits = nullptr) {
  p.seed = 0x123456789abcdefull, p.offset = (uint64_t(1) << 32) - 20;
  Array out(t, std::move(shape), std::move(order), {}, 1), base(kInt64, {});
  write(kInt64, base.view.data, 0, 5);
  return differ({&out, limits, &base}, tolerance,
                [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                  table.random(ctx, {v[0], v[1], v[2], p});
                });
}
}  // namespace

TEST_CASE("CUDA random: the CPU's numbers") {
  NEEDS_DEVICE();
  for (const auto& order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
    for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
      CHECK(draws_alike(t, {37, 61}, order, {.op = RandomOp::Uniform, .a = -2, .b = 3}, 0) == "");
      const double ulps = t == kFloat64 ? 1e-15 : t == kFloat32 ? 3e-7 : t == kFloat16 ? 1e-3 : 8e-3;
      CHECK(draws_alike(t, {37, 61}, order, {.op = RandomOp::Normal, .a = 1, .b = 2}, 2 * ulps) == "");
    }
    for (DType t : all_dtypes) {
      CHECK(draws_alike(t, {9, 11}, order, {.op = RandomOp::Integer, .low = -5, .high = 90}, 0) == "");
      CHECK(draws_alike(t, {9, 11}, order, {.op = RandomOp::Bernoulli, .a = 0.3}, 0) == "");
      CHECK(draws_alike(t, {9, 11}, order, {.op = RandomOp::Permutation}, 0) == "");
    }
    CHECK(draws_alike(kInt64, {9, 11}, order,
                      {.op = RandomOp::Integer, .low = -(int64_t(1) << 40), .high = int64_t(1) << 50}, 0) == "");
    CHECK(draws_alike(kInt64, {9, 11}, order, {.op = RandomOp::Integer, .low = INT64_MIN, .high = INT64_MIN}, 0) == "");
    Array limits(kFloat32, {9, 11}, {1, 0}, {0});
    for (int64_t i = 0; i < 11; ++i) limits.set(double(i) / 10, 0, i);
    CHECK(draws_alike(kBool, {9, 11}, order, {.op = RandomOp::BernoulliTensor}, 0, &limits) == "");
  }
  for (const auto& order : {std::vector<int>{2, 0, 1}, std::vector<int>{1, 2, 0}, std::vector<int>{0, 2, 1}})
    for (const int64_t columns : {1, 2, 7, 12})
      CHECK(draws_alike(kFloat32, {3, 5, columns}, order, {.op = RandomOp::Uniform, .a = -2, .b = 3}, 0) == "");
  CHECK(draws_alike(kInt64, {5000}, {}, {.op = RandomOp::Permutation}, 0) == "");
}

TEST_CASE("CUDA dropout: the CPU's mask") {
  NEEDS_DEVICE();
  for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const int64_t gap : {0, 1})
      for (const auto& [p, order] : {std::pair(0.0, std::vector<int>{}), std::pair(0.4, std::vector<int>{}),
                                     std::pair(1.0, std::vector<int>{}), std::pair(0.4, std::vector<int>{1, 0})}) {
        Array y(t, {13, 10}, order), x(t, {13, 10}, order, {}, gap), mask(kBool, {13, 10}, order), base(kInt64, {});
        const double rate = p;
        x.random(3), write(kInt64, base.view.data, 0, 9);
        for (Array* m : {&mask, static_cast<Array*>(nullptr)})
          CHECK(differ({&y, m, &x, &base}, 0,
                       [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                         table.dropout(ctx, {v[0], v[1], v[2], v[3], {rate, 77, 3}});
                       }) == "");
      }
}
