#include "helpers.h"

namespace {
struct Case {
  const char* name;
  Tensor (*f)(const Tensor&);
  Tensor& (*in_place)(Tensor&);
  double (*expected)(double);
  double low, high;  // where it is differentiable
};
#define CASE(name, low, high)                                                      \
  Case {                                                                           \
#name, name, name##_, [](double x) { return double(std::name(x)); }, low, high \
  }
double sign_of(double x) { return (x > 0) - (x < 0); }
const std::vector<Case> cases = {
    CASE(abs, 0.3, 2),
    CASE(exp, -2, 2),
    CASE(expm1, -2, 2),
    CASE(log, 0.2, 3),
    CASE(log1p, -0.8, 3),
    CASE(log2, 0.2, 3),
    CASE(log10, 0.2, 3),
    CASE(sqrt, 0.2, 3),
    CASE(sin, -3, 3),
    CASE(cos, -3, 3),
    CASE(tan, -1, 1),
    CASE(asin, -0.8, 0.8),
    CASE(acos, -0.8, 0.8),
    CASE(atan, -3, 3),
    CASE(sinh, -2, 2),
    CASE(cosh, -2, 2),
    CASE(erf, -2, 2),
    CASE(floor, 0.1, 0.9),
    CASE(ceil, 0.1, 0.9),
    CASE(trunc, 0.1, 0.9),
    {"round", [](const Tensor& x) { return round(x); }, [](Tensor& x) -> Tensor& { return round_(x); },
     [](double x) { return std::nearbyint(x); }, 0.6, 1.4},
    {"rsqrt", rsqrt, rsqrt_, [](double x) { return 1 / std::sqrt(x); }, 0.2, 3},
    {"reciprocal", reciprocal, reciprocal_, [](double x) { return 1 / x; }, 0.3, 3},
    {"square", square, square_, [](double x) { return x * x; }, -2, 2},
    {"sign", sign, sign_, sign_of, 0.2, 2},
    {"tanh", tanh, tanh_, [](double x) { return std::tanh(x); }, -2, 2},
    {"sigmoid", sigmoid, sigmoid_, [](double x) { return 1 / (1 + std::exp(-x)); }, -2, 2},
};
}  // namespace

TEST_CASE("functions of one operand: values, any strides, in place") {
  for (const Case& c : cases) {
    INFO(c.name);
    const Tensor x = add(mul(arange(0, 12, 1, {.dtype = kFloat64}), (c.high - c.low) / 11), c.low);
    Values expected;
    for (double v : values(x)) expected.push_back(c.expected(v));
    CHECK(close(values(c.f(x)), expected, 1e-12));
    CHECK(close(values(c.f(to(x, kFloat32))), expected, 1e-5));
    CHECK(c.f(to(x, kFloat16)).dtype() == kFloat16);
    const Tensor matrix = transpose(reshape(x, {3, 4}), 0, 1);
    CHECK(close(values(reshape(transpose(c.f(matrix), 0, 1), -1)), expected, 1e-12));
    Tensor y = clone(x);
    CHECK(c.in_place(y).is_same(y));
    CHECK(close(values(y), expected, 1e-12));
    CHECK(c.f(empty({0, 3})).shape() == Shape{0, 3});
    CHECK(c.f(ones({})).dim() == 0);
  }
}

TEST_CASE("functions of one operand: gradients, in place too") {
  for (const Case& c : cases) {
    INFO(c.name);
    const Tensor x = (rand({2, 3}, {.dtype = kFloat64}) * (c.high - c.low) + c.low).requires_grad_();
    CHECK(gradients_hold(c.f, {x}));
    CHECK(gradients_hold(
        [&](const Tensor& x) {
          Tensor y = x * 1.0;
          return c.in_place(y);
        },
        {x}));
  }
}

TEST_CASE("integers give float32, or stay") {
  const Tensor i = tensor({-3, 0, 4});
  CHECK(exp(i).dtype() == kFloat32);
  CHECK(sqrt(tensor({true, false})).dtype() == kFloat32);
  for (auto f : std::vector<Tensor (*)(const Tensor&)>{abs, sign, square, floor, ceil, trunc})
    CHECK(f(i).dtype() == kInt64);
  CHECK(values(abs(i)) == Values{3, 0, 4});
  CHECK(values(square(i)) == Values{9, 0, 16});
  CHECK(square(tensor({true})).dtype() == kInt64);
  CHECK(sign(tensor({true, false})).dtype() == kBool);
  CHECK(has(error_of([] { floor(tensor({true})); }), "[floor]"));
  Tensor j = clone(i);
  CHECK(has(error_of([&] { exp_(j); }), "can't be cast"));
  CHECK(values(sign(floats({kNan, -kInf, 0}))) == Values{0, -1, 0});
  CHECK(values(abs(tensor({-128}, {.dtype = kInt8}))) == Values{-128});  // BI-083: wraps
}

TEST_CASE("acosh has PyTorch's slope below -1 too") {
  const Tensor x = leaf({-2, 2, 0.5});
  CHECK(close(values(grad({sum(acosh(x))}, {x})[0]), {1 / std::sqrt(3.0), 1 / std::sqrt(3.0), kNan}));
}

TEST_CASE("tests of elements") {
  const Tensor x = floats({1, kNan, kInf, -kInf});
  CHECK(isnan(x).to_vector<bool>() == std::vector<bool>{false, true, false, false});
  CHECK(isinf(x).to_vector<bool>() == std::vector<bool>{false, false, true, true});
  CHECK(isfinite(x).to_vector<bool>() == std::vector<bool>{true, false, false, false});
  CHECK(isfinite(tensor({1, 2})).to_vector<bool>() == std::vector<bool>{true, true});
  CHECK(!isnan(leaf({1})).requires_grad());
}

TEST_CASE("a leaf that wants a gradient is not written in place") {
  Tensor x = leaf({1, 2});
  CHECK_THROWS_AS(exp_(x), ValueError);
  CHECK_THROWS_AS(abs_(x), ValueError);
  CHECK_THROWS_AS(tanh_(x), ValueError);
}
