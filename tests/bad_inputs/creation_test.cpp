// Wrong and unlucky arguments of factories, shapes and views: a typed error with the facts, and nothing changed.
#include <cstring>
#include <limits>

#include "refused.h"

static const int64_t kHuge = int64_t(1) << 62;

TEST_CASE("BI-001 BI-002 BI-003 BI-004 sizes that cannot be") {
  REFUSED(zeros({-1}), "zeros", "-1");
  REFUSED(empty({2, -3}), "empty", "-3", "(2, -3)");
  REFUSED(zeros({kHuge}), "zeros", "float32", "4611686018427387904");
  REFUSED(zeros({int64_t(1) << 33, int64_t(1) << 33}), "zeros", "8589934592");
  REFUSED(zeros({0, kHuge, kHuge}), "zeros", "4611686018427387904");
}

TEST_CASE("BI-005 more memory than there is") {
  std::string text;
  try {
    empty({int64_t(1) << 40, 1 << 10});
  } catch (const OutOfMemoryError& e) {
    text = e.what();
  }
  CHECK(mentions(text, {"empty", "float32", "cpu"}));
  CHECK(ones({2}).sum().item() == 2);
}

TEST_CASE("BI-006 rank above the limit") {
  Dims dims;
  for (int i = 0; i < 16; ++i) dims.push_back(1);
  const Tensor x = zeros(Shape(dims));
  CHECK(x.dim() == 16);
  REFUSED(dims.push_back(1), "17", "16");
  REFUSED(unsqueeze(x, 0), "17", "16");
}

TEST_CASE("BI-007 numbers that the dtype cannot hold") {
  REFUSED(full({2}, 300, {.dtype = kUInt8}), "full", "300", "uint8", "255");
  REFUSED(full({2}, -1, {.dtype = kUInt8}), "full", "-1", "uint8", "0");
  REFUSED(full({2}, 1e300, {.dtype = kFloat32}), "full", "1e+300", "float32");
}

TEST_CASE("BI-008 BI-009 BI-010 ranges") {
  REFUSED(arange(0, 10, 0), "arange", "0", "10");
  REFUSED(arange(0, 10, -1), "arange", "0", "10", "-1");
  REFUSED(arange(0, 1e30, 1), "arange", "1e+30");
  REFUSED(arange(0, kInf, 1), "arange", "inf");
  REFUSED(arange(kNan, 1, 1), "arange", "nan");
  std::string text;
  try {
    arange(0, 1e15, 1);
  } catch (const OutOfMemoryError& e) {
    text = e.what();
  }
  CHECK(mentions(text, {"arange", "1000000000000000"}));
  REFUSED(linspace(0, 1, -1), "linspace", "-1");
  CHECK(linspace(3, 4, 0).numel() == 0);
  CHECK(values(linspace(3, 4, 1)) == Values{3});
}

TEST_CASE("BI-016 BI-018 BI-019 memory of others") {
  REFUSED(from_blob(nullptr, {4}), "from_blob", "(4,)");
  std::vector<float> room(8);
  REFUSED(from_blob(room.data(), {2, 2}, Strides{-2, 1}), "from_blob", "-2");
  REFUSED(from_blob(room.data(), {2, 2}, Strides{kHuge, kHuge}), "from_blob", "4611686018427387904");
  REFUSED(from_blob(room.data(), {2}, Strides{kHuge}), "from_blob", "4611686018427387904");
  REFUSED(from_blob(reinterpret_cast<char*>(room.data()) + 1, {2}, {.dtype = kFloat32}), "from_blob", "float32");
}

