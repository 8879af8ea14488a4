#include "helpers.h"

TEST_CASE("sort and its kin: long lines, several layouts, gradients") {
  for (DType t : {kFloat32, kFloat64, kFloat16, kInt64, kInt8, kBool}) {
    INFO(int(t));
    const Tensor x = to(sub(mul(rand({3, 5000}, {.dtype = kFloat64}), 40), 20), t);
    for (const bool down : {false, true}) {
      const auto [values_, indices] = sort(x, 1, {.descending = down});
      CHECK(values(gather(x, 1, indices)) == values(values_));
      const Tensor a = narrow(values_, 1, 0, 4999), b = narrow(values_, 1, 1, 4999);
      CHECK(all(down ? ge(a, b) : le(a, b)).item<bool>());
      CHECK(all(logical_or(ne(a, b), lt(narrow(indices, 1, 0, 4999), narrow(indices, 1, 1, 4999))))
                .item<bool>());  // stable
      const auto top = topk(x, 7, 1, {.largest = down});
      CHECK(values(top.first) == values(narrow(values_, 1, 0, 7)));
      CHECK(values(top.second) == values(narrow(indices, 1, 0, 7)));
    }
    CHECK(values(sort(t == kBool ? transpose(x, 0, 1) : transpose(x, 0, 1), 0).first) ==
          values(transpose(sort(x, 1).first, 0, 1)));
    CHECK(values(kthvalue(x, 100, 1).first) == values(select(sort(x, 1).first, 1, 99)));
    const Tensor line = reshape(x, -1);
    CHECK(values(sort(line).first) == values(sort(contiguous(line)).first));
  }
  const Tensor one = to(mul(rand(100000, {.dtype = kFloat64}), 1000), kInt32);  // one line, shared by threads
  CHECK(values(sort(one).first) == values(index_select(one, 0, argsort(one))));
  CHECK(unique(one).values.numel() <= 1000);
}

TEST_CASE("topk of a 0-dim tensor is its element, even for k = 0, as PyTorch's") {
  const Tensor x = leaf({3.5}, {});
  for (const int k : {0, 1})
    for (int i = 0; i < 3; ++i) {
      const Tensor noise = full({}, 7 + i);  // what new memory may hold
      const auto [value, index] = topk(x + noise * 0, k);
      CHECK(value.item() == 3.5);
      CHECK(index.item<int64_t>() == 0);
      CHECK(grad({value}, {x})[0].item() == 1);
    }
}

TEST_CASE("unique: inverse, counts, along a dimension") {
  const Tensor x = tensor({{3, 1}, {1, 2}, {3, 1}, {0, 9}});
  const Unique rows = unique(x, {.return_inverse = true, .return_counts = true, .dim = 0});
  CHECK(values(rows.values) == Values{0, 9, 1, 2, 3, 1});
  CHECK(values(rows.inverse) == Values{2, 1, 2, 0});
  CHECK(values(rows.counts) == Values{1, 1, 2});
  CHECK(!unique(x).inverse.defined());
  const Tensor deep =
      tensor({{{0, 0}, {1, 0}}, {{0, 1}, {0, 0}}});  // slices are sorted by their elements in row-major order
  CHECK(equal(unique(deep, {.dim = 2}).values, flip(deep, 2)));
  CHECK(unique(tensor({kNan, kNan})).values.numel() == 2);
  const Unique runs = unique_consecutive(tensor({1, 1, 2, 1}), {.return_counts = true});
  CHECK(values(runs.values) == Values{1, 2, 1});
  CHECK(values(runs.counts) == Values{2, 1, 1});
}
