#include "helpers.h"

TEST_CASE("diagonals are views; triangles of any layout, in place") {
  const Tensor x = reshape(arange(12, {.dtype = kFloat64}), {3, 4});
  diagonal(x, 1).fill_(-1);
  CHECK(values(x) == Values{0, -1, 2, 3, 4, 5, -1, 7, 8, 9, 10, -1});
  Tensor y = transpose(clone(x), 0, 1);
  triu_(y);
  CHECK(values(y) == values(triu(transpose(x, 0, 1))));
  CHECK(values(tril(full({2, 2}, kNan))).at(1) == 0);
  CHECK(gradients_hold([](const Tensor& x) { return diag_embed(x, -1, 0, 2) * diag_embed(x, -1, 0, 2); },
                       {leaf({1, 2, 3, 4}, {2, 2})}));
  CHECK(gradients_hold([](const Tensor& x) { return diagonal_scatter(x, sum(x, 0), 0) * x; },
                       {leaf({1, 2, 3, 4}, {2, 2})}));
  CHECK(gradients_hold([](const Tensor& x) { return trace(x.expand({2, 2})) * x; }, {leaf({3, 4}, {1, 2})}));
}
