#include "operands.h"

#include <bit>

using namespace kernel_tests;

namespace {
struct Function {
  const char* name;
  UnaryOp op;
  double ulps;  // allowed for float32
  double (*exact)(double);
  double a = 0;
  double least = 0x1p-149;  // the smallest unit that counts: x e^x loses the bits that a denormal e^x has lost
};
double phi(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double gelu(double x) { return x * phi(x); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x))); }
double mish(double x) { return x * std::tanh(softplus(x)); }

const Function kFunctions[] = {
    {"exp", UnaryOp::Exp, 1.5, std::exp},
    {"expm1", UnaryOp::Expm1, 2, std::expm1},
    {"log", UnaryOp::Log, 1.5, std::log},
    {"log1p", UnaryOp::Log1p, 2.5, std::log1p},
    {"log2", UnaryOp::Log2, 1.5, std::log2},
    {"log10", UnaryOp::Log10, 2, std::log10},
    {"tanh", UnaryOp::Tanh, 3, std::tanh},
    {"sigmoid", UnaryOp::Sigmoid, 3, sigmoid},
    {"silu", UnaryOp::Silu, 4, silu, 0, 0x1p-142},
    {"erf", UnaryOp::Erf, 2.5, std::erf},
    {"gelu", UnaryOp::Gelu, 5, gelu, 0, 0x1p-142},
    {"sin", UnaryOp::Sin, 2, std::sin},
    {"cos", UnaryOp::Cos, 2, std::cos},
    {"tan", UnaryOp::Tan, 2, std::tan},
    {"asin", UnaryOp::Asin, 2, std::asin},
    {"acos", UnaryOp::Acos, 2, std::acos},
    {"atan", UnaryOp::Atan, 2, std::atan},
    {"sinh", UnaryOp::Sinh, 2.5, std::sinh},
    {"cosh", UnaryOp::Cosh, 2.5, std::cosh},
    {"exp2", UnaryOp::Exp2, 1.5, std::exp2},
    {"asinh", UnaryOp::Asinh, 3, std::asinh},
    {"acosh", UnaryOp::Acosh, 4, std::acosh},
    {"atanh", UnaryOp::Atanh, 4, std::atanh},
    {"erfc", UnaryOp::Erfc, 6, std::erfc, 0, 0x1p-142},
    {"lgamma", UnaryOp::Lgamma, 6, [](double x) { return std::lgamma(x); }},
    {"mish", UnaryOp::Mish, 6, mish, 0, 0x1p-142},
    {"logsigmoid", UnaryOp::LogSigmoid, 2.5, [](double x) { return -softplus(-x); }},
    {"softsign", UnaryOp::Softsign, 2, [](double x) { return x / (1 + std::abs(x)); }},
};

/// Distance in units of the last place of the float32 nearest to `exact`.
double ulps(float got, double exact, double least) {
  const float want = float(exact);
  if (std::isnan(exact) || std::isinf(want)) return same(got, want) ? 0 : 1e9;
  const double unit = std::max(std::ldexp(1.0, std::ilogb(want == 0 ? 1e-45f : want) - 23), least);
  return std::abs(double(got) - exact) / unit;
}
}  // namespace

TEST_CASE("unary: float32 functions are right to a few ulp, over all exponents and for every special value") {
  std::vector<float> inputs = {0.0f,   -0.0f,  INFINITY, -INFINITY, NAN,   1.0f,   -1.0f, 88.72f,
                               88.73f, -87.4f, -103.9f,  -104.1f,   1e30f, -1e30f, 1e-45f};
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 10007) inputs.push_back(std::bit_cast<float>(uint32_t(bits)));
  for (int i = 0; i < 200000; ++i) inputs.push_back(float(i - 100000) * 2.1e-4f);  // where functions bend
  for (int i = 0; i < 20000; ++i) inputs.push_back(float(i) * 50.3f);              // many periods
  Array x(kFloat32, {int64_t(inputs.size())}), out(kFloat32, {int64_t(inputs.size())});
  for (size_t i = 0; i < inputs.size(); ++i) x.view.as<float>()[i] = inputs[i];
  for (const Function& f : kFunctions) {
    cpu().unary(ctx(), {out.view, x.view, {f.op, f.a}});
    double worst = 0;
    float where = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double error = ulps(out.view.as<float>()[i], f.exact(double(inputs[i])), f.least);
      if (error > worst) worst = error, where = inputs[i];
    }
    INFO(f.name << " at " << where << ": " << worst << " ulp");
    CHECK(worst <= f.ulps);
  }
}

