#include "operands.h"

using namespace kernel_tests;

TEST_CASE("binary: comparisons and logic write bool") {
  struct Case {
    BinaryOp op;
    bool (*f)(double, double);
  };
  const Case cases[] = {{BinaryOp::Eq, [](double a, double b) { return a == b; }},
                        {BinaryOp::Ne, [](double a, double b) { return a != b; }},
                        {BinaryOp::Lt, [](double a, double b) { return a < b; }},
                        {BinaryOp::Le, [](double a, double b) { return a <= b; }},
                        {BinaryOp::Gt, [](double a, double b) { return a > b; }},
                        {BinaryOp::Ge, [](double a, double b) { return a >= b; }},
                        {BinaryOp::LogicalAnd, [](double a, double b) { return a != 0 && b != 0; }},
                        {BinaryOp::LogicalOr, [](double a, double b) { return a != 0 || b != 0; }},
                        {BinaryOp::LogicalXor, [](double a, double b) { return (a != 0) != (b != 0); }}};
  Numbers numbers;
  for (const DType t : kAllDTypes)
    for (const Layout layout : kLayouts)
      for (const Case& c : cases) {
        Array a = Array(t, {9, 130}, layout).fill(numbers), b = Array(t, {9, 130}).fill(numbers),
              out(kBool, {9, 130}, layout);
        for (int64_t i = 0; i < 400; ++i) b.set(i, a.get(i));
        if (is_floating(t)) a.set(7, kNaN), b.set(500, kNaN);
        cpu().binary(ctx(), {out.view, a.view, b.view, {c.op}});
        REQUIRE(difference(out, [&](int64_t i) { return c.f(a.get(i), b.get(i)); }) == "");
        cpu().binary(ctx(), {out.view, a.view, TensorView(1, t), {c.op}});
        REQUIRE(difference(out, [&](int64_t i) { return c.f(a.get(i), 1); }) == "");
      }
}

TEST_CASE("binary: bits of integers and bool") {
  Numbers numbers;
  for (const DType t : {kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    const Array a = Array(t, {300}).fill(numbers), b = Array(t, {300}).fill(numbers);
    Array out(t, {300});
    cpu().binary(ctx(), {out.view, a.view, b.view, {BinaryOp::BitwiseAnd}});
    CHECK(difference(out, [&](int64_t i) { return double(int64_t(a.get(i)) & int64_t(b.get(i))); }) == "");
    cpu().binary(ctx(), {out.view, a.view, b.view, {BinaryOp::BitwiseOr}});
    CHECK(difference(out, [&](int64_t i) { return double(int64_t(a.get(i)) | int64_t(b.get(i))); }) == "");
    cpu().binary(ctx(), {out.view, a.view, b.view, {BinaryOp::BitwiseXor}});
    CHECK(difference(out, [&](int64_t i) { return double(int64_t(a.get(i)) ^ int64_t(b.get(i))); }) == "");
  }
}
