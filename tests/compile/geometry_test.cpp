// Shapes and strides of captured tensors and of arguments that change in place.
#include <functional>

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

TEST_CASE("an argument that gets a shape of its own has it in every call, elements or none") {
  const std::function<void(Tensor&)> changes[] = {
      [](Tensor& x) { t_(x); },
      [](Tensor& x) { transpose_(x, 0, 1); },
      [](Tensor& x) { swapaxes_(x, 0, 1); },
      [](Tensor& x) { swapdims_(x, 0, 1); },
      [](Tensor& x) { squeeze_(x); },
      [](Tensor& x) { unsqueeze_(x, 0); },
  };
  for (const auto& change : changes)
    for (const Shape& shape : {Shape{0, 1}, Shape{1, 0}, Shape{2, 1}}) {
      auto fast = compile([&](const Tensor& x) {
        Tensor y = x;
        change(y);
        return y;
      });
      Tensor want = ones(shape);
      change(want);
      for (int i = 0; i < 5; ++i) {
        const Tensor x = ones(shape), y = fast(x);
        CHECK(y.is_same(x));
        CHECK((y.shape() == want.shape() && y.strides() == want.strides()));
      }
    }
  for (const bool read : {false, true}) {  // a leaf, which is known by its object
    const auto f = [=](const Tensor& x, const Tensor& z) {
      NoGrad inside;
      Tensor y = x;
      t_(y);
      return read ? y.sum() + z : z + 1;
    };
    const Tensor leaf = ones({2, 2}, {.requires_grad = true}), other = ones({2, 2}, {.requires_grad = true});
    auto fast = compile(f);
    for (int i = 0; i < 10; ++i) {
      (void)fast(leaf, ones({1})), (void)f(other, ones({1}));
      CHECK(leaf.strides() == other.strides());
    }
  }
  // One without elements is no other argument's memory: written or only read, it has a program.
  auto fast = compile([](const Tensor& x, const Tensor& y) { return std::pair(x.add_(1), y.view({0, 3})); });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = ones({0, 2}), y = ones({3, 0});
    const auto [same, view] = fast(x, y);
    CHECK(same.is_same(x));
    CHECK(view.shape() == Shape{0, 3});
    CHECK(y.shape() == Shape{3, 0});
  }
  CHECK(fast.programs() == 1);
}
