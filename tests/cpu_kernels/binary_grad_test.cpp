#include "operands.h"

using namespace kernel_tests;

namespace {
double phi(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double gelu_slope(double x) { return phi(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double silu_of(double x) { return x / (1 + std::exp(-x)); }
/// The slope of f by central differences, for formulas that are easier to get right than their derivative.
template <class F> double slope(F f, double x) { return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5; }
}  // namespace

TEST_CASE("binary: gradients of activations") {
  struct Case {
    BinaryParams p;
    std::function<double(double, double)> f;
    double tolerance;
  };
  const Case cases[] = {
      {{BinaryOp::ReluGrad}, [](double g, double y) { return y > 0 ? g : 0; }, 0},
      {{BinaryOp::SigmoidGrad}, [](double g, double y) { return g * y * (1 - y); }, 1e-6},
      {{BinaryOp::TanhGrad}, [](double g, double y) { return g * (1 - y * y); }, 1e-6},
      {{BinaryOp::GeluGrad, 0}, [](double g, double x) { return g * gelu_slope(x); }, 2e-6},
      {{BinaryOp::GeluGrad, 1}, [](double g, double x) { return g * slope(gelu_tanh, x); }, 2e-6},
      {{BinaryOp::SiluGrad}, [](double g, double x) { return g * slope(silu_of, x); }, 2e-6},
      {{BinaryOp::LeakyReluGrad, 0.25}, [](double g, double x) { return x > 0 ? g : 0.25 * g; }, 0},
      {{BinaryOp::ClampGrad, -1.0, 2.0}, [](double g, double x) { return x > -1 && x < 2 ? g : 0; }, 0},
  };
  Numbers numbers;
  for (const Case& c : cases)
    for (const DType t : kFloats)
      for (const Layout layout : kLayouts) {
        const Array g = Array(t, {11, 80}, layout).fill(numbers), x = Array(t, {11, 80}).fill(numbers);
        Array out(t, {11, 80}, layout);
        cpu().binary(ctx(), {out.view, g.view, x.view, c.p});
        double worst = 0;
        for (int64_t i = 0; i < out.numel(); ++i) {
          const double want = c.f(g.get(i), x.get(i));
          worst = std::max(worst, std::abs(out.get(i) - want) / (1 + std::abs(want)));
        }
        INFO(int(c.p.op) << " " << name_of(t));
        CHECK(worst <= std::max(c.tolerance, t == kFloat16 || t == kBFloat16 ? epsilon(t) : 0));
      }
}

TEST_CASE("binary: a gradient that is cut is 0, whatever comes in") {
  const Array g = Array(kFloat32, {3}).fill({kInf, kNaN, -kInf}), x = Array(kFloat32, {3}).fill({-3.0});
  Array out(kFloat32, {3});
  for (const BinaryOp op : {BinaryOp::ReluGrad, BinaryOp::ClampGrad}) {
    cpu().binary(ctx(), {out.view, g.view, x.view, {op, 0.0, 1.0}});
    CHECK(difference(out, [](int64_t) { return 0; }) == "");
  }
}
