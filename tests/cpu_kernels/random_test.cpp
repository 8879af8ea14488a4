#include "operands.h"

#include <tapir/core/generator.h>

#include <algorithm>
#include <numeric>

using namespace kernel_tests;

namespace {
Array draw(RandomParams p, DType t, const Shape& shape, Layout layout = Layout::Dense) {
  Array out(t, shape, layout);
  p.seed = 42, p.offset = 7;
  cpu().random(ctx(), {.out = out.view, .params = p});
  return out;
}
uint32_t word(int64_t i, uint32_t plane = 0) { return Philox::block(42, 7 + uint64_t(i) / 4, plane).word[i % 4]; }
}  // namespace

TEST_CASE("random: uniform numbers are those of the stream") {
  const Array x = draw({RandomOp::Uniform}, kFloat32, {5001}), d = draw({RandomOp::Uniform}, kFloat64, {5001});
  CHECK(difference(x, [](int64_t i) { return double(word(i) >> 8) * 0x1p-24; }) == "");
  CHECK(difference(d, [](int64_t i) { return double(uint64_t(word(i)) << 21 | word(i, 1) >> 11) * 0x1p-53; }) == "");
  CHECK(difference(draw({RandomOp::Uniform}, kFloat16, {5001}),
                   [](int64_t i) { return double(word(i) >> 21) * 0x1p-11; }) == "");
  CHECK(difference(draw({RandomOp::Uniform}, kBFloat16, {5001}),
                   [](int64_t i) { return double(word(i) >> 24) * 0x1p-8; }) == "");
  RandomParams p{RandomOp::Uniform};
  p.a = -2, p.b = 3;
  const Array y = draw(p, kFloat32, {5001});
  CHECK(difference(y, [](int64_t i) { return std::fma(float(word(i) >> 8) * 0x1p-24f, 5.0f, -2.0f); }) == "");
  p.a = 1, p.b = 1 + 0x1p-20;  // where rounding would reach the upper bound
  for (const double v : draw(p, kFloat32, {5001}).values()) CHECK((v >= p.a && v < p.b));
  for (const DType t : {kFloat16, kBFloat16})
    for (const double b : {3.0, 0.0, -0.5}) {
      p.a = -7, p.b = b;
      for (const double v : draw(p, t, {9001}).values()) REQUIRE((v >= p.a && v < p.b));
    }
}

TEST_CASE("random: golden values") {
  const uint32_t words[] = {0x5bbd83b1, 0x68784c85, 0x172067aa,
                            0x2e6b75b7, 0x8c4a529c, 0x22658bcb};  // seed 42, counters 7 and 8
  CHECK(difference(draw({RandomOp::Uniform}, kFloat32, {6}),
                   [&](int64_t i) { return double(words[i] >> 8) * 0x1p-24; }) == "");
  RandomParams p{RandomOp::Integer};
  p.high = 1000;
  const double integers[] = {358, 408, 90, 181, 548, 134};
  CHECK(difference(draw(p, kInt64, {6}), [&](int64_t i) { return integers[i]; }) == "");
}

TEST_CASE("random: row-major order whatever the strides, and the same for any number of threads") {
  for (const RandomOp op :
       {RandomOp::Uniform, RandomOp::Normal, RandomOp::Integer, RandomOp::Bernoulli, RandomOp::Permutation})
    for (const DType t : {kFloat32, kFloat64}) {
      RandomParams p{op};
      p.a = 0.25, p.low = -5, p.high = 100;
      const DType dtype = op == RandomOp::Integer || op == RandomOp::Permutation ? kInt64 : t;
      const Shape shape = op == RandomOp::Permutation ? Shape{30 * 41 * 17} : Shape{30, 41, 17};
      const Array dense = draw(p, dtype, shape);
      for (const Layout layout : {Layout::Reversed, Layout::Gaps})
        CHECK(difference(draw(p, dtype, shape, layout), [&](int64_t i) { return dense.get(i); }) == "");
      check_threads([&] { return draw(p, dtype, shape).memory; });
    }
}

