#include "operands.h"

using namespace kernel_tests;

TEST_CASE("where: every dtype and layout, numbers as branches, NaN not mixed in") {
  Numbers numbers;
  for (const DType t : kAllDTypes)
    for (const Layout layout : kLayouts) {
      const Array a = Array(kBool, {6, 100}, layout).fill(numbers), b = Array(t, {6, 1}, layout).fill(numbers),
                  c = Array(t, {100}).fill(numbers);
      Array out(t, {6, 100}, layout);
      cpu().ternary(ctx(), {out.view, a.view, b.view, c.view, {TernaryOp::Where}});
      CHECK(difference(out, [&](int64_t i) { return a.get(i) != 0 ? b.get(i / 100) : c.get(i % 100); }) == "");
      cpu().ternary(ctx(), {out.view, a.view, b.view, TensorView(1, t), {TernaryOp::Where}});
      CHECK(difference(out, [&](int64_t i) { return a.get(i) != 0 ? b.get(i / 100) : 1; }) == "");
    }
  const Array a = Array(kBool, {2}).fill({1.0, 0.0}), b = Array(kFloat32, {2}).fill({1.0, kNaN});
  Array out(kFloat32, {2});
  cpu().ternary(ctx(), {out.view, a.view, b.view, TensorView(0.0, kFloat32), {TernaryOp::Where}});
  CHECK((out.get(0) == 1 && out.get(1) == 0));
}

TEST_CASE("ternary: products, quotients, interpolation, bounds") {
  Numbers numbers;
  for (const DType t : kAllDTypes)
    for (const Layout layout : kLayouts) {
      if (t == kBool) continue;
      const Array a = Array(t, {5, 90}, layout).fill(numbers), b = Array(t, {5, 90}).fill(numbers),
                  c = Array(t, {90}).fill(numbers);
      Array out(t, {5, 90}, layout);
      const auto check = [&](TernaryParams p, double ulps, auto f) {
        cpu().ternary(ctx(), {out.view, a.view, b.view, c.view, p});
        const auto expected = [&](int64_t i) {
          const double v = f(a.get(i), b.get(i), c.get(i % 90));
          return t == kInt8 ? double(int8_t(int64_t(v))) : t == kUInt8 ? double(uint8_t(int64_t(v))) : v;
        };
        if (is_floating(t)) {
          CHECK(difference(
                    out, [&](int64_t i) { return f(a.get(i), b.get(i), c.get(i % 90)); }, ulps) == "");
        } else {
          CHECK(difference(out, expected) == "");
        }
      };
      check({TernaryOp::AddCMul, 2}, 1, [](double x, double y, double z) { return x + 2 * y * z; });
      check({TernaryOp::Clamp}, 0, [](double x, double y, double z) { return std::min(std::max(x, y), z); });
      if (!is_floating(t)) continue;
      cpu().ternary(ctx(), {out.view, a.view, b.view, c.view, {TernaryOp::AddCDiv, 0.5}});
      for (int64_t i = 0; i < out.numel(); ++i) {
        const double q = 0.5 * b.get(i) / c.get(i % 90), want = a.get(i) + q;
        CHECK((same(out.get(i), want) ||
               std::abs(out.get(i) - want) <= 4 * epsilon(t) * (std::abs(q) + std::abs(a.get(i)))));
      }
      cpu().ternary(ctx(), {out.view, a.view, b.view, c.view, {TernaryOp::Lerp}});
      for (int64_t i = 0; i < out.numel(); ++i) {
        const double z = c.get(i % 90), want = a.get(i) + z * (b.get(i) - a.get(i));
        CHECK(std::abs(out.get(i) - want) <= 64 * epsilon(t) * 8);
      }
    }
  const Array x = Array(kFloat32, {3}).fill({kNaN, 1.0, 1.0}), low = Array(kFloat32, {3}).fill({0.0, kNaN, 0.0}),
              high = Array(kFloat32, {3}).fill({2.0, 2.0, kNaN});
  Array out(kFloat32, {3});
  cpu().ternary(ctx(), {out.view, x.view, low.view, high.view, {TernaryOp::Clamp}});
  CHECK(difference(out, [](int64_t) { return kNaN; }) == "");
}
