#include "helpers.h"

TEST_CASE("chains are multiplied in the cheapest order") {
  // (1000 x 2) (2 x 1000) (1000 x 2): from the left a million elements, from the right four.
  const Tensor a = ones({1000, 2}), b = ones({2, 1000});
  CHECK(values(chain_matmul({a, b, a, ones({2, 1})})) == Values(1000, 4000));
  CHECK(values(linalg::multi_dot({ones({1000}), a, b, ones({1000})})) == Values{2e6});
  CHECK(linalg::multi_dot({ones({3}), ones({3, 2})}).shape() == Shape{2});
  CHECK(linalg::multi_dot({ones({2, 3}), ones({3})}).shape() == Shape{2});
  CHECK(mentions(error_of([&] { linalg::multi_dot({a}); }), {"[linalg.multi_dot]", "2 tensors"}));
  CHECK(mentions(error_of([&] { chain_matmul({a, a}); }), {"[chain_matmul]", "(1000, 2)"}));
  CHECK(mentions(error_of([&] { chain_matmul({a, ones({2})}); }), {"[chain_matmul]", "position 1"}));
  CHECK(mentions(error_of([&] { chain_matmul(std::vector<Tensor>()); }), {"[chain_matmul]"}));
}

TEST_CASE("cross takes the first dimension of size 3") {
  const Tensor x = floats({1, 0, 0}), y = floats({0, 1, 0});
  CHECK(values(cross(x, y)) == Values{0, 0, 1});
  CHECK(cross(ones({2, 3, 3}), ones({2, 3, 3})).shape() == Shape{2, 3, 3});
  CHECK(linalg::cross(ones({4, 1, 3}), ones({1, 5, 3})).shape() == Shape{4, 5, 3});
  CHECK(mentions(error_of([&] { cross(ones({2, 2}), ones({2, 2})); }), {"[cross]", "size 3"}));
  CHECK(mentions(error_of([&] { linalg::cross(x, ones({2})); }), {"[linalg.cross]"}));
  CHECK(mentions(error_of([&] { linalg::cross(x, ones({2, 3})); }), {"as many dimensions"}));
}

TEST_CASE("kron of ranks that differ, up to 16") {
  CHECK(values(kron(floats({1, 2}), floats({1, 10}))) == Values{1, 10, 2, 20});
  CHECK(kron(ones({2, 3}), ones({4})).shape() == Shape{2, 12});
  const Shape many = Shape::filled(16, 1);
  CHECK(kron(ones(many), ones(many)).shape() == many);
}

TEST_CASE("addr and addbmm: dtypes and what is not read") {
  const Tensor a = floats({1, 2}), nan = full({2, 2}, kNan);
  CHECK(values(addr(nan, a, a, {.beta = 0})) == Values{1, 2, 2, 4});
  CHECK(values(addbmm(nan, ones({3, 2, 2}), ones({3, 2, 2}), {.beta = 0})) == Values(4, 6));
  const Tensor k = to(a, kInt64);
  CHECK(addr(ones({2, 2}), k, k).dtype() == kFloat32);
  CHECK(mentions(error_of([&] { addr(ones({2, 2}, {.dtype = kInt64}), k, k, {.alpha = 0.5}); }), {"[addr]", "alpha"}));
  Tensor self = ones({2, 2}, {.dtype = kInt64});
  CHECK(mentions(error_of([&] { addr_(self, a, a); }), {"can't be cast"}));
  CHECK(values(self) == Values(4, 1));
  CHECK(mentions(error_of([&] { addbmm(nan, ones({3, 2, 2}), ones({2, 2, 2})); }), {"[addbmm]"}));
  // Of a fraction integers take the whole part, as they do in addmm.
  const Tensor m = full({2, 2}, 3, {.dtype = kInt32});
  CHECK(values(addmm(m, m, m, {.beta = 1.7, .alpha = 0.6})) == Values(4, 3));
}
