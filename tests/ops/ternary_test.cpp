#include <functional>

#include "helpers.h"

TEST_CASE("where") {
  const Tensor c = tensor({true, false, true}), a = floats({1, 2, 3}), b = floats({10, 20, 30});
  CHECK(values(where(c, a, b)) == Values{1, 20, 3});
  CHECK(values(where(c, a, 0)) == Values{1, 0, 3});
  CHECK(where(c, 1, 2.5).dtype() == kFloat32);
  CHECK(where(c, tensor({true}), 7).dtype() == kInt64);
  CHECK(where(c, ones({2, 1}), zeros({1})).shape() == Shape{2, 3});
  CHECK(close(values(where(c, tensor({true, true, false}), b)), {1, 20, 0}));
  CHECK(has(error_of([&] { where(a, a, b); }), "mask of dtype bool"));
  CHECK(values(where(to(c, kUInt8), a, b)) == Values{1, 20, 3});
  const Tensor x = leaf({1, 2, 3}), y = leaf({4});
  CHECK(gradients_hold([&](const Tensor& x, const Tensor& y) { return where(c, x, y); }, {x, y}));
}

TEST_CASE("masked_fill") {
  const Tensor m = tensor({true, false, true}), x = floats({1, 2, 3});
  CHECK(values(masked_fill(x, m, 9)) == Values{9, 2, 9});
  CHECK(values(masked_fill(tensor({1, 2, 3}), m, 1.5)) == Values{1, 2, 1});
  CHECK(masked_fill(ones({3}), ones({2, 1}, {.dtype = kBool}), 0).shape() == Shape{2, 3});
  Tensor y = ones({2, 3});
  CHECK(values(masked_fill_(y, m, -kInf)) == Values{-kInf, 1, -kInf, -kInf, 1, -kInf});
  CHECK(has(error_of([&] { masked_fill(x, x, 0); }), "mask of dtype bool"));
  CHECK(has(error_of([&] { masked_fill(x, m, ones({2})); }), "0-dim tensor"));
  CHECK(has(error_of([&] { masked_fill(to(x, kFloat16), m, 1e9); }), "without overflow"));
  CHECK_THROWS_AS(masked_fill_(y, ones({4, 2, 3}, {.dtype = kBool}), 0), ValueError);
  const Tensor a = leaf({1, 2, 3}), v = leaf({7}, {});
  CHECK(gradients_hold([&](const Tensor& a, const Tensor& v) { return masked_fill(a, m, v); }, {a, v}));
  CHECK(gradients_hold(
      [&](const Tensor& a, const Tensor& v) {
        Tensor b = a * 2.0;
        return masked_fill_(b, m, v);
      },
      {a, v}));
}

TEST_CASE("clamp by numbers") {
  const Tensor x = floats({-2, 0.5, 3, kNan});
  CHECK(close(values(clamp(x, -1, 1)), {-1, 0.5, 1, kNan}));
  CHECK(close(values(clamp(x, {}, 1)), {-2, 0.5, 1, kNan}));
  CHECK(close(values(clamp_min(x, 0)), {0, 0.5, 3, kNan}));
  CHECK(close(values(clamp_max(x, 0)), {-2, 0, 0, kNan}));
  CHECK(close(values(clamp(x, 2, 1)), {1, 1, 1, kNan}));  // BI-159: max
  CHECK(close(values(clamp(x, kNan)), {kNan, kNan, kNan, kNan}));
  CHECK(has(error_of([&] { clamp(x, std::optional<Scalar>()); }), "[clamp] at least one of min or max"));
  CHECK(has(error_of([&] { clamp(x, Tensor()); }), "[clamp] at least one of min or max"));
  CHECK(clamp(tensor({1, 2}), 1.5).dtype() == kFloat32);
  const int64_t big = int64_t(1) << 60;
  CHECK(clamp(full({}, big + 5), 0, big + 1).item<int64_t>() == big + 1);
  Tensor i = tensor({1, 5});
  CHECK(values(clamp_(i, 2, 4)) == Values{2, 4});
  CHECK(has(error_of([&] { clamp_(i, 0.5); }), "can't be cast"));
  const Tensor a = leaf({-2, 0.5, 3, 0.9});
  CHECK(gradients_hold([](const Tensor& a) { return clamp(a, -1, 1); }, {a}));
  CHECK(gradients_hold(
      [](const Tensor& a) {
        Tensor b = a * 1.0;
        return clamp_max_(b, 0.7);
      },
      {a}));
  Tensor at_bound = leaf({1, -1});
  sum(clamp(at_bound, -1, 1)).backward();
  CHECK(values(at_bound.grad()) == Values{0, 0});
  const Tensor ends = leaf({-kInf, kInf, kNan});
  CHECK(values(grad({sum(clamp_min(ends, 0))}, {ends})[0]) == Values{0, 1, 0});
  CHECK(values(grad({sum(clamp_max(ends, 0))}, {ends})[0]) == Values{1, 0, 0});
}