TEST_CASE("random: normal numbers have their moments, in pairs of lanes") {
  for (const DType t : kFloats) {
    RandomParams p{RandomOp::Normal};
    p.a = 1, p.b = 2;
    const int64_t n = 200001;
    const Array x = draw(p, t, {n});
    double sum = 0, squares = 0, cubes = 0, tail = 0;
    for (const double v : x.values()) {
      const double z = (v - 1) / 2;
      sum += z, squares += z * z, cubes += z * z * z, tail += std::abs(z) > 2;
    }
    CHECK(std::abs(sum / double(n)) < 0.01);
    CHECK(std::abs(squares / double(n) - 1) < 0.02);
    CHECK(std::abs(cubes / double(n)) < 0.04);
    CHECK(std::abs(tail / double(n) - 0.0455) < 0.003);
    CHECK(difference(draw(p, t, {1001}), [&](int64_t i) { return x.get(i); }) ==
          "");  // a prefix: the last pair may be cut
  }
}

TEST_CASE("random: integers of narrow, wide and full ranges") {
  RandomParams p{RandomOp::Integer};
  p.low = -3, p.high = 4;
  const Array narrow = draw(p, kInt64, {70000});
  CHECK(difference(narrow, [](int64_t i) { return double(uint64_t(word(i)) * 7 >> 32) - 3; }) == "");
  std::vector<int> counts(7);
  for (const double v : narrow.values()) ++counts[size_t(v + 3)];
  for (const int c : counts) CHECK(std::abs(c - 10000) < 500);
  for (const DType t : kAllDTypes)
    CHECK(difference(draw({RandomOp::Integer, 0, 0, 0, 1, 0, 2}, t, {99}),
                     [](int64_t i) { return double(word(i) >> 31); }) == "");
  p.low = 0, p.high = int64_t(1) << 40;
  CHECK(difference(draw(p, kInt64, {99}),
                   [](int64_t i) { return double((uint64_t(word(i)) << 32 | word(i, 1)) >> 24); }) == "");
  p.low = INT64_MIN, p.high = INT64_MAX;
  const Array wide = draw(p, kInt64, {1000});
  int negative = 0;
  for (const double v : wide.values()) negative += v < 0;
  CHECK(std::abs(negative - 500) < 100);
}

TEST_CASE("random: Bernoulli by a number and by a tensor of probabilities") {
  RandomParams p{RandomOp::Bernoulli};
  p.a = 0.3;
  for (const DType t : kAllDTypes)
    CHECK(difference(draw(p, t, {333}), [](int64_t i) { return double(word(i) >> 8) * 0x1p-24 < 0.3; }) == "");
  Numbers numbers;
  for (const DType t : kFloats)
    for (const Layout layout : kLayouts) {
      Array probabilities(t, {30, 1}, layout), out(kFloat32, {30, 70});
      for (int64_t i = 0; i < 30; ++i) probabilities.set(i, double(i) / 29);
      cpu().random(ctx(), {.out = out.view, .p = probabilities.view, .params = {RandomOp::BernoulliTensor, 42, 7}});
      CHECK(difference(out, [&](int64_t i) { return double(word(i) >> 8) * 0x1p-24 < probabilities.get(i / 70); }) ==
            "");
    }
}

TEST_CASE("random: a permutation holds every number once, sorted by its words") {
  for (const int64_t n : {0, 1, 2, 1000, 60000}) {
    const Array x = draw({RandomOp::Permutation}, kInt64, {n});
    const std::vector<double> order = x.values();
    std::vector<bool> seen(static_cast<size_t>(n));
    for (const double v : order) seen[size_t(v)] = true;
    CHECK(std::count(seen.begin(), seen.end(), true) == n);
    CHECK(std::is_sorted(order.begin(), order.end(),
                         [](double a, double b) { return word(int64_t(a)) < word(int64_t(b)); }));
  }
}

TEST_CASE("random: floats only where floats are made") {
  Array x(kInt32, {3});
  CHECK(message_of([&] { cpu().random(ctx(), {.out = x.view, .params = {RandomOp::Normal}}); }) ==
        "[random] not implemented for int32");
}
