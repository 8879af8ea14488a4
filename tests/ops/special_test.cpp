#include "helpers.h"

TEST_CASE("special functions: poles, infinities, ends of their domain") {
  CHECK(close(values(digamma(leaf({0, -0.0, -1, kInf, -kInf, kNan}))), {-kInf, kInf, kNan, kInf, kNan, kNan}));
  CHECK(close(values(digamma(leaf({1, 0.5, -1.5}))), {-0.57721566490153286, -1.9635100260214235, 0.70315664064524319},
              1e-14));
  CHECK(close(values(polygamma(1, leaf({0, -2, 1, -0.5, kInf}))),
              {kInf, kInf, 1.6449340668482264, 8.9348022005446793, 0}, 1e-14));
  CHECK(close(values(polygamma(2, leaf({0, 1, -0.5}))), {-kInf, -2.4041138063191886, -0.82879664423431999}, 1e-12));
  CHECK(close(values(polygamma(3, leaf({-1e15 - 0.5, 0.5}))), {2 * 97.409091034002437, 97.409091034002437}, 1e-9));
  CHECK(close(values(lgamma(leaf({0, -1, 1, 2, kInf, -kInf, 0.5}))),
              {kInf, kInf, 0, 0, kInf, kInf, 0.57236494292470009}));
  CHECK(
      close(values(erfinv(leaf({0, 1, -1, 2, 0.5, 1e-300}))), {0, kInf, -kInf, kNan, 0.47693627620446987, 8.862e-301}));
  CHECK(close(values(erfinv(floats({0.999999f, -1e-30f, 1.5f}))),
              {erfinv(leaf({double(0.999999f)})).item(), -8.8622693e-31, kNan}));
  CHECK(close(values(sinc(leaf({0, 0.5, 1, kInf}))), {1, 2 / M_PI, 0, kNan}));
  CHECK(values(logit(floats({0, 1, 0.5, 2}))).at(1) == kInf);
  CHECK(
      close(values(logit(leaf({0, 1, 0.5, 2}), 0.6)), {std::log(1.5), -std::log(1.5), std::log(1.5), -std::log(1.5)}));
  CHECK(close(values(logit(leaf({0.5, -1}), -1.0)), {0, kNan}));
  CHECK(close(values(xlogy(leaf({0, 0, 0, 2, kNan}), leaf({0, -1, kNan, 0, 1}))), {0, 0, kNan, -kInf, kNan}));
  CHECK(close(values(xlogy(0, leaf({0, kNan}))), {0, kNan}));
  CHECK(close(values(logaddexp(leaf({kInf, -kInf, 1000, kNan}), leaf({kInf, -kInf, 1000, kInf}))),
              {kInf, -kInf, 1000 + std::log(2), kNan}));
  CHECK(close(values(logaddexp2(leaf({-kInf, 3}), leaf({-kInf, 3}))), {-kInf, 4}));
  CHECK(has(error_of([] { polygamma(-1, ones({2})); }), "[polygamma] expected an order n"));
  CHECK(digamma(tensor({1, 2})).dtype() == kFloat32);
}

TEST_CASE("digamma close to its poles") {
  const Values y = values(digamma(tensor(std::vector<double>{-1e-30, -1e-9, -3 + 1e-9, -0.5})));
  CHECK(y[0] == Approx(1e30));
  CHECK(y[1] == Approx(1e9));
  CHECK(y[2] == Approx(-1e9).epsilon(1e-5));
  CHECK(y[3] == Approx(0.03648997397857652));
}

TEST_CASE("special functions: derivatives where formulas would divide by 0") {
  const Tensor x = leaf({0, 0.3, -1});
  CHECK(close(values(grad({sum(sinc(x))}, {x})[0]),
              {0, (std::cos(0.3 * M_PI) - std::sin(0.3 * M_PI) / (0.3 * M_PI)) / 0.3, 1}, 1e-12));
  const Tensor g = grad({sum(sinc(x))}, {x}, {}, {.create_graph = true})[0];
  CHECK(close({values(grad({sum(g)}, {x})[0])[0]}, {-M_PI * M_PI / 3}, 1e-12));
  CHECK(gradients_hold([](const Tensor& x) { return sinc(x); }, {leaf({0.3, -1.2, 1e-4})}));
  const Tensor p = leaf({0, 0.5, 1, 1.5});
  CHECK(close(values(grad({sum(logit(p))}, {p})[0]), {kInf, 4, kInf, kNan}));
  CHECK(close(values(grad({sum(logit(p, 0.1))}, {p})[0]), {0, 4, 0, 0}));
  const Tensor a = leaf({0, 0, 2}), b = leaf({0, 1, 3});
  CHECK(close(values(grad({sum(xlogy(a, b))}, {a})[0]), {0, 0, std::log(3)}));
}

TEST_CASE("nan_to_num: the dtype's ends, integers") {
  const Tensor x = leaf({kNan, kInf, -kInf, 2});
  CHECK(values(nan_to_num(to(x, kFloat16))) == Values{0, 65504, -65504, 2});
  CHECK(values(nan_to_num(x)).at(1) == std::numeric_limits<double>::max());
  CHECK(std::isfinite(values(nan_to_num(to(x, kBFloat16))).at(1)));
  CHECK(values(nan_to_num(x, {.nan = 1, .posinf = 7})).at(1) == 7);
  CHECK(values(nan_to_num(tensor({-3, 4}), {.nan = 1.5})) == Values{-3, 4});
  CHECK(values(grad({sum(nan_to_num(x))}, {x})[0]) == Values{0, 0, 0, 1});
}

TEST_CASE("round to decimals; frac, positive and signbit") {
  const Tensor x = leaf({1.25, -1.35, 125, -0.04});
  CHECK(close(values(round(x, 1)), {1.2, -1.4, 125, -0.0}));
  CHECK(close(values(round(x, -1)), {0, -0.0, 120, -0.0}));
  CHECK(has(error_of([] { round(tensor({125}), -1); }), "[round] expected a tensor of floating point dtype"));
  CHECK(has(error_of([] { frac(tensor({125})); }), "[frac]"));
  CHECK(has(error_of([] { positive(tensor({true})); }), "[positive]"));
  CHECK(positive(x).is_same(x));
  CHECK(signbit(floats({-0.0, 0, -1, kInf})).to_vector<bool>() == std::vector<bool>{true, false, true, false});
  CHECK(signbit(tensor({-1, 0})).to_vector<bool>() == std::vector<bool>{true, false});
}
