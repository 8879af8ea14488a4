#include "operands.h"

using namespace kernel_tests;

namespace {
double wrapped(DType t, double v) {
  return t == kUInt8 ? double(uint8_t(int64_t(v))) : t == kInt8 ? double(int8_t(int64_t(v))) : v;
}

void check_binary(BinaryParams p, DType t, const std::function<double(double, double)>& f, double ulps = 0) {
  Numbers numbers;
  for (const Layout layout : kLayouts) {
    const Array a = Array(t, {7, 90}, layout).fill(numbers), b = Array(t, {7, 90}).fill(numbers);
    Array out(t, {7, 90}, layout);
    cpu().binary(ctx(), {out.view, a.view, b.view, p});
    REQUIRE(difference(
                out,
                [&](int64_t i) { return is_floating(t) ? f(a.get(i), b.get(i)) : wrapped(t, f(a.get(i), b.get(i))); },
                ulps) == "");
  }
}
}  // namespace

TEST_CASE("binary: arithmetic of every dtype, with alpha") {
  for (const DType t : kAllDTypes) {
    if (t == kBool) continue;
    check_binary({BinaryOp::Add}, t, [](double a, double b) { return a + b; });
    check_binary({BinaryOp::Add, 2}, t, [](double a, double b) { return a + 2 * b; });
    check_binary({BinaryOp::Sub}, t, [](double a, double b) { return a - b; });
    check_binary({BinaryOp::Sub, 3}, t, [](double a, double b) { return a - 3 * b; });
    check_binary({BinaryOp::Mul}, t, [](double a, double b) { return a * b; });
    check_binary({BinaryOp::Maximum}, t, [](double a, double b) { return std::max(a, b); });
    check_binary({BinaryOp::Minimum}, t, [](double a, double b) { return std::min(a, b); });
    check_binary({BinaryOp::Fmax}, t, [](double a, double b) { return std::max(a, b); });
    check_binary({BinaryOp::Fmin}, t, [](double a, double b) { return std::min(a, b); });
    if (is_floating(t)) check_binary({BinaryOp::Div}, t, [](double a, double b) { return a / b; });
  }
  check_binary({BinaryOp::Add}, kBool, [](double a, double b) { return double(a != 0 || b != 0); });
  check_binary({BinaryOp::Mul}, kBool, [](double a, double b) { return a * b; });
  check_binary({BinaryOp::Maximum}, kBool, [](double a, double b) { return std::max(a, b); });
}

TEST_CASE("binary: NaN wins in maximum and minimum, and loses in fmax and fmin") {
  const double n = kNaN;
  for (const DType t : kFloats) {
    const Array a = Array(t, {4}).fill({n, 1, n, 2}), b = Array(t, {4}).fill({1, n, n, 3});
    Array out(t, {4});
    const auto check = [&](BinaryOp op, const std::vector<double>& want) {
      cpu().binary(ctx(), {out.view, a.view, b.view, {op}});
      CHECK(difference(out, [&](int64_t i) { return want[size_t(i)]; }) == "");
    };
    check(BinaryOp::Maximum, {n, n, n, 3});
    check(BinaryOp::Minimum, {n, n, n, 2});
    check(BinaryOp::Fmax, {1, 1, n, 3});
    check(BinaryOp::Fmin, {1, 1, n, 2});
  }
}

TEST_CASE("binary: integers wrap") {
  Array a(kInt64, {2}), b(kInt64, {2}), out(kInt64, {2});
  a.view.as<int64_t>()[0] = INT64_MAX, a.view.as<int64_t>()[1] = INT64_MIN;
  b.view.as<int64_t>()[0] = 1, b.view.as<int64_t>()[1] = -1;
  cpu().binary(ctx(), {out.view, a.view, b.view, {BinaryOp::Add}});
  CHECK((out.view.as<int64_t>()[0] == INT64_MIN && out.view.as<int64_t>()[1] == INT64_MAX));
  cpu().binary(ctx(), {out.view, a.view, a.view, {BinaryOp::Mul}});
  CHECK((out.view.as<int64_t>()[0] == 1 && out.view.as<int64_t>()[1] == 0));
  Array c(kInt16, {1}), d(kInt16, {1});
  c.set(0, -32768);
  cpu().binary(ctx(), {d.view, c.view, c.view, {BinaryOp::Mul}});
  CHECK(d.get(0) == 0);
}

TEST_CASE("binary: what a dtype has no meaning for is a ValueError") {
  Array x(kInt32, {3}), y(kFloat32, {3});
  CHECK(message_of([&] {
          cpu().binary(ctx(), {x.view, x.view, x.view, {BinaryOp::Div}});
        }) == "[binary] not implemented for int32");
  CHECK(message_of([&] {
          cpu().binary(ctx(), {y.view, y.view, y.view, {BinaryOp::BitwiseAnd}});
        }) == "[binary] not implemented for float32");
}
