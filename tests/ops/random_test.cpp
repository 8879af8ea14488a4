#include "helpers.h"

TEST_CASE("random tensors repeat with the seed, at any layout") {
  manual_seed(7);
  const Values a = values(rand({5, 3})), b = values(randn({4}));
  manual_seed(7);
  CHECK(values(rand({5, 3})) == a);
  CHECK(values(randn({4})) == b);
  manual_seed(7);
  Tensor wide = zeros({3, 5});
  Tensor across = transpose(wide, 0, 1);
  uniform_(across);
  CHECK(values(across) == a);
  CHECK(values(rand({5, 3})) != a);
}

TEST_CASE("a call takes ceil(n / 4) counter values") {
  manual_seed(3);
  rand({5});
  CHECK(default_generator().offset() == 2);
  randperm(4), rand({0});
  CHECK(default_generator().offset() == 3);
}

TEST_CASE("random tensors: ranges, moments, dtypes") {
  manual_seed(0);
  const Tensor u = rand({20000}), n = randn({20000}, {.dtype = kFloat64}), i = randint(-3, 4, {20000});
  CHECK(min(u).item() >= 0);
  CHECK(max(u).item() < 1);
  CHECK(mean(u).item() == Approx(0.5).margin(0.01));
  CHECK(mean(n).item() == Approx(0).margin(0.03));
  CHECK(var(n).item() == Approx(1).margin(0.05));
  CHECK(min(i).item() == -3);
  CHECK(max(i).item() == 3);
  CHECK(i.dtype() == kInt64);
  CHECK(randint(10, {3}, {.dtype = kFloat16}).dtype() == kFloat16);
  CHECK(max(randint(0, 256, {5000}, {.dtype = kUInt8})).item() == 255);
  Tensor w = empty({10000});
  CHECK(mean(uniform_(w, 2, 4)).item() == Approx(3).margin(0.05));
  CHECK(mean(normal_(w, -1, 0.5)).item() == Approx(-1).margin(0.05));
  CHECK(mean(bernoulli_(w, 0.25)).item() == Approx(0.25).margin(0.03));
  CHECK(max(random_(w, 0, 10)).item() == 9);
  CHECK(rand({2}, {.requires_grad = true}).requires_grad());
  CHECK(rand_like(ones({2, 3}, {.dtype = kFloat64})).dtype() == kFloat64);
  CHECK(randn_like(ones({2, 3})).shape() == Shape{2, 3});
  CHECK(randint_like(ones({2, 3}), 0, 5).dtype() == kFloat32);
  CHECK(tapir::normal(5, 0, {3}).to_vector<float>() == std::vector<float>{5, 5, 5});
}

TEST_CASE("randperm is a permutation") {
  manual_seed(1);
  const auto p = randperm(1000).to_vector<int64_t>();
  std::vector<bool> seen(1000);
  for (int64_t v : p) seen[size_t(v)] = true;
  CHECK(std::count(seen.begin(), seen.end(), true) == 1000);
  CHECK(randperm(0).shape() == Shape{0});
  CHECK(p != randperm(1000).to_vector<int64_t>());
}

TEST_CASE("bernoulli with a probability for each element") {
  CHECK(values(bernoulli(floats({0, 1, 0, 1}))) == Values{0, 1, 0, 1});
  Tensor x = zeros({2, 2});
  CHECK(values(bernoulli_(x, floats({0, 1}))) == Values{0, 1, 0, 1});
  Tensor p = leaf({0.5, 1});
  sum(bernoulli(p)).backward();
  CHECK(values(p.grad()) == Values{0, 0});
}

TEST_CASE("what random operations refuse") {
  Tensor x = zeros({3}), i = zeros({3}, {.dtype = kInt64});
  CHECK(has(error_of([] { randperm(-1); }), "-1"));                                 // BI-011
  CHECK(has(error_of([] { randint(5, 5, {2}); }), "'from' to be less than 'to'"));  // BI-012
  CHECK(has(error_of([] { randint(0, 300, {2}, {.dtype = kUInt8}); }), "uint8"));
  CHECK(has(error_of([&] { normal_(x, 0, -1); }), "std >= 0.0, got std -1"));  // BI-013
  CHECK(has(error_of([&] { normal_(x, 0, kNan); }), "nan"));
  CHECK(has(error_of([&] { uniform_(x, 2, 1); }), "from=2"));
  CHECK(has(error_of([&] { bernoulli_(x, 2); }), "[0, 1], got p=2"));  // BI-014
  CHECK(has(error_of([&] { bernoulli_(x, kNan); }), "[0, 1]"));
  CHECK(has(error_of([&] { bernoulli(floats({0.5, -0.25})); }), "got -0.25 at position 1"));
  CHECK(has(error_of([&] { bernoulli(i); }), "floating point"));
  CHECK(has(error_of([] { rand({2}, {.dtype = kInt64}); }), "floating point"));
  CHECK(has(error_of([] { rand({-1}); }), "-1"));
  Tensor wanted = leaf({1});
  CHECK_THROWS_AS(uniform_(wanted), ValueError);
}

TEST_CASE("multinomial: rows of one distribution each, with and without replacement, and its numbers") {
  manual_seed(11);
  const Tensor w = tensor({{0.0, 1.0, 3.0, 0.0}, {5.0, 0.0, 0.0, 5.0}});
  const Tensor many = multinomial(w, 20000, {.replacement = true});
  CHECK(many.shape() == Shape{2, 20000});
  const auto share = [&](int64_t row, int64_t at) { return eq(many[row], at).to(kFloat64).mean().item(); };
  CHECK(share(0, 2) == Approx(0.75).margin(0.02));
  CHECK(share(0, 0) + share(0, 3) + share(1, 1) + share(1, 2) == 0);
  CHECK(share(1, 3) == Approx(0.5).margin(0.02));
  double first = 0;  // without replacement the first draw follows the weights, and so does what is left
  for (int i = 0; i < 2000; ++i) {
    const auto v = multinomial(w[0], 2).to_vector<int64_t>();
    CHECK((v == std::vector<int64_t>{1, 2} || v == std::vector<int64_t>{2, 1}));
    first += v[0] == 2;
  }
  CHECK(first / 2000 == Approx(0.75).margin(0.04));
  for (const DType t : {kFloat64, kFloat16, kBFloat16}) CHECK(multinomial(w.to(t).t().t(), 1).shape() == Shape{2, 1});
  const Tensor far = tensor({1e308, 1e308, 1e-320}, {.dtype = kFloat64});  // their sum is infinite
  const auto all = values(multinomial(far, 3));
  CHECK((all[2] == 2 && all[0] + all[1] == 1));
  CHECK(max(multinomial(far, 100, {.replacement = true})).item() <= 1);
  CHECK(!multinomial(ones({3}).requires_grad_(), 2).requires_grad());
  manual_seed(11);
  const auto before = default_generator().offset();
  multinomial(ones({3, 5}), 7, {.replacement = true});
  CHECK(default_generator().offset() == before + 6);  // 21 numbers
  multinomial(ones({3, 5}), 2);
  CHECK(default_generator().offset() == before + 10);  // 15 numbers
}
