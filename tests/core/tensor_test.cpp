#include <limits>

#include <tapir/core/tensor.h>
#include <tapir/ops/create.h>
#include <tapir/ops/shape.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::contains;
using tapir_tests::message_of;

TEST_CASE("BI-007 numbers given for an integer dtype must fit") {
  const auto text = [](auto&& make) { return message_of<ValueError>(make); };
  CHECK(contains(text([] { tensor({300, -1}, {.dtype = kUInt8}); }), "value 300 cannot be converted to type uint8"));
  CHECK(contains(text([] { tensor({1, -1}, {.dtype = kUInt8}); }), "value -1"));
  CHECK(contains(text([] { tensor({3e9}, {.dtype = kInt32}); }), "int32"));
  CHECK(contains(text([] { tensor({std::numeric_limits<double>::quiet_NaN()}, {.dtype = kInt64}); }), "int64"));
  CHECK(contains(text([] { tensor(std::vector<int64_t>{1 << 15}, {.dtype = kInt16}); }), "int16"));
  CHECK(tensor({255, 0}, {.dtype = kUInt8}).to_vector<uint8_t>() == std::vector<uint8_t>{255, 0});
  CHECK(tensor({1.5, -1.5}, {.dtype = kInt32}).to_vector<int32_t>() == std::vector<int32_t>{1, -1});
  CHECK(tensor({3, 0}, {.dtype = kBool}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(tensor({1e300}).item() == std::numeric_limits<double>::infinity());  // floats round
}

TEST_CASE("item of integers: the whole range of each type, and not one more") {
  const auto big = [](double v) { return tensor({v}, {.dtype = kFloat64}); };
  CHECK(big(1.8e19).item<uint64_t>() == 18000000000000000000u);
  CHECK(big(0x1p63).item<uint64_t>() == uint64_t(1) << 63);
  CHECK(big(0x1.fffffffffffffp63).item<uint64_t>() == 0xfffffffffffff800u);
  CHECK(big(-0x1p63).item<int64_t>() == std::numeric_limits<int64_t>::min());
  CHECK(big(255.9).item<uint8_t>() == 255);
  for (const double bad : {0x1p64, -1.0, 1e300}) CHECK_THROWS_AS(big(bad).item<uint64_t>(), ValueError);
  CHECK_THROWS_AS(big(0x1p63).item<int64_t>(), ValueError);
  CHECK_THROWS_AS(big(256).item<uint8_t>(), ValueError);
  CHECK_THROWS_AS(tensor({-1}).item<uint64_t>(), ValueError);
  CHECK(contains(message_of<ValueError>([&] { big(-1).item<uint64_t>(); }), "from 0 to 18446744073709551615"));
  CHECK(tensor({-1}).item<int8_t>() == -1);
}

TEST_CASE("BI-017 from_blob: a refused call leaves memory and deleter to the caller") {
  static int live, calls;
  struct Deleter {
    Deleter() { ++live; }
    Deleter(const Deleter&) { ++live; }
    ~Deleter() { --live; }
    void operator()(void*) const { ++calls; }
  };
  live = calls = 0;
  alignas(8) int64_t data[4] = {1, 2, 3, 4};
  CHECK_THROWS_AS(from_blob(nullptr, {4}, Deleter(), {.dtype = kInt64}), ValueError);
  CHECK_THROWS_AS(from_blob(data, {-4}, Deleter(), {.dtype = kInt64}), ValueError);
  CHECK_THROWS_AS(from_blob(data, {4}, Deleter(), {.dtype = kInt64, .requires_grad = true}), ValueError);
  CHECK((live == 0 && calls == 0));
  { const Tensor x = from_blob(data, {4}, Deleter(), {.dtype = kInt64}), y = x.view({2, 2}); }
  CHECK((live == 0 && calls == 1));
}

TEST_CASE("set_grad refuses a gradient whose elements share memory") {
  Tensor x = zeros({3}, {.requires_grad = true});
  CHECK(contains(message_of<ValueError>([&] { x.set_grad(ones({1}).expand({3})); }), "[set_grad]"));
  x.set_grad(ones({3}));
  for (int i = 0; i < 2; ++i) x.backward(ones({3}));
  CHECK(x.grad().to_vector<float>() == std::vector<float>{3, 3, 3});
  Tensor y = zeros({2, 3}, {.requires_grad = true});
  y.set_grad(ones({3, 2}).t());  // any order of places of their own
}
