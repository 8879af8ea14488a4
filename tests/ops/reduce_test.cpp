#include "helpers.h"

TEST_CASE("sum and mean: dims, dtypes, gradients") {
  const Tensor x = reshape(arange(0, 24, 1, {.dtype = kFloat64}), {2, 3, 4});
  CHECK(sum(x).item() == 276);
  CHECK(values(sum(x, {0, 2})) == Values{60, 92, 124});
  CHECK(sum(x, -1, {.keepdim = true}).shape() == Shape{2, 3, 1});
  CHECK(values(mean(x, {0, 1})) == Values{10, 11, 12, 13});
  const Tensor bytes = full({300}, 1, {.dtype = kUInt8});
  CHECK(sum(bytes).dtype() == kInt64);  // BI-088
  CHECK(sum(bytes).item() == 300);
  CHECK_THROWS_AS(mean(bytes), ValueError);
  CHECK(mean(bytes, {}, {.dtype = kFloat32}).item() == 1);
  CHECK(sum(zeros({0})).item() == 0);  // BI-110
  CHECK(std::isnan(mean(zeros({0})).item()));
  CHECK_THROWS_AS(sum(x, {0, 0}), ValueError);
  CHECK_THROWS_AS(sum(x, 3), ValueError);
  const Tensor a = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(gradients_hold([](const Tensor& a) { return square(sum(a, 1)); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return square(mean(a, {0}, {.keepdim = true})); }, {a}));
}

TEST_CASE("prod: values and gradients, with none, one and several zeros") {
  CHECK(prod(tensor({2, 3, 4})).item<int64_t>() == 24);
  CHECK(prod(tensor({true, false})).dtype() == kInt64);
  CHECK(prod(zeros({0})).item() == 1);  // BI-110
  CHECK(values(prod(reshape(floats({1, 2, 3, 4}), {2, 2}), 0)) == Values{3, 8});
  for (const Values& v : {Values{1.5, 2, -3, 0.5, 4, 3}, Values{1.5, 0, -3, 0.5, 4, 3}, Values{0, 2, 0, 0.5, 0, 3}}) {
    const Tensor a = leaf(v, {2, 3});
    CHECK(gradients_hold([](const Tensor& a) { return prod(a); }, {a}));
    CHECK(gradients_hold([](const Tensor& a) { return prod(a, 1); }, {a}));
    CHECK(gradients_hold([](const Tensor& a) { return prod(a, 0, {.keepdim = true}); }, {a}));
  }
}

TEST_CASE("any and all") {
  const Tensor x = reshape(tensor({0, 1, 0, 0, 2, 3}), {3, 2});
  CHECK(any(x, 1).to_vector<bool>() == std::vector<bool>{true, false, true});
  CHECK(all(x, 1, {.keepdim = true}).shape() == Shape{3, 1});
  CHECK(all(x, {1}).to_vector<bool>() == std::vector<bool>{false, false, true});
  CHECK(any(x).item<bool>());
  CHECK(!all(x).item<bool>());
  CHECK(!any(zeros({0})).item<bool>());  // BI-110
  CHECK(all(zeros({0})).item<bool>());
  CHECK(any(floats({kNan})).item<bool>());
  CHECK(any(tensor({3}, {.dtype = kUInt8})).dtype() == kUInt8);
  CHECK(any(x).dtype() == kBool);
}

TEST_CASE("logsumexp") {
  const Tensor x = reshape(floats({1000, 1000, -1000, 1}), {2, 2});
  CHECK(close(values(logsumexp(x, 1)), {1000 + std::log(2.0), 1}));
  CHECK(logsumexp(zeros({0})).item() == -kInf);  // BI-110
  CHECK(logsumexp(floats({-kInf, -kInf})).item() == -kInf);
  CHECK(logsumexp(tensor({1, 2})).dtype() == kFloat32);
  const Tensor a = leaf({1, 5, -2, 0.5, 4, 3}, {2, 3});
  CHECK(gradients_hold([](const Tensor& a) { return logsumexp(a, 1); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return logsumexp(a, {0, 1}, {.keepdim = true}); }, {a}));
}

TEST_CASE("sums and means without NaN; counts; the trace") {
  const Tensor x = leaf({kNan, 1, 2, kNan, kNan, kNan}, {2, 3});
  CHECK(values(nansum(x, 1)) == Values{3, 0});
  CHECK(close(values(nanmean(x, 1)), {1.5, kNan}));
  CHECK(close(values(grad({nansum(x)}, {x})[0]), {0, 1, 1, 0, 0, 0}));
  CHECK(nansum(tensor({1, 2})).dtype() == kInt64);
  CHECK(values(nansum(floats({kNan, 1.5}), {}, {.dtype = kInt64})) == Values{1});
  CHECK(nanmean(full({70000}, 3, {.dtype = kFloat16})).item() == 3);  // the count is beyond float16
  CHECK(has(error_of([] { nanmean(tensor({1})); }), "[nanmean]"));
  CHECK(values(count_nonzero(floats({kNan, 0, -0.0, 2}))) == Values{2});
  CHECK(count_nonzero(tensor({true, false, true})).item<int64_t>() == 2);
  CHECK(count_nonzero(tensor({int64_t(1) << 62})).item<int64_t>() == 1);
  CHECK(count_nonzero(zeros({2, 0}), 1).to_vector<int64_t>() == std::vector<int64_t>{0, 0});
  CHECK(trace(transpose(reshape(arange(6), {2, 3}), 0, 1)).item<int64_t>() == 4);
  CHECK(trace(zeros({0, 3})).item() == 0);
  CHECK(has(error_of([] { trace(ones({2})); }), "[trace] expected a matrix"));
}
