#include "helpers.h"

TEST_CASE("gradients of scatters where elements meet, and of extremes that tie") {
  const Tensor index = tensor({{0, 1, 0, 0}}), x = leaf({1, 2, 3}, {1, 3}), v = leaf({1, 5, 0, 4}, {1, 4});
  for (const char* how : {"sum", "mean", "amax", "amin"})
    for (const bool own : {true, false}) {
      INFO(how << own);
      const auto f = [&](const Tensor& x, const Tensor& v) { return scatter_reduce(x, 1, index, v, how, {own}); };
      CHECK(gradcheck(f, {leaf({1.5, 2, 3}, {1, 3}), v}));
    }
  const auto product = [&](const Tensor& x, const Tensor& v) { return scatter_reduce(x, 1, index, v, "prod"); };
  CHECK(gradcheck(product, {x, v}));  // with one 0
  CHECK(gradgradcheck(product, {x, leaf({1, 5, 2, 4}, {1, 4})}));
  const auto g = grad({sum(scatter_reduce(leaf({4, 2, 3}, {1, 3}), 1, index, v, "amax"))}, {v})[0];
  CHECK(values(g) == Values{0, 1, 0, 0.5});
}

TEST_CASE("an index of no elements, of whatever shape, takes nothing of the source") {
  for (const Shape& places : {Shape{0, 1}, Shape{1, 0}, Shape{0, 0}, Shape{0}, Shape{2, 0, 3}})
    for (const Shape& shape : {Shape{0, 0}, Shape{2, 3}, Shape{}, Shape{1, 0}}) {
      INFO(places.str() << shape.str());
      const Tensor index = zeros(places, {.dtype = kInt64});
      const Tensor x = ones({2, 3}).requires_grad_(), source = ones(shape).requires_grad_();
      const auto check_nothing = [&](const Tensor& y) {
        CHECK(values(y) == values(x));
        const auto g = grad({y}, {x, source}, {ones_like(y)});
        CHECK(values(g[0]) == values(x));
        CHECK(values(g[1]) == Values(size_t(source.numel()), 0));
      };
      check_nothing(scatter(x, 1, index, source));
      check_nothing(scatter_add(x, 1, index, source));
      check_nothing(scatter(x, 1, index, source, "multiply"));
      for (const char* how : {"sum", "mean", "prod", "amax", "amin"})
        check_nothing(scatter_reduce(x, 1, index, source, how));
    }
  const Tensor source = zeros({0, 0}).requires_grad_(), index = zeros({0, 1}, {.dtype = kInt64});
  const Tensor y = scatter_add(zeros({0, 0}), 1, index, source);
  y.backward(ones_like(y));
  CHECK(source.grad().shape() == Shape{0, 0});
}
