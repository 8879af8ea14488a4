#include <limits>

#include <tapir/core/tensor.h>
#include <tapir/ops/ops.h>

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

TEST_CASE("review 11: const handles are written in place") {
  const Tensor x = zeros({3});
  const float* memory = x.data<float>();
  const auto is = [&](float v) { return x.to_vector<float>() == std::vector<float>(3, v); };
  CHECK((x.fill_(3).add_(1), is(4)));
  CHECK((x.sub_(1, 2), is(2)));
  CHECK((x.mul_(6), is(12)));
  CHECK((x.div_(-3), is(-4)));
  CHECK((x.relu_(), is(0)));
  CHECK((x.copy_(full({}, 5.0)), is(5)));
  CHECK((x.clamp_(7, {}), is(7)));
  CHECK((x.masked_fill_(x > 6, 8), is(8)));
  CHECK((x.uniform_(2, 2), is(2)));
  CHECK((x.normal_(1, 0), is(1)));
  CHECK((x.zero_(), is(0)));
  CHECK((x.data<float>() == memory && x.version() > 10));
  CHECK(x.requires_grad_().requires_grad());
  CHECK_THROWS_AS(x.fill_(1), ValueError);  // a leaf that wants a gradient, whatever the handle
  const Tensor y = x * 2;
  CHECK(!y.detach_().requires_grad());
}

TEST_CASE("review 11: Slice and clamp with None") {
  const Tensor x = arange(12).view({3, 4});
  const auto values = [](const Tensor& t) { return t.to_vector<int64_t>(); };
  using Values = std::vector<int64_t>;
  CHECK(values(x[{Slice(1, None), Slice(None, -3)}]) == Values{4, 8});
  CHECK(values(x[{0, Slice(None, None, 2)}]) == Values{0, 2});
  CHECK(values(x[{Slice(None), Slice(3, None, 2)}]) == Values{3, 7, 11});
  CHECK(x[{None, Slice(2, None)}].shape() == Shape{1, 1, 4});
  x[Slice(None, -1)] = -1;
  CHECK(values(x) == Values{-1, -1, -1, -1, -1, -1, -1, -1, 8, 9, 10, 11});
  CHECK(values(x[2].clamp(None, 9)) == Values{8, 9, 9, 9});
  CHECK(x.argmax(None).item() == 11);
}

TEST_CASE("review 11: x[i] and a tensor in one conditional") {
  const Tensor x = arange(4).view({2, 2}), y = full({2}, 7);
  Tensor z = y;
  for (const bool first : {true, false}) {
    CHECK((first ? x[0] : y).sum().item() == (first ? 1 : 14));
    CHECK((first ? z : x[1]).sum().item() == (first ? 14 : 5));
    CHECK((first ? x[0] : y.clone()).sum().item() == (first ? 1 : 14));
    const Tensor row = first ? x[0] : x[1];
    CHECK(row.sum().item() == (first ? 1 : 5));
  }
}