TEST_CASE("BI-017 memory of others lives as long as the tensors that see it, where from_blob is given an owner") {
  int freed = 0;
  auto* room = new std::vector<float>{1, 2, 3, 4};
  Tensor view;
  {
    const Tensor x = from_blob(room->data(), {2, 2}, [&freed, room](void*) { ++freed, delete room; });
    view = (x * 1).t() * x.t()[1][0];  // copies
    view = x.t();
  }
  CHECK(freed == 0);
  CHECK(values(view) == Values{1, 3, 2, 4});
  view.reset();
  CHECK(freed == 1);
  std::vector<float> gone{5, 6};
  const Tensor copy = tensor(std::span<const float>(gone), {2});
  gone = {0, 0};
  CHECK(values(copy) == Values{5, 6});
  REFUSED(from_blob(&gone, {int64_t(1) << 33, int64_t(1) << 33}, [](void*) {}), "from_blob", "8589934592");
}

TEST_CASE("BI-015 multinomial: weights that are none, and more draws than there are") {
  const Tensor good = ones({2, 3});
  const auto with = [&](double bad) {
    Tensor w = good.clone();
    w[1][2] = bad;
    return w;
  };
  manual_seed(5);
  for (const bool replacement : {false, true}) {
    REFUSED(multinomial(with(-2), 2, {replacement}), "multinomial", "-2", "row 1", "position 2", "element < 0");
    REFUSED(multinomial(with(kNan), 2, {replacement}), "nan", "row 1", "position 2");
    REFUSED(multinomial(with(kInf), 2, {replacement}), "inf", "row 1", "position 2");
    REFUSED(multinomial(tensor({{1.0, 0.0}, {0.0, 0.0}}), 1, {replacement}), "row 1", "sum of probabilities <= 0");
    REFUSED(multinomial(zeros({3}), 1, {replacement}), "row 0", "sum of probabilities <= 0");
    REFUSED(multinomial(good, 0, {replacement}), "multinomial", "num_samples", "0");
    REFUSED(multinomial(good, -1, {replacement}), "multinomial", "-1");
    REFUSED(multinomial(ones({2}, {.dtype = kInt64}), 1, {replacement}), "multinomial", "int64");
    REFUSED(multinomial(ones({}), 1, {replacement}), "multinomial", "()");
    REFUSED(multinomial(ones({2, 2, 2}), 1, {replacement}), "multinomial", "(2, 2, 2)");
    REFUSED(multinomial(ones({2, 0}), 1, {replacement}), "multinomial");
    REFUSED(multinomial({}, 1, {replacement}), "multinomial");
    CHECK(multinomial(ones({0, 3}), 2, {replacement}).shape() == Shape{0, 2});
  }
  REFUSED(multinomial(good, 4), "multinomial", "4", "(2, 3)");
  REFUSED(multinomial(tensor({{1.0, 1.0}, {0.0, 1.0}}), 2), "at least 2", "got 1 in row 1");
  CHECK(default_generator().offset() == 0);  // a refused call draws nothing
}

TEST_CASE("BI-020 BI-021 literals") {
  REFUSED(tensor({{1.0, 2.0}, {3.0}}), "tensor", "2", "1");
  const std::vector<double> five(5);
  REFUSED(tensor(std::span(five), Shape{2, 3}), "tensor", "5", "(2, 3)");
}

TEST_CASE("BI-022 BI-023 BI-024 BI-025 BI-026 views of other shapes") {
  const Tensor x = ones({2, 3}), none = ones({2, 0});
  REFUSED(x.view({4}), "view", "(4,)", "6");
  REFUSED(x.view({-1, -1}), "view", "(-1, -1)");
  REFUSED(x.view({-2, 3}), "view", "-2");
  REFUSED(none.view({0, -1}), "view", "(0, -1)");
  REFUSED(x.t().view({6}), "view", "(3, 2)", "reshape");
  CHECK(x.t().reshape({6}).numel() == 6);
  REFUSED(none.reshape({int64_t(1) << 32, int64_t(1) << 32}), "reshape", "4294967296");
  REFUSED(none.view({0, kHuge, kHuge}), "view", "overflow");
  REFUSED(ones({1}).expand({int64_t(1) << 32, int64_t(1) << 32}), "4294967296", "overflows");
  REFUSED(as_strided(x, {int64_t(1) << 32, int64_t(1) << 32}, {0, 0}), "4294967296", "overflows");
  REFUSED(x.reshape({4, -1}), "reshape", "(4, -1)", "6");
}

