#include "helpers.h"

static Tensor counted(const Shape& shape) { return reshape(arange(numel_of(shape), {.dtype = kFloat64}), shape); }

TEST_CASE("x[...] reads: integers, slices, new and skipped dimensions, masks together") {
  const Tensor x = counted({3, 10, 4, 2}), mask = tensor({true, false});
  const Tensor y = x[{1, Slice(2, 8), None, Ellipsis, mask}];
  CHECK(y.shape() == Shape{6, 1, 4, 1});
  CHECK(values(y) == values(narrow(unsqueeze(narrow(select(x, 0, 1), 0, 2, 6), 1), 3, 0, 1)));
  CHECK(values(x[{-1, -1, -1, -1}]) == Values{239});
  CHECK(x[{Slice(), Slice(1, {}, 4)}].shape() == Shape{3, 3, 4, 2});
  CHECK(x[{Ellipsis, 0}].shape() == Shape{3, 10, 4});
  CHECK(x[true].shape() == Shape{1, 3, 10, 4, 2});
  CHECK(x[false].numel() == 0);
}

TEST_CASE("x[...] with index tensors: broadcasting, and where their dimensions go") {
  const Tensor x = counted({3, 4, 5}), rows = tensor({{0}, {2}}), columns = tensor({1, -1, 3});
  const Tensor y = x[{rows, columns}];
  CHECK(y.shape() == Shape{2, 3, 5});
  CHECK(values(y[{1, 1}]) == values(x[{2, 3}]));
  CHECK(x[{Slice(), rows}].shape() == Shape{3, 2, 1, 5});
  CHECK(x[{rows, Slice(), columns}].shape() == Shape{2, 3, 4});  // apart: in front
  CHECK(x[{0, Slice(), columns}].shape() == Shape{4, 3});
  CHECK(x[{Slice(), rows, None}].shape() == Shape{3, 2, 1, 1, 5});
  const Tensor bits = tensor({1, 0, 1}, {.dtype = kUInt8}), last = tensor(-1);
  CHECK(values(x[bits]) == values(x[tensor({0, 2})]));         // a mask of an older kind
  CHECK(x[{last, Ellipsis, columns}].shape() == Shape{4, 3});  // 0-dim beside others: an integer
  CHECK(x[{last, Slice(), last}].shape() == Shape(4));
  const Tensor value = full({}, 2, {.dtype = kFloat64}).requires_grad_();
  const Tensor filled = index_fill(x, 1, tensor({0, 0, -1}), value);
  CHECK(values(grad({sum(filled)}, {value})[0]) == Values{30});  // what occurs twice counts once
  CHECK(values(filled) == values(index_fill(x, 1, tensor({0, -1}), 2)));
  CHECK_THROWS_AS(index_put(tensor({1, 2}), {tensor({0})}, tensor({1.5})),
                  ValueError);  // nothing is truncated silently
  const Tensor mask = x.ge(30);
  CHECK(values(x[mask]) == values(arange(30, 60, 1, {.dtype = kFloat64})));
}

TEST_CASE("x[...] writes into x, into views of it, and through gradients") {
  const Tensor x = counted({3, 4});
  x[{1, Slice(1, 3)}] = 50;
  x[{tensor({0, 2}), tensor({0, 3})}] = tensor({-1.0, -2.0});
  x[x.eq(50)] += 1;
  CHECK(values(x) == Values{-1, 1, 2, 3, 4, 51, 51, 7, 8, 9, 10, -2});
  x[0] = ones({1, 1, 4});
  x[{0, tensor({0, 1})}] = tensor({{{-1.0, 1.0}}});
  x[{0, Slice(2, 4)}] = tensor({2, 3});
  CHECK(values(x[0]) == Values{-1, 1, 2, 3});
  const Tensor part = x[Slice({}, {}, 2)];
  part[{Slice(), 0}] = 0;
  CHECK(values(x[{Slice(), 0}]) == Values{0, 4, 0});
  CHECK(gradients_hold(
      [](const Tensor& x, const Tensor& v) {
        Tensor y = x * 1.0;
        y[{Slice(), tensor({0, 2})}] = v;
        y[{0, Ellipsis}] = y[{1, Ellipsis}] * 2.0;
        return y[{tensor({0, 0, 1}), Slice(0, 3, 2)}];
      },
      {leaf({1, 2, 3, 4, 5, 6}, {2, 3}), leaf({7, 8, 9, 10}, {2, 2})}));
}
