#include "helpers.h"

using Bools = std::vector<bool>;
static Bools bools(const Tensor& x) {
  CHECK(x.dtype() == kBool);
  return x.to_vector<bool>();
}

TEST_CASE("comparisons: values, NaN, numbers, broadcasting") {
  const Tensor a = floats({1, 2, 3, kNan}), b = floats({2, 2, 2, kNan});
  CHECK(bools(eq(a, b)) == Bools{false, true, false, false});
  CHECK(bools(ne(a, b)) == Bools{true, false, true, true});
  CHECK(bools(lt(a, b)) == Bools{true, false, false, false});
  CHECK(bools(le(a, 2)) == Bools{true, true, false, false});
  CHECK(bools(gt(2, a)) == Bools{true, false, false, false});
  CHECK(bools(ge(a, 2.5)) == Bools{false, false, true, false});
  CHECK(eq(ones({2, 1}), ones({3})).shape() == Shape{2, 3});
  CHECK(bools(eq(tensor({1, 2}), 1.5)) == Bools{false, false});
  CHECK(bools(eq(tensor({1, 0}), tensor({true, true}))) == Bools{true, false});
}

TEST_CASE("a number beyond the tensor's integer dtype is compared as it is; a 0-dim tensor is cast, as PyTorch's") {
  const Tensor u = tensor({255, 0, 44}, {.dtype = kUInt8}), s = tensor({1, -128}, {.dtype = kInt8});
  CHECK(bools(eq(u, -1)) == Bools{false, false, false});
  CHECK(bools(lt(u, -1)) == Bools{false, false, false});
  CHECK(bools(lt(u, 300)) == Bools{true, true, true});
  CHECK(bools(eq(300, u)) == Bools{false, false, false});
  CHECK(bools(eq(u, tensor(-1))) == Bools{true, false, false});  // 255
  CHECK(bools(lt(s, 200)) == Bools{true, true});
  CHECK(bools(eq(tensor({true}), 2)) == Bools{false});  // of a higher category: int64
}

TEST_CASE("comparison operators: tensors, numbers and places on either side") {
  const Tensor x = tensor({1, 2, 3}), y = tensor({3, 2, 1});
  CHECK(bools(x > 1) == Bools{false, true, true});
  CHECK(bools(x >= y) == Bools{false, true, true});
  CHECK(bools(x < y) == Bools{true, false, false});
  CHECK(bools(x <= 2.0) == Bools{true, true, false});
  CHECK(bools(x == y) == Bools{false, true, false});
  CHECK(bools(x != y) == Bools{true, false, true});
  CHECK(bools(x == 2) == Bools{false, true, false});
  CHECK(bools(2 != x) == Bools{true, false, true});
  CHECK(bools(2 == x) == Bools{false, true, false});
  CHECK(bools(2 > x) == Bools{true, false, false});
  CHECK(bools(2 < x) == Bools{false, false, true});
  CHECK(bools(1 <= x) == Bools{true, true, true});
  CHECK(bools(4 >= x) == Bools{true, true, true});
  CHECK(bools(x[0] == x[{Slice(0, 2)}]) == Bools{true, false});
  CHECK(bools(x[1] < y) == Bools{true, false, false});
  CHECK(bools(x[2] == 3) == Bools{true});
}

TEST_CASE("logical operations") {
  const Tensor a = floats({0, 1, kNan, 0}), b = tensor({2, 0, 1, 0});
  CHECK(bools(logical_and(a, b)) == Bools{false, false, true, false});
  CHECK(bools(logical_or(a, b)) == Bools{true, true, true, false});
  CHECK(bools(logical_xor(a, b)) == Bools{true, true, false, false});
  CHECK(bools(logical_not(a)) == Bools{true, false, false, true});
}

TEST_CASE("comparisons in place write 0 and 1 in the tensor's dtype; no gradient passes") {
  Tensor x = tensor({1, 2, 3});
  CHECK(eq_(x, 2).is_same(x));
  CHECK(x.dtype() == kInt64);
  CHECK(values(x) == Values{0, 1, 0});
  CHECK(values(logical_not_(x)) == Values{1, 0, 1});
  CHECK_THROWS_AS(eq_(x, ones({2, 3})), ValueError);
  Tensor leaf_ = leaf({1, 2}), y = leaf_ * 2.0;
  sum(gt_(y, 3)).backward();
  CHECK(values(leaf_.grad()) == Values{0, 0});
  CHECK(!eq(leaf_, 1).requires_grad());
}

TEST_CASE("closeness: infinities, NaN, integers, refused dtypes") {
  const Tensor a = floats({1, kInf, -kInf, kNan, 1e-9}), b = floats({1.000001, kInf, kInf, kNan, 0});
  CHECK(isclose(a, b).to_vector<bool>() == std::vector<bool>{true, true, false, false, true});
  CHECK(isclose(a, b, {.equal_nan = true}).to_vector<bool>()[3]);
  CHECK(isclose(tensor({100, 5}), tensor({101, 5}), {.rtol = 0.01}).to_vector<bool>() == std::vector<bool>{true, true});
  CHECK(has(error_of([&] { isclose(a, tensor({1})); }), "one dtype"));
  CHECK(has(error_of([&] { isclose(a, b, {.rtol = -1}); }), "not negative"));
  CHECK(allclose(ones({2, 3}), ones({3})));
  CHECK(!allclose(a, b));
  CHECK(allclose(zeros({0}), zeros({0})));
}

TEST_CASE("equal: shapes, values, NaN") {
  CHECK(equal(tensor({1, 2}), tensor({1, 2})));
  CHECK(!equal(tensor({1, 2}), tensor({1, 3})));
  CHECK(!equal(ones({2, 1}), ones({2})));
  CHECK(!equal(floats({kNan}), floats({kNan})));
  CHECK(equal(zeros({0, 2}), zeros({0, 2})));
}
