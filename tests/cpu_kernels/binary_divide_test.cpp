#include "operands.h"

using namespace kernel_tests;

namespace {
double run(BinaryOp op, DType t, double a, double b) {
  Array x(t, {}), y(t, {}), out(t, {});
  x.set(0, a), y.set(0, b);
  cpu().binary(ctx(), {out.view, x.view, y.view, {op}});
  return out.get(0);
}
double floor_div(double a, double b) { return std::floor(a / b); }
}  // namespace

TEST_CASE("binary: division and remainder have Python's signs, fmod has C's") {
  for (const DType t : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8})
    for (double a = -7; a <= 7; ++a)
      for (double b = -3; b <= 3; ++b) {
        if (b == 0) continue;
        CHECK(run(BinaryOp::TruncDiv, t, a, b) == std::trunc(a / b));
        CHECK(run(BinaryOp::FloorDiv, t, a, b) == floor_div(a, b));
        CHECK(run(BinaryOp::Remainder, t, a, b) == a - b * floor_div(a, b));
        CHECK(run(BinaryOp::Fmod, t, a, b) == std::fmod(a, b));
      }
  CHECK(run(BinaryOp::FloorDiv, kUInt8, 200, 7) == 28);
  CHECK(run(BinaryOp::Remainder, kUInt8, 200, 7) == 4);
}

TEST_CASE("binary: float division by zero and by infinity") {
  for (const DType t : kFloats) {
    CHECK(run(BinaryOp::FloorDiv, t, 1, 0) == kInf);
    CHECK(std::isnan(run(BinaryOp::FloorDiv, t, 0, 0)));
    CHECK(std::isnan(run(BinaryOp::Remainder, t, 1, 0)));
    CHECK(run(BinaryOp::Remainder, t, 1, kInf) == 1);
    CHECK(run(BinaryOp::Remainder, t, 5.5, -2) == -0.5);
    CHECK(std::signbit(run(BinaryOp::FloorDiv, t, -0.0, 1)));
  }
}

TEST_CASE("binary: the least integer divided by -1 wraps") {
  const double least[] = {-9223372036854775808.0, -2147483648.0, -32768, -128};
  const DType types[] = {kInt64, kInt32, kInt16, kInt8};
  for (int k = 0; k < 4; ++k) {
    CHECK(run(BinaryOp::TruncDiv, types[k], least[k], -1) == least[k]);
    CHECK(run(BinaryOp::FloorDiv, types[k], least[k], -1) == least[k]);
    CHECK(run(BinaryOp::Remainder, types[k], least[k], -1) == 0);
    CHECK(run(BinaryOp::Fmod, types[k], least[k], -1) == 0);
  }
}

TEST_CASE("binary: an integer divided by 0 is reported by its position") {
  Numbers numbers;
  for (const DType t : kIntegers)
    for (const BinaryOp op : {BinaryOp::TruncDiv, BinaryOp::FloorDiv, BinaryOp::Remainder, BinaryOp::Fmod})
      for (const Layout layout : kLayouts) {
        const Array a = Array(t, {30, 70}, layout).fill(numbers);
        Array b(t, {30, 70}, layout), row(t, {70}), out(t, {30, 70});
        b.fill({3.0}), row.fill({2.0});
        Context& c = ctx();
        cpu().binary(c, {out.view, a.view, b.view, {op}});
        CHECK_FALSE(c.error.set);
        b.set(1234, 0), b.set(1999, 0), row.set(42, 0);
        Context& d = ctx();
        cpu().binary(d, {out.view, a.view, b.view, {op}});
        CHECK((d.error.set && d.error.position == 1234));
        CHECK(out.get(1234) == 0);
        Context& e = ctx();
        cpu().binary(e, {out.view, a.view, row.view, {op}});
        CHECK((e.error.set && e.error.position == 42));
        Context& f = ctx();
        cpu().binary(f, {out.view, a.view, TensorView(0, t), {op}});
        CHECK((f.error.set && f.error.position == 0));
      }
  ctx();
}

TEST_CASE("binary: powers") {
  for (const DType t : {kInt64, kInt32, kInt16, kInt8})
    for (double a = -3; a <= 3; ++a)
      for (double b = -3; b <= 4; ++b)
        CHECK(run(BinaryOp::Pow, t, a, b) == (b < 0 ? (std::abs(a) == 1 ? std::pow(a, b) : 0) : std::pow(a, b)));
  CHECK(run(BinaryOp::Pow, kUInt8, 3, 6) == 729 % 256);
  CHECK(run(BinaryOp::Pow, kBool, 0, 0) == 1);
  for (const DType t : kFloats) {
    CHECK(run(BinaryOp::Pow, t, 0, -1) == kInf);
    CHECK(std::isnan(run(BinaryOp::Pow, t, -8, 0.25)));
    CHECK(run(BinaryOp::Pow, t, 2, 0.5) == rounded(t, t == kFloat64 ? std::sqrt(2.0) : double(std::sqrt(2.0f))));
    CHECK(run(BinaryOp::Atan2, t, 1, 1) == rounded(t, M_PI / 4));
  }
}