TEST_CASE("BI-027 BI-028 BI-029 BI-030 dims") {
  const Tensor x = ones({4, 3});
  REFUSED(x.permute({0}), "permute", "(0,)", "2");
  REFUSED(x.permute({0, 0}), "permute", "(0, 0)");
  REFUSED(x.permute({0, 2}), "permute", "2");
  REFUSED(x.expand({2, 3}), "expand", "(2, 3)", "(4, 3)", "0");
  REFUSED(x.expand({-1, 4, 3}), "expand", "-1");
  REFUSED(x.squeeze({5}), "squeeze", "5", "[-2, 1]");
  REFUSED(sum(x, 3), "sum", "3", "[-2, 1]");
  REFUSED(x.unsqueeze(-9), "unsqueeze", "-9", "[-3, 2]");
  REFUSED(sum(x, {0, 0}), "sum", "(0, 0)");
}

TEST_CASE("BI-031 BI-032 BI-033 BI-034 BI-035 joining") {
  REFUSED(cat({}), "cat");
  REFUSED(stack({}), "stack");
  REFUSED(cat({ones({2, 3}), ones({2, 4})}), "cat", "1", "(2, 3)", "(2, 4)");
  REFUSED(cat({ones({2, 3}), ones({2, 3})}, 2), "cat", "2", "[-2, 1]");
  CHECK(cat({ones({2, 3}), ones({0})}).shape() == Shape{2, 3});
  const Tensor wide = ones({1}).expand({int64_t(1) << 61});
  REFUSED(cat({wide, wide, wide, wide}), "cat", "2305843009213693952");
  REFUSED(stack({ones({2}), ones({3})}), "stack", "1", "(2,)", "(3,)");
}

TEST_CASE("BI-036 splitting") {
  const Tensor x = ones({5, 2});
  REFUSED(x.split(-1), "split", "-1");
  REFUSED(x.split(0), "split", "0");
  REFUSED(split(x, std::vector<int64_t>{2, 2}), "split", "5", "4");
  REFUSED(split(x, std::vector<int64_t>{5, -2}), "split", "-2");
  REFUSED(x.chunk(0), "chunk", "0");
}

TEST_CASE("BI-040 BI-042 BI-044 geometry and absent tensors") {
  const Tensor x = ones({2, 3});
  REFUSED(as_strided(x, {3, 3}, {3, 1}), "as_strided", "36", "24");
  REFUSED(as_strided(x, {2}, {1}, -1), "as_strided", "-1");
  REFUSED(as_strided(x, {2}, {std::numeric_limits<int64_t>::max()}), "as_strided");
  REFUSED(as_strided(x, {2}, {std::numeric_limits<int64_t>::max() - 1}), "as_strided");
  REFUSED(x + ones({2, 4}), "add", "(2, 3)", "(2, 4)", "1");
  const Tensor none;
  REFUSED(none.shape(), "undefined");
  REFUSED(none + x, "add", "undefined");
  REFUSED(matmul(x, none), "matmul", "undefined");
  REFUSED(sum(none), "sum", "undefined");
  REFUSED(relu6(none), "relu6", "undefined");
  REFUSED(threshold(none, 0, 1), "threshold", "undefined");
}

TEST_CASE("BI-045 BI-046 BI-052 reading and copying") {
  Tensor x = ones({2, 3});
  REFUSED(x.item(), "item", "6");
  REFUSED(tensor(kNan).item<int>(), "item", "nan");
  REFUSED(tensor(3e9).item<int>(), "item", "3e+09");
  REFUSED(x.data<double>(), "data", "float64", "float32");
  REFUSED(x.copy_(ones({4})), "copy_", "(4,)", "(2, 3)");
  CHECK(sum(x).item() == 6);
}