TEST_CASE("clamp by tensors") {
  const Tensor x = floats({-2, 0.5, 3}), low = floats({-1, 1, 0}), high = floats({0, 2, 2});
  CHECK(close(values(clamp(x, low, high)), {-1, 1, 2}));
  CHECK(close(values(clamp(x, low)), {-1, 1, 3}));
  CHECK(close(values(clamp(x, Tensor(), high)), {-2, 0.5, 2}));
  CHECK(close(values(clamp(x, high, low)), {-1, 1, 0}));  // max where min is above it
  Tensor y = clone(x);
  CHECK(close(values(clamp_(y, low, high)), {-1, 1, 2}));
  const Tensor a = leaf({-2, 0.5, 3, 0.2}, {2, 2}), lo = leaf({-1, 0.3}), hi = leaf({0.7, 0.1}, {2, 1});
  CHECK(gradients_hold([](const Tensor& a, const Tensor& lo, const Tensor& hi) { return clamp(a, lo, hi); },
                       {a, lo, hi}));
  CHECK(gradients_hold([](const Tensor& a, const Tensor& lo) { return clamp_min(a, lo); }, {a, lo}));
  CHECK(gradients_hold(
      [](const Tensor& a, const Tensor& hi) {
        Tensor b = a * 1.0;
        return clamp_max_(b, hi);
      },
      {a, hi}));
}

TEST_CASE("clamp by tensors: who gets the gradient of ties") {
  const Tensor x = leaf({0, 2, 0, -1, 1, 1}), low = leaf({0, 0, 0, 0, 0, 1}), high = leaf({1, 2, 0, 0, 0, 0});
  const std::vector<Tensor> g = grad({sum(clamp(x, low, high))}, {x, low, high});
  CHECK(values(g[0]) == Values{0.5, 0.5, 1, 0, 0, 0});
  CHECK(values(g[1]) == Values{0.5, 0, 0, 1, 0, 0});
  CHECK(values(g[2]) == Values{0, 0.5, 0, 0, 1, 1});
  CHECK(values(grad({sum(clamp_min(x, low))}, {low})[0]) == Values{0.5, 0, 0.5, 1, 0, 0.5});
}

TEST_CASE("lerp, addcmul, addcdiv") {
  const Tensor a = leaf({1, 2, 3, 4}, {2, 2}), b = leaf({5, -6}), c = leaf({0.3, 0.8}, {2, 1});
  CHECK(close(values(lerp(a, b, 0.5)), {3, -2, 4, -1}));
  CHECK(close(values(addcmul(a, b, c, 2)), {4, -1.6, 11, -5.6}));
  CHECK(close(values(addcdiv(a, b, c)), {1 + 5 / 0.3, 2 - 6 / 0.3, 3 + 5 / 0.8, 4 - 6 / 0.8}));
  CHECK(gradients_hold([](const Tensor& a, const Tensor& b, const Tensor& c) { return lerp(a, b, c); }, {a, b, c}));
  CHECK(gradients_hold([](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.3); }, {a, b}));
  CHECK(gradients_hold([](const Tensor& a, const Tensor& b, const Tensor& c) { return addcmul(a, b, c, 0.7); },
                       {a, b, c}));
  CHECK(gradients_hold([](const Tensor& a, const Tensor& b, const Tensor& c) { return addcdiv(a, b, c, 0.7); },
                       {a, b, c}));
  CHECK(gradients_hold(
      [](const Tensor& a, const Tensor& b, const Tensor& c) {
        Tensor y = a * 1.0;
        return lerp_(addcdiv_(addcmul_(y, b, c), b, c, 2), b, c);
      },
      {a, b, c}));
  CHECK(values(addcmul(tensor({1}), tensor({2}), tensor({3}))) == Values{7});
  CHECK_THROWS_AS(addcdiv(tensor({1}), tensor({2}), tensor({3})), ValueError);
  CHECK_THROWS_AS(lerp(tensor({1}), tensor({2}), 0.5), ValueError);
}

