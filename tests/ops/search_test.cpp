#include "helpers.h"

TEST_CASE("searchsorted: sides, numbers, sorters, int32, layouts") {
  const Tensor edges = tensor({1.0, 2.0, 2.0, 4.0});
  CHECK(searchsorted(edges, tensor({0.0, 2.0, 9.0})).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 4});
  CHECK(searchsorted(edges, tensor({0.0, 2.0, 9.0}), {.right = true}).to_vector<int64_t>() ==
        std::vector<int64_t>{0, 3, 4});
  CHECK(searchsorted(edges, 3).item<int64_t>() == 3);
  CHECK(searchsorted(edges, 3, {.out_int32 = true}).dtype() == kInt32);
  const Tensor mixed = tensor({4.0, 1.0, 2.0, 2.0});
  CHECK(searchsorted(mixed, 2.0, {.sorter = argsort(mixed)}).item<int64_t>() == 1);
  const Tensor rows = sort(rand({5, 3}), 0).first;  // sorted along dimension 0: searched in its transpose
  const Tensor found = searchsorted(transpose(rows, 0, 1), transpose(rows, 0, 1));
  CHECK(values(found) == values(arange(5).expand({3, 5})));
  CHECK(bucketize(tensor({1, 5}), edges).to_vector<int64_t>() == std::vector<int64_t>{0, 4});
  CHECK(has(error_of([&] { searchsorted(edges, 1, {.sorter = ones(4)}); }), "sorter"));
}

TEST_CASE("isin: numbers, promotion, NaN") {
  const auto bools = [](const Tensor& t) { return t.to_vector<bool>(); };
  CHECK(bools(isin(tensor({1, 2, 3}), tensor({2.0, 3.5}))) == std::vector<bool>{false, true, false});
  CHECK(bools(isin(tensor({1, 2, 3}), 2, {.invert = true})) == std::vector<bool>{true, false, true});
  CHECK(isin(2, tensor({1, 2})).item<bool>());
  CHECK(!isin(tensor({kNan}), tensor({kNan})).item<bool>());
}
