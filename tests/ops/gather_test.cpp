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
