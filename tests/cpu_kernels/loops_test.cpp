#include "operands.h"

#include <cmath>

using namespace kernel_tests;

namespace {
/// a + b for shapes that broadcast, against a naive loop.
void check_add(DType t, const Shape& shape, const Shape& sa, const Shape& sb, Layout lo, Layout la, Layout lb) {
  Numbers numbers;
  const Array a = Array(t, sa, la).fill(numbers), b = Array(t, sb, lb).fill(numbers);
  Array out(t, shape, lo);
  cpu().binary(ctx(), {out.view, a.view, b.view, {BinaryOp::Add}});
  const TensorView wa = a.view.expand(shape), wb = b.view.expand(shape);
  const auto at = [](const TensorView& v, int64_t flat) {
    int64_t place = 0;
    for (int64_t d = v.rank; d-- > 0; flat /= v.sizes[d]) place += flat % v.sizes[d] * v.strides[d];
    return load(v.dtype, v.data, place);
  };
  const auto sum = [&](int64_t i) {
    const double v = at(wa, i) + at(wb, i);
    return t == kBool ? v != 0 : t == kUInt8 ? double(uint8_t(v)) : v;
  };
  REQUIRE(difference(out, sum) == "");
}
}  // namespace

TEST_CASE("Pointwise loops: every dtype, layout and kind of broadcasting") {
  for (const DType t : kAllDTypes)
    for (const Layout lo : kLayouts)
      for (const Layout la : {Layout::Dense, Layout::Reversed, Layout::Gaps, Layout::Repeated})
        for (const Layout lb : kLayouts) {
          check_add(t, {3, 4, 5}, {3, 4, 5}, {3, 4, 5}, lo, la, lb);
          check_add(t, {6, 70}, {6, 1}, {70}, lo, la, lb);
          check_add(t, {6, 70, 3}, {6, 1, 3}, {70, 1}, lo, la, lb);
          check_add(t, {5, 1030}, {5, 1030}, {1}, lo, la, lb);
          check_add(t, {700, 3}, {3}, {700, 3}, lo, la, lb);
          check_add(t, {37, 90}, {37, 90}, {37, 90}, lo, la, lb);
          check_add(t, {2, 37, 90}, {37, 90}, {2, 37, 1}, lo, la, lb);
          check_add(t, {}, {}, {}, lo, la, lb);
          check_add(t, {1, 1}, {}, {1}, lo, la, lb);
          check_add(t, {0, 5}, {5}, {0, 5}, lo, la, lb);
        }
  Numbers numbers;
  const Array square = Array(kFloat32, {160, 160}).fill(numbers);
  TensorView turned = square.view;
  std::swap(turned.strides[0], turned.strides[1]);
  for (const DType t : {kFloat32, kFloat16}) {
    Array out(t, {160, 160});
    cpu().binary(ctx(), {out.view, square.view, turned, {BinaryOp::Sub}});
    CHECK(difference(out, [&](int64_t i) { return square.get(i) - square.get(i % 160 * 160 + i / 160); }) == "");
  }
  const Shape deep{2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 3},
      half{1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1};
  for (const Layout layout : kLayouts) check_add(kFloat32, deep, deep, half, layout, layout, layout);
}

TEST_CASE("Pointwise loops: what repeats, into results of every layout") {
  Numbers numbers;
  for (const DType t : kFloats)
    for (const Layout layout : kLayouts) {
      const Array row = Array(t, {1, 90}).fill(numbers), column = Array(t, {37, 1}).fill(numbers);
      const auto root = [](double x) { return std::sqrt(std::abs(x)); };
      Array a(t, {37, 90}, layout), b(t, {37, 90}, layout), c(t, {2, 37, 90}, layout), positive(t, {1, 90});
      for (int64_t i = 0; i < 90; ++i) positive.set(i, std::abs(row.get(i)));
      cpu().unary(ctx(), {a.view, positive.view, {UnaryOp::Sqrt}});
      CHECK(difference(a, [&](int64_t i) { return root(row.get(i % 90)); }) == "");
      cpu().binary(ctx(), {b.view, column.view, TensorView(2.0, t), {BinaryOp::Div}});
      CHECK(difference(b, [&](int64_t i) { return column.get(i / 90) / 2; }) == "");
      cpu().binary(ctx(), {c.view, row.view, TensorView(4.0, t), {BinaryOp::Div}});
      CHECK(difference(c, [&](int64_t i) { return row.get(i % 90) / 4; }) == "");
    }
}

TEST_CASE("Pointwise loops: a number as operand keeps the precision of the computation") {
  Numbers numbers;
  for (const DType t : kFloats)
    for (const Layout layout : kLayouts) {
      const Array a = Array(t, {5, 300}, layout).fill(numbers);
      Array out(t, {5, 300});
      const double k = t == kFloat64 ? 0.1 : double(0.1f);
      cpu().binary(ctx(), {out.view, a.view, TensorView(0.1, t), {BinaryOp::Mul}});
      CHECK(difference(out, [&](int64_t i) { return a.get(i) * k; }) == "");
      cpu().binary(ctx(), {out.view, TensorView(1.0, t), a.view, {BinaryOp::Sub}});
      CHECK(difference(out, [&](int64_t i) { return 1 - a.get(i); }) == "");
    }
  Array one(kInt32, {});
  cpu().binary(ctx(), {one.view, TensorView(3, kInt32), TensorView(4, kInt32), {BinaryOp::Add}});
  CHECK(one.get(0) == 7);
}

TEST_CASE("Pointwise loops: in place, on every layout") {
  Numbers numbers;
  for (const DType t : {kFloat32, kFloat16, kInt8})
    for (const Layout layout : kLayouts) {
      Array a = Array(t, {40, 50}, layout).fill(numbers);
      const Array before = a, row = Array(t, {50}).fill(numbers);
      cpu().binary(ctx(), {a.view, a.view, row.view, {BinaryOp::Add}});
      CHECK(difference(a, [&](int64_t i) { return before.get(i) + row.get(i % 50); }) == "");
      cpu().binary(ctx(), {a.view, a.view, a.view, {BinaryOp::Sub}});
      CHECK(difference(a, [&](int64_t) { return 0; }) == "");
    }
}

TEST_CASE("Pointwise loops: the result does not depend on the threads") {
  Numbers numbers;
  for (const Layout layout : kLayouts) {
    Array x(kFloat32, {70, 1999}, layout);
    for (int64_t i = 0; i < x.numel(); ++i) x.set(i, double(numbers.next()) * 0x1p-29);
    for (const UnaryOp op : {UnaryOp::Exp, UnaryOp::Gelu, UnaryOp::Sin, UnaryOp::Tanh})
      check_threads([&] {
        Array out(kFloat32, {70, 1999});
        cpu().unary(ctx(), {out.view, x.view, {op}});
        return out.memory;
      });
    check_threads([&] {
      Array out(kFloat32, {70, 1999});
      cpu().ternary(ctx(), {out.view, x.view, x.view, x.view, {TernaryOp::AddCMul, 0.3}});
      return out.memory;
    });
  }
}
