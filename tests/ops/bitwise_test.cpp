#include "helpers.h"

TEST_CASE("bit operations: bool, promotion, operators") {
  const Tensor b = tensor({true, false}), i = tensor({6, -1});
  CHECK(bitwise_and(b, 1).dtype() == kInt64);
  CHECK((b ^ tensor({true, true})).to_vector<bool>() == std::vector<bool>{false, true});
  CHECK((~b).to_vector<bool>() == std::vector<bool>{false, true});
  CHECK(values(i & 3) == Values{2, 3});
  CHECK(values(i | 8) == Values{14, -1});
  CHECK(values(bitwise_not(tensor({0, 255}, {.dtype = kUInt8}))) == Values{255, 0});
  CHECK(has(error_of([&] { bitwise_or(i, ones({2})); }), "[bitwise_or] expected integers or bool, got float32"));
  CHECK(has(error_of([&] { bitwise_not(ones({2})); }), "[bitwise_not]"));
  Tensor small = tensor({1, 2}, {.dtype = kInt8});
  Tensor flags = clone(b);
  CHECK_THROWS_AS(bitwise_and_(flags, i), ValueError);
  CHECK(values(bitwise_xor_(small, 3)) == Values{2, 1});
}

TEST_CASE("BI-084 bit operations: counts that move everything out") {
  const Tensor a = tensor({1, -5, -5}, {.dtype = kInt8}), n = tensor({9, -1, 8}, {.dtype = kInt8});
  CHECK(values(bitwise_left_shift(a, n)) == Values{0, 0, 0});
  CHECK(values(bitwise_right_shift(a, n)) == Values{0, -1, -1});
  CHECK(values(bitwise_right_shift(tensor({3, 200}, {.dtype = kUInt8}), 9)) == Values{0, 0});
  CHECK(values(bitwise_left_shift(tensor({int64_t(1)}), 63)) == Values{-0x1p63});
  CHECK(values(bitwise_left_shift(2, tensor({-3, 0, 4}))) == Values{0, 2, 32});
  CHECK(has(error_of([] { bitwise_left_shift(tensor({true}), tensor({true})); }), "expected integers, got bool"));
}