TEST_CASE("in place from a part of itself: as if copied first") {
  Tensor x = tensor({1.0, 2.0, 3.0, 4.0}), head = narrow(x, 0, 1, 3), tail = narrow(x, 0, 0, 3);
  addcmul_(head, tail, tail);  // head = {2, 3, 4} + {1, 4, 9}
  CHECK(values(x) == Values{1, 3, 7, 13});
}

TEST_CASE("review 8: out of place, what writes into a copy takes expanded inputs, masks and sources") {
  const Tensor mask = tensor({true, false, false, true}), column = tensor({true, false, true}).reshape({3, 1});
  const Tensor i = tensor({0, 2}), wide = expand(tensor({0, 1, 1}).reshape({3, 1}), {3, 2});
  const Tensor one = expand(ones({}, {.dtype = kFloat64}), {3, 2}), places = tensor({0, 5, 11});
  using F = std::function<Tensor(const Tensor&)>;
  const F calls[] = {
      [&](const Tensor& x) { return masked_fill(x, mask, 5); },
      [&](const Tensor& x) {
        return masked_fill(x, expand(mask, {3, 4}), 5);
      },
      [&](const Tensor& x) { return masked_fill(x, column, tensor(5.0)); },
      [&](const Tensor& x) {
        return masked_fill(x, expand(mask, {2, 3, 4}), 5);
      },  // the input broadcasts to the mask
      [&](const Tensor& x) { return x.masked_fill(mask, 5); },
      [&](const Tensor& x) { return masked_scatter(x, mask, arange(12., {.dtype = kFloat64})); },
      [&](const Tensor& x) {
        return masked_scatter(x, expand(column, {2, 3, 4}), arange(24., {.dtype = kFloat64}));
      },
      [&](const Tensor& x) { return index_fill(x, 1, i, 5); },
      [&](const Tensor& x) { return index_fill(x, 0, i, tensor(5.0)); },
      [&](const Tensor& x) { return index_add(x, 1, i, one); },
      [&](const Tensor& x) { return index_copy(x, 1, i, one); },
      [&](const Tensor& x) {
        return index_put(x, {Tensor(), i}, one, true);
      },
      [&](const Tensor& x) { return index_reduce(x, 1, i, one, "amax"); },
      [&](const Tensor& x) { return scatter(x, 1, wide, 5); },
      [&](const Tensor& x) { return scatter_add(x, 1, wide, one); },
      [&](const Tensor& x) { return scatter_reduce(x, 1, wide, one, "prod"); },
      [&](const Tensor& x) { return put(x, places, ones({3}, {.dtype = kFloat64})); },
      [&](const Tensor& x) { return diagonal_scatter(x, ones({3}, {.dtype = kFloat64})); },
      [&](const Tensor& x) { return select_scatter(x, expand(ones({}, {.dtype = kFloat64}), 4), 0, 1); },
      [&](const Tensor& x) { return slice_scatter(x, one, 1, 0, 2); },
      [&](const Tensor& x) { return tril(x); },
  };
  for (const Shape& from : {Shape{3, 1}, Shape{1, 4}, Shape{1, 1}})
    for (size_t k = 0; k < std::size(calls); ++k) {
      INFO("call " << k);
      Values numbers;
      for (int64_t n = 0; n < numel_of(from); ++n) numbers.push_back(double(n) + 2);
      const Tensor x = leaf(numbers, from), y = leaf(numbers, from);
      const Tensor got = calls[k](expand(x, {3, 4})), want = calls[k](clone(expand(y, {3, 4})));
      CHECK((got.shape() == want.shape() && values(got) == values(want)));
      sum(got).backward(), sum(want).backward();
      CHECK(values(x.grad()) == values(y.grad()));
    }
}
