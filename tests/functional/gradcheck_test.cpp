#include <tapir/autograd/record.h>

#include "../ops/helpers.h"

TEST_CASE("gradcheck passes what is right, in both modes and for several inputs and outputs") {
  const Tensor x = leaf({0.5, -1.5, 2, 3}, {2, 2}), y = leaf({1, 2}),
               constant = tensor({3.0, 4.0}, {.dtype = kFloat64});
  CHECK(gradcheck([](const Tensor& a) { return mul(a, a); }, {x}));
  CHECK(gradcheck([](const Tensor& a, const Tensor& b) { return add(mul(a, b), b); }, {x, y}, {.full = true}));
  CHECK(gradcheck(
      [](const Tensor& a, const Tensor& b) {
        return std::vector<Tensor>{mul(a, b), sum(a)};
      },
      {x, constant}));
  CHECK(gradcheck([](const std::vector<Tensor>& v) { return div(v[0], v[1]); }, {x, y}));
  CHECK(gradgradcheck([](const Tensor& a, const Tensor& b) { return div(a, b); }, {x, y}));
  CHECK(gradgradcheck([](const Tensor& a) { return mul(a, 3); }, {x}));  // linear: only the incoming gradient matters
  CHECK(gradcheck([](const Tensor& a) { return sum(a, 1); }, {transpose(x.detach(), 0, 1).requires_grad_()}));
}

/// x^2 with a gradient that is wrong for one element.
static Tensor wrong_square(const Tensor& x) {
  return record("wrong", mul(x.detach(), x.detach()), {x}, save(x), [](const Tensor& g, const Tensor& x) {
    return Grads{mul(mul(g, x), tensor({2.0, 2.0, 2.5}, {.dtype = kFloat64}))};
  });
}

TEST_CASE("gradcheck names the input, the flat index and both values") {
  const Tensor y = leaf({1, 1, 1}), x = leaf({1, 2, 3});
  const auto f = [](const Tensor& y, const Tensor& x) { return mul(y, wrong_square(x)); };
  for (bool full : {false, true}) {
    const std::string text = error_of([&] { gradcheck(f, {y, x}, {.full = full}); });
    CHECK(has(text, "[gradcheck] input 1, element 2"));
    CHECK(has(text, "7.5 (analytic)"));
    CHECK(has(text, "numeric"));
  }
}

TEST_CASE("BI-183 gradcheck finds a result without history, and gradgradcheck a gradient without one") {
  const Tensor x = leaf({1, 2, 3});
  CHECK_THROWS_AS(gradcheck([](const Tensor& x) { return mul(x.detach(), 2); }, {x}), ValueError);
  const auto cut = [](const Tensor& x) {
    return record("cut", mul(x.detach(), x.detach()), {x}, save(x),
                  [](const Tensor& g, const Tensor& x) { return Grads{mul(g, mul(x.detach(), 2))}; });
  };
  CHECK(gradcheck(cut, {x}));
  CHECK(has(error_of([&] { gradgradcheck(cut, {x}); }), "[gradgradcheck] input 0"));
}

TEST_CASE("gradcheck refuses inputs that it cannot judge") {
  const auto f = [](const Tensor& x) { return mul(x, 2); };
  CHECK(has(error_of([&] { gradcheck(f, {ones({2}).requires_grad_()}); }), "expected float64 inputs"));
  CHECK(has(error_of([&] { gradcheck(f, {ones({2})}); }), "at least one input"));
}
