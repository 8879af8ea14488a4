#include "helpers.h"

TEST_CASE("cumsum: values, dtypes, in place") {
  const Tensor x = reshape(tensor({1, 2, 3, 4, 5, 6}), {2, 3});
  CHECK(values(cumsum(x, 1)) == Values{1, 3, 6, 4, 9, 15});
  CHECK(values(cumsum(x, 0)) == Values{1, 2, 3, 5, 7, 9});
  CHECK(cumsum(to(x, kInt32), 0).dtype() == kInt64);
  CHECK(cumsum(x, 0, {.dtype = kFloat32}).dtype() == kFloat32);
  CHECK(cumsum(zeros({0, 3}), 0).shape() == Shape{0, 3});
  CHECK(cumsum(full({}, 2.5), 0).item() == 2.5);
  Tensor y = to(clone(x), kInt32);
  CHECK(values(cumsum_(y, -1)) == Values{1, 3, 6, 4, 9, 15});
  CHECK(y.dtype() == kInt32);
  CHECK_THROWS_AS(cumsum(x, 2), ValueError);
}

TEST_CASE("cumsum: gradients") {
  const Tensor a = leaf({1, 5, -2, 0.5, -4, 3}, {2, 3});
  CHECK(gradients_hold([](const Tensor& a) { return square(cumsum(a, 1)); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return cumsum(a, 0); }, {a}));
  CHECK(gradients_hold(
      [](const Tensor& a) {
        Tensor b = a * 2.0;
        return cumsum_(b, 1);
      },
      {a}));
  CHECK(gradients_hold([](const Tensor& a) { return sum(cumsum(a, 1)); }, {a}));  // its incoming gradient is expanded
}

TEST_CASE("cumprod: zeros, none, one and two of them, once and twice differentiated") {
  for (const Values& v : {Values{2, 0.5, -3, 1.5}, Values{2, 0, -3, 1.5}, Values{0, 2, 0, 3}, Values{0, 0, 0, 0}}) {
    const Tensor a = leaf(v, {2, 2}), b = leaf(v);
    CHECK(gradients_hold([](const Tensor& a) { return cumprod(a, 0); }, {a}));
    CHECK(gradients_hold([](const Tensor& a) { return square(cumprod(a, -1)); }, {b}));
    const Tensor once = grad({sum(cumprod(b, 0))}, {b})[0],
                 twice = grad({sum(cumprod(b, 0))}, {b}, {}, {.create_graph = true})[0];
    CHECK(close(values(once), values(twice), 1e-12));
  }
  CHECK(cumprod(tensor({true, false}), 0).dtype() == kInt64);
  CHECK(gradients_hold([](const Tensor& a) { return cumprod(a, 0); }, {leaf({3}, {})}));
}

TEST_CASE("cummax and cummin: ties, NaN, nothing") {
  auto [largest, at] = cummax(floats({1, kNan, 2, kNan, 3}), 0);
  CHECK(close(values(largest), {1, kNan, kNan, kNan, kNan}));
  CHECK(values(at) == Values{0, 1, 1, 3, 3});
  CHECK(values(cummax(tensor({1, 1, 0}), 0).second) == Values{0, 1, 1});
  CHECK(values(cummin(tensor({1, 1, 0, 0}), 0).second) == Values{0, 1, 2, 3});
  CHECK(cummin(zeros({0, 3}), 0).second.shape() == Shape{0, 3});
  CHECK(cummax(full({}, 2.5), 0).second.item<int64_t>() == 0);
  const Tensor big = tensor({int64_t(1) << 62, (int64_t(1) << 62) + 1});
  CHECK(cummax(big, 0).second.to_vector<int64_t>() == std::vector<int64_t>{0, 1});
  CHECK(gradients_hold([](const Tensor& a) { return square(cummax(a, 1).first); }, {leaf({1, 5, 2, 3, 4, 6}, {2, 3})}));
}

TEST_CASE("logcumsumexp: infinities, large numbers, gradients") {
  CHECK(close(values(logcumsumexp(leaf({-kInf, -kInf, 1, kInf, kNan}), 0)), {-kInf, -kInf, 1, kInf, kNan}));
  CHECK(close(values(logcumsumexp(leaf({1000, 1000}), 0)), {1000, 1000 + std::log(2)}));
  const Tensor a = leaf({1, -500, 2, 0.5, 800, 3}, {2, 3}), first = leaf({-kInf, 1, 2});
  CHECK(gradients_hold([](const Tensor& a) { return logcumsumexp(a, 1); }, {a}));
  CHECK(close(values(grad({sum(logcumsumexp(first, 0))}, {first})[0]), {0, 1.2689414, 0.7310586}));
  CHECK(has(error_of([] { logcumsumexp(tensor({1}), 0); }), "floating point"));
}

TEST_CASE("diff: orders, what is joined, bool") {
  const Tensor x = tensor({-3, 0, 4});
  CHECK(values(diff(x)) == Values{3, 4});
  CHECK(values(diff(x, 0)) == Values{-3, 0, 4});
  CHECK(!diff(x, 0).is_same(x));
  CHECK(diff(x, 7).shape() == Shape{0});
  CHECK(values(diff(x, 1, 0, {.append = tensor({1.5})})) == Values{3, 4, -2.5});
  CHECK(diff(tensor({true, false, false})).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(values(diff(tensor({3, 0, 200}, {.dtype = kUInt8}))) == Values{253, 200});
  CHECK(has(error_of([&] { diff(x, -1); }), "non-negative"));
  CHECK(has(error_of([] { diff(full({}, 1.0)); }), "at least one dimension"));
  CHECK(has(error_of([&] { diff(x, 1, 0, {.prepend = full({}, 1)}); }), "1 dimensions"));
}
