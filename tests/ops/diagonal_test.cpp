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

TEST_CASE("triangles: rows longer than a tile, both layouts, any diagonal") {
  constexpr int64_t kRows = 300, kCols = 200;
  const Tensor x = reshape(arange(1, kRows * kCols + 1, 1, {.dtype = kFloat32}), {kRows, kCols});
  const Values all = values(x);
  for (const int64_t k :
       {int64_t(INT64_MIN), int64_t(-kRows), int64_t(-7), int64_t(0), int64_t(150), int64_t(INT64_MAX)}) {
    Values lower = all, upper = all;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kCols; ++c) {
        const size_t at = size_t(r * kCols + c);
        if (c - r > k) lower[at] = 0;
        if (c - r < k) upper[at] = 0;
      }
    const Tensor turned = x.t().contiguous().t();
    CHECK(values(tril(x, k)) == lower);
    CHECK(values(triu(x, k)) == upper);
    CHECK(values(tril(turned, k)) == lower);
    CHECK(values(triu(turned, k)) == upper);
  }
  CHECK(mentions(error_of([] { tril_indices(INT64_MAX, 2); }), {"[tril_indices]", "2^61"}));
}

TEST_CASE("the places of triangles of any shape, in order") {
  for (int64_t rows = 0; rows < 6; ++rows)
    for (int64_t cols = 0; cols < 6; ++cols)
      for (int64_t k = -8; k < 9; ++k) {
        INFO(rows << " x " << cols << ", " << k);
        const Tensor all = ones({rows, cols}), lower = tril_indices(rows, cols, k), upper = triu_indices(rows, cols, k);
        CHECK(lower.shape() == Shape{2, count_nonzero(tril(all, k)).item<int64_t>()});
        CHECK(equal(lower, transpose(nonzero(tril(all, k)), 0, 1)));
        CHECK(equal(upper, transpose(nonzero(triu(all, k)), 0, 1)));
      }
  constexpr int64_t kLarge = int64_t(1) << 60;
  CHECK(values(triu_indices(2, kLarge, kLarge - 2)) ==
        Values{0, 0, 1, double(kLarge - 2), double(kLarge - 1), double(kLarge - 1)});
  CHECK(values(tril_indices(2, kLarge, INT64_MIN)).empty());
  CHECK(tril_indices(2 * kLarge, 0).shape() == Shape{2, 0});
  CHECK(mentions(error_of([] { tril_indices(2 * kLarge, 2 * kLarge); }), {"[tril_indices]", "2^61"}));
  CHECK(tril_indices(3, 3, 0, {.dtype = kInt32}).dtype() == kInt32);
  CHECK(tril_indices(3, 3, 0, {.dtype = kFloat32, .requires_grad = true}).requires_grad());
  CHECK(mentions(error_of([] { tril_indices(3, 3, 0, {.requires_grad = true}); }), {"[tril_indices]", "int64"}));
  CHECK(values(triu_indices(kLarge, 1)) == std::vector<double>{0, 0});  // of few places, whatever the number of rows
  CHECK(values(tril_indices(kLarge, 2, 1 - kLarge)) == std::vector<double>{double(kLarge - 1), 0});
}