TEST_CASE("unary: signs of zero stay") {
  for (const UnaryOp op : {UnaryOp::Expm1, UnaryOp::Log1p, UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Sin}) {
    const Array x = Array(kFloat32, {2}).fill({0.0, -0.0});
    Array out(kFloat32, {2});
    cpu().unary(ctx(), {out.view, x.view, {op}});
    CHECK((out.get(0) == 0 && !std::signbit(out.get(0)) && out.get(1) == 0 && std::signbit(out.get(1))));
  }
}

TEST_CASE("unary: functions of the other float dtypes and layouts") {
  Numbers numbers;
  for (const Function& f : kFunctions)
    for (const DType t : {kFloat64, kFloat16, kBFloat16})
      for (const Layout layout : kLayouts) {
        const Array x = Array(t, {9, 140}, layout).fill(numbers);
        Array out(t, {9, 140});
        cpu().unary(ctx(), {out.view, x.view, {f.op, f.a}});
        INFO(f.name);
        REQUIRE(difference(
                    out, [&](int64_t i) { return f.exact(x.get(i)); }, t == kFloat64 ? 8 : 1) == "");
      }
  for (const DType t : kFloats) {
    const Array x = Array(t, {500}).fill(numbers);
    Array out(t, {500});
    cpu().unary(ctx(), {out.view, x.view, {UnaryOp::Gelu, 1}});
    for (int64_t i = 0; i < 500; ++i)
      CHECK(std::abs(out.get(i) - gelu_tanh(x.get(i))) <= 8 * epsilon(t) * (1 + std::abs(x.get(i))));
  }
}

TEST_CASE("unary: powers by a number") {
  const std::vector<double> values = {0, 1, -1, 2, 0.5, -3, 7, kInf, -kInf, kNaN};
  for (const DType t : kFloats)
    for (const double a : {0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 4.0, 1.0 / 3}) {
      const Array x = Array(t, {10}).fill(values);
      Array out(t, {10});
      cpu().unary(ctx(), {out.view, x.view, {UnaryOp::PowScalar, a}});
      const double exponent = t == kFloat64 ? a : double(float(a));
      const auto power = [&](int64_t i) {
        return a == 0.5 ? std::sqrt(x.get(i)) : a == -0.5 ? 1 / std::sqrt(x.get(i)) : std::pow(x.get(i), exponent);
      };
      CHECK(difference(out, power, 2) == "");
    }
}

TEST_CASE("unary: powers of many positive numbers, and of negative ones among them") {
  for (const DType t : kFloats)
    for (const double a : {2.5, -1.7, 30.0, -45.5, 0.01, kInf, -kInf, kNaN}) {
      Array x(t, {3, 333});
      for (int64_t i = 0; i < 999; ++i) x.set(i, std::exp((double(i) - 500) / 60) * (i > 900 && i % 7 == 0 ? -1 : 1));
      Array out(t, {3, 333});
      cpu().unary(ctx(), {out.view, x.view, {UnaryOp::PowScalar, a}});
      const double exponent = t == kFloat64 ? a : double(float(a));
      CHECK(difference(
                out, [&](int64_t i) { return std::pow(x.get(i), exponent); }, 2) == "");
    }
}

TEST_CASE("unary: the bits of a sine do not depend on its neighbours", "[isa]") {
  constexpr int64_t n = 1000;
  Array x(kFloat32, {n}), alone(kFloat32, {n}), beside(kFloat32, {n});
  for (const UnaryOp op : {UnaryOp::Sin, UnaryOp::Cos}) {
    for (int64_t i = 0; i < n; ++i) x.set(i, (double(i) - 500) * 0.7390851);
    cpu().unary(ctx(), {alone.view, x.view, {op}});
    for (int64_t i = 5; i < n; i += 40) x.set(i, 3e7);  // computed by the library
    cpu().unary(ctx(), {beside.view, x.view, {op}});
    for (int64_t i = 0; i < n; ++i)
      if (i % 40 != 5) REQUIRE(same(beside.get(i), alone.get(i)));
  }
}
