#include "operands.h"

using namespace kernel_tests;

namespace {
void check_unary(UnaryOp op, DType t, const std::function<double(double)>& f, double a = 0, double b = 0,
                 double ulps = 0) {
  Numbers numbers;
  for (const Layout layout : kLayouts)
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{5, 300}, Shape{3, 7, 11}}) {
      const Array x = Array(t, shape, layout).fill(numbers);
      Array out(t, shape, layout == Layout::Gaps ? Layout::Reversed : Layout::Dense);
      cpu().unary(ctx(), {out.view, x.view, {op, a, b}});
      REQUIRE(difference(
                  out, [&](int64_t i) { return f(x.get(i)); }, ulps) == "");
    }
}
}  // namespace

TEST_CASE("unary: arithmetic of every dtype") {
  for (const DType t : kAllDTypes) {
    const bool u8 = t == kUInt8;
    if (t != kBool) {
      check_unary(UnaryOp::Neg, t, [&](double x) { return u8 ? double(uint8_t(int(-x))) : -x; });
      check_unary(
          UnaryOp::Clamp, t, [&](double x) { return std::min(std::max(x, 1.0), 3.0); }, 1, 3);
      check_unary(UnaryOp::Square, t, [](double x) { return x * x; });
      check_unary(
          UnaryOp::PowScalar, t, [&](double x) { return u8 ? double(uint8_t(int(x * x * x))) : x * x * x; }, 3, 0, 1);
    }
    check_unary(UnaryOp::Abs, t, [](double x) { return std::abs(x); });
    check_unary(UnaryOp::Sign, t, [](double x) { return double(x > 0) - double(x < 0); });
    check_unary(UnaryOp::Relu, t, [](double x) { return std::max(x, 0.0); });
    check_unary(UnaryOp::Floor, t, [](double x) { return std::floor(x); });
    check_unary(UnaryOp::Ceil, t, [](double x) { return std::ceil(x); });
    check_unary(UnaryOp::Round, t, [](double x) { return std::nearbyint(x); });
    check_unary(UnaryOp::Trunc, t, [](double x) { return std::trunc(x); });
  }
  for (const DType t : kFloats) {
    check_unary(UnaryOp::Sqrt, t, [](double x) { return std::sqrt(x); });
    check_unary(
        UnaryOp::Rsqrt, t, [](double x) { return 1 / std::sqrt(x); }, 0, 0, 2);
    check_unary(UnaryOp::Reciprocal, t, [](double x) { return 1 / x; });
    check_unary(
        UnaryOp::LeakyRelu, t, [](double x) { return x > 0 ? x : 0.25 * x; }, 0.25);
  }
}

TEST_CASE("unary: tests write bool") {
  for (const DType t : kAllDTypes)
    for (const Layout layout : kLayouts) {
      Array x(t, {40, 30}, layout), out(kBool, {40, 30});
      Numbers numbers;
      x.fill(numbers);
      if (is_floating(t)) x.set(3, kNaN), x.set(500, kInf), x.set(900, -kInf);
      const auto check = [&](UnaryOp op, auto f) {
        cpu().unary(ctx(), {out.view, x.view, {op}});
        CHECK(difference(out, [&](int64_t i) { return f(x.get(i)); }) == "");
      };
      check(UnaryOp::LogicalNot, [](double v) { return v == 0; });
      check(UnaryOp::IsNan, [](double v) { return std::isnan(v); });
      check(UnaryOp::IsInf, [](double v) { return std::isinf(v); });
      check(UnaryOp::IsFinite, [](double v) { return std::isfinite(v); });
    }
}

TEST_CASE("unary: NaN goes through, integers wrap") {
  for (const DType t : kFloats)
    for (const UnaryOp op :
         {UnaryOp::Relu, UnaryOp::Clamp, UnaryOp::Abs, UnaryOp::LeakyRelu, UnaryOp::Gelu, UnaryOp::Sigmoid}) {
      const Array x = Array(t, {100}).fill(std::vector<double>{kNaN});
      Array out(t, {100});
      cpu().unary(ctx(), {out.view, x.view, {op, 0.5, 2}});
      CHECK(difference(out, [](int64_t) { return kNaN; }) == "");
    }
  Array least(kInt32, {1}), out(kInt32, {1});
  least.set(0, -2147483648.0);
  for (const UnaryOp op : {UnaryOp::Neg, UnaryOp::Abs}) {
    cpu().unary(ctx(), {out.view, least.view, {op}});
    CHECK(out.get(0) == -2147483648.0);
  }
  cpu().unary(ctx(), {out.view, least.view, {UnaryOp::Square}});
  CHECK(out.get(0) == 0);
}

TEST_CASE("unary: what a dtype has no meaning for is a ValueError") {
  Array x(kInt32, {3});
  CHECK(message_of([&] {
          cpu().unary(ctx(), {x.view, x.view, {UnaryOp::Exp}});
        }) == "[unary] not implemented for int32");
}
