#include "operands.h"

using namespace kernel_tests;

namespace {
void check_copy(const Array& x, Array out) {
  cpu().copy(ctx(), {out.view, x.view});
  CHECK(difference(out, [&](int64_t i) { return x.get(i); }) == "");
}
}  // namespace

TEST_CASE("copy: every pair of dtypes and layouts") {
  Numbers numbers;
  for (const DType from : kAllDTypes)
    for (const DType to : kAllDTypes)
      for (const Layout a : {Layout::Dense, Layout::Reversed, Layout::Gaps, Layout::Repeated})
        for (const Layout b : kLayouts) {
          Array x = Array(from, {3, 5, 70}, a).fill(numbers), out(to, {3, 5, 70}, b);
          for (int64_t i = 0; i < x.numel(); ++i) x.set(i, std::abs(x.get(i)));  // an unsigned dtype holds it
          cpu().copy(ctx(), {out.view, x.view});
          const bool whole = !is_floating(to);
          REQUIRE(difference(out, [&](int64_t i) {
                    return to == kBool ? x.get(i) != 0 : whole ? std::trunc(x.get(i)) : x.get(i);
                  }) == "");
        }
}

TEST_CASE("copy: permutations of three axes, and planes larger than a block") {
  Numbers numbers;
  const int64_t orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const DType t : {kUInt8, kFloat16, kFloat32, kFloat64})
    for (const Shape& shape : {Shape{4, 33, 100}, Shape{2, 3, 5}, Shape{1, 130, 67}, Shape{64, 32, 32}})
      for (const auto& order : orders) {
        Array x = Array(t, shape).fill(numbers), out(t, {shape[order[0]], shape[order[1]], shape[order[2]]});
        TensorView permuted = x.view;
        for (int d = 0; d < 3; ++d)
          permuted.sizes[d] = x.view.sizes[order[d]], permuted.strides[d] = x.view.strides[order[d]];
        cpu().copy(ctx(), {out.view, permuted});
        Array expected = x;
        expected.view = permuted, expected.view.data = expected.memory.data();
        REQUIRE(difference(out, [&](int64_t i) { return expected.get(i); }) == "");
      }
}

TEST_CASE("copy: floats to integers truncate, saturate, and NaN gives 0") {
  const std::vector<double> values = {kNaN,  kInf,   -kInf, 1e30,         -1e30,         -1,     255.9,  256, -0.9,
                                      127.5, -128.5, -129,  2147483648.0, -2147483649.0, 9.3e18, -9.3e18};
  const auto expected = [&](double v, double low, double high) {
    return v != v ? 0 : std::trunc(std::min(std::max(v, low), high));
  };
  for (const DType from : {kFloat32, kFloat64, kBFloat16}) {
    const Array x = Array(from, {16}).fill(values);
    Array u8(kUInt8, {16}), i8(kInt8, {16}), i16(kInt16, {16}), i32(kInt32, {16}), i64(kInt64, {16});
    for (Array* out : {&u8, &i8, &i16, &i32, &i64}) cpu().copy(ctx(), {out->view, x.view});
    CHECK(difference(u8, [&](int64_t i) { return expected(x.get(i), 0, 255); }) == "");
    CHECK(difference(i8, [&](int64_t i) { return expected(x.get(i), -128, 127); }) == "");
    CHECK(difference(i16, [&](int64_t i) { return expected(x.get(i), -32768, 32767); }) == "");
    CHECK(difference(i32, [&](int64_t i) { return expected(x.get(i), -2147483648.0, 2147483647.0); }) == "");
    for (int64_t i = 0; i < 16; ++i) {
      const double v = x.get(i);
      const int64_t want = v != v ? 0 : v >= 0x1p63 ? INT64_MAX : v <= -0x1p63 ? INT64_MIN : int64_t(v);
      CHECK(i64.view.as<int64_t>()[i] == want);
    }
  }
}

TEST_CASE("copy: 16-bit floats round to nearest even, overflow to infinity") {
  std::vector<double> values;
  for (int64_t i = 0; i < 65536; ++i)
    values.push_back(double(std::bit_cast<float>(uint32_t(i) << 16 | uint32_t(i * 40503) % 65536)));
  const Array x = Array(kFloat32, {65536}).fill(values);
  Array h(kFloat16, {65536}), b(kBFloat16, {65536}), back(kFloat32, {65536});
  cpu().copy(ctx(), {h.view, x.view});
  cpu().copy(ctx(), {b.view, x.view});
  CHECK(difference(h, [&](int64_t i) { return x.get(i); }) == "");
  CHECK(difference(b, [&](int64_t i) { return x.get(i); }) == "");
  for (int64_t i = 0; i < 65536; ++i) h.view.as<uint16_t>()[i] = uint16_t(i);
  cpu().copy(ctx(), {back.view, h.view});
  CHECK(difference(back, [&](int64_t i) { return h.get(i); }) == "");
}

TEST_CASE("copy: zero sizes, no dimensions, 16 dimensions, broadcasting, a number") {
  Numbers numbers;
  for (const Layout layout : kLayouts) {
    check_copy(Array(kFloat32, {0, 4}, layout), Array(kFloat32, {0, 4}));
    check_copy(Array(kFloat32, {}, layout).fill(numbers), Array(kFloat64, {}));
    const Shape deep{2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3};
    check_copy(Array(kInt16, deep, layout).fill(numbers), Array(kInt16, deep));
    check_copy(Array(kInt16, deep).fill(numbers), Array(kFloat16, deep, layout));
  }
  const Array row = Array(kFloat32, {5}).fill(numbers);
  Array out(kFloat32, {3, 5}, Layout::Gaps);
  cpu().copy(ctx(), {out.view, row.view});
  CHECK(difference(out, [&](int64_t i) { return row.get(i % 5); }) == "");
  cpu().copy(ctx(), {out.view, TensorView(Scalar(2.5), kFloat32)});
  CHECK(difference(out, [&](int64_t) { return 2.5; }) == "");
}

TEST_CASE("copy: the result does not depend on the threads") {
  Numbers numbers;
  const Array x = Array(kFloat32, {300, 700}, Layout::Reversed).fill(numbers);
  for (const DType to : {kFloat32, kFloat16})
    check_threads([&] {
      Array out(to, {300, 700});
      cpu().copy(ctx(), {out.view, x.view});
      return out.memory;
    });
}
