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

TEST_CASE("review 11: operators of bits, numbers on either side, in place, and of parts") {
  const Tensor a = tensor({6, 1}), b = tensor({1, 3});
  CHECK(values(a << b) == Values{12, 8});
  CHECK(values(a << 2) == Values{24, 4});
  CHECK(values(1 << b) == Values{2, 8});
  CHECK(values(a >> b) == Values{3, 0});
  CHECK(values(a >> 1) == Values{3, 0});
  CHECK(values(16 >> b) == Values{8, 2});
  CHECK(values(3 & a) == Values{2, 1});
  CHECK(values(8 | a) == Values{14, 9});
  CHECK(values(7 ^ a) == Values{1, 6});
  Tensor c = clone(a);
  c <<= 2, c |= 1, c &= 29, c ^= b, c >>= 1;
  CHECK(values(c) == Values{(((6 << 2 | 1) & 29) ^ 1) >> 1, (((1 << 2 | 1) & 29) ^ 3) >> 1});
  c[0] <<= 1, c[0] |= 1, c[0] &= 7, c[1] ^= 3, c[1] >>= 1;
  CHECK(values(c) == Values{1, 0});
  Tensor flags = tensor({true, false, true});
  flags[Slice(1, None)] &= tensor({true, false});
  CHECK(values(flags) == Values{1, 0, 0});
  CHECK_THROWS_AS(ones({2}) << 1, ValueError);
}
