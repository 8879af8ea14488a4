// Shapes and strides of captured tensors that change in place.
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("a captured tensor whose shape or strides change in place is noticed") {
  NoGrad guard;
  Tensor m = arange(9, {.dtype = kFloat32}).reshape({3, 3}).clone(), row = arange(3, {.dtype = kFloat32});
  const Tensor other = ones({3});
  const auto f = [&](const Tensor& x) { return std::pair(matmul(x, m), x + row); };
  auto fast = compile([&](const Tensor& x) {
    NoGrad inside;
    return f(x);
  });
  const Tensor x = ones({1, 3});
  const auto check_same = [&] {
    for (int i = 0; i < 4; ++i) {
      const auto [a, b] = f(x);
      const auto [c, d] = fast(x);
      CHECK(same_bits(c, a));
      CHECK((d.shape() == b.shape() && same_bits(d, b)));
    }
    CHECK(fast.programs() == 1);
  };
  check_same();
  transpose_(m, 0, 1);
  check_same();
  t_(m);
  check_same();
  as_strided_(m, {3, 3}, {0, 1});
  check_same();
  unsqueeze_(row, 1);
  check_same();
  squeeze_(row);
  check_same();
  unsqueeze_(row, 0);
  unsqueeze_(row, 0);
  check_same();
  squeeze_(row, {0});
  check_same();
  // What no program holds is nobody's business: the program stays.
  auto counted = compile([&](const Tensor& v) {
    NoGrad inside;
    return v + other;
  });
  for (int i = 0; i < 3; ++i) (void)counted(x);
  REQUIRE(counted.programs() == 1);
  Tensor own = ones({2, 3});
  t_(own);
  (void)counted(x);
  CHECK(counted.explain().find("recorded 2 times") != std::string::npos);
}

TEST_CASE("the places of a triangle depend on shapes alone, and so do pairs of points") {
  NoGrad guard;
  const auto f = [](const Tensor& x) {
    return std::pair(index_select(x, 0, select(tril_indices(x.size(0), 3, 1), 0, 0)), pdist(x));
  };
  auto fast = compile([&](const Tensor& x) {
    NoGrad inside;
    return f(x);
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({5, 3});
    const auto [rows, distances] = f(x);
    const auto [fast_rows, fast_distances] = fast(x);
    CHECK(same_bits(fast_rows, rows));
    CHECK(same_bits(fast_distances, distances));
  }
  INFO(fast.explain());
  CHECK(fast.programs() == 1);
}
