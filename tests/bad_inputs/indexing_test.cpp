// Indices out of range, of the wrong kind, or too many; options of sampling and padding that make no sense.
#include "refused.h"

static Tensor ints(const std::vector<int64_t>& v) { return tensor(v); }
static Shape shape_of(const Indexed& x) { return x.shape(); }

TEST_CASE("BI-053 BI-054 BI-055 BI-056 integers and slices") {
  const Tensor x = arange(0, 6, 1).view({3, 2});
  REFUSED(x[5].value(), "index 5", "dimension 0", "size 3");
  REFUSED(x[-4].value(), "index -4", "dimension 0", "size 3");
  REFUSED((x[{0, 7}].value()), "index 7", "dimension 1", "size 2");
  CHECK(shape_of(x[Slice(1, 100)]) == Shape{2, 2});
  CHECK(shape_of(x[Slice(-100, 2)]) == Shape{2, 2});
  CHECK(shape_of(x[Slice(2, 1)]) == Shape{0, 2});
  CHECK(shape_of(x[Slice(7, 9)]) == Shape{0, 2});
  REFUSED(x[Slice(0, 3, 0)].value(), "step", "0");
  REFUSED(x[Slice({}, {}, -1)].value(), "step", "-1");
  REFUSED((x[{0, 0, 0}].value()), "too many indices", "2", "3");
  REFUSED((x[{Ellipsis, 0, Ellipsis}].value()), "ellipsis");
}

TEST_CASE("BI-057 BI-058 BI-059 BI-060 BI-061 tensors as indices") {
  Tensor x = arange(0, 12, 1).view({3, 4});
  REFUSED(x[ones({2})].value(), "float32");
  REFUSED(x[ones({4}, {.dtype = kBool})].value(), "(4,)", "(3, 4)");
  REFUSED(x[ints({0, 3})].value(), "index 3", "position 1", "size 3");
  REFUSED(x[ints({-4})].value(), "index -4", "size 3");
  REFUSED((x[{ints({0, 1}), ints({0, 1, 2})}].value()), "(2,)", "(3,)");
  REFUSED(index_put_(x, {ints({0, 1})}, ones({3}, {.dtype = kInt64})), "(3,)", "(2, 4)");
  REFUSED(index_put_(x, {ints({0, 9})}, ones({4}, {.dtype = kInt64})), "index 9", "size 3");
  x[ints({1, 1, 1})] = ints({7, 8, 9}).view({3, 1});
  const int64_t written = x[{1, 0}].item<int64_t>();
  CHECK((written == 7 || written == 8 || written == 9));
  CHECK(values(x[1]) == Values(4, double(written)));
}

TEST_CASE("BI-062 BI-063 BI-064 BI-065 gather, scatter, index_select") {
  const Tensor x = arange(0, 6, 1).view({2, 3}), none = zeros({2, 0}, {.dtype = kInt64});
  REFUSED(gather(x, 1, ints({0, 7}).view({2, 1})), "index 7", "position 1", "size 3");
  REFUSED(gather(x, 1, ints({0, -1}).view({2, 1})), "index -1", "size 3");
  REFUSED(gather(x, 1, ints({0})), "dimensions");
  REFUSED(gather(x, 1, zeros({3, 1}, {.dtype = kInt64})), "(3, 1)", "(2, 3)");
  REFUSED(gather(x, 1, ones({2, 1})), "float32");
  CHECK(gather(x, 1, none).shape() == Shape{2, 0});
  CHECK(gather(none, 1, none).shape() == Shape{2, 0});
  REFUSED(gather(none, 1, zeros({2, 1}, {.dtype = kInt64})), "index 0", "size 0");
  Tensor y = x.clone();
  REFUSED(scatter_add_(y, 1, ints({0, 3}).view({2, 1}), ones({2, 1}, {.dtype = kInt64})), "index 3", "size 3");
  CHECK(values(y) == values(x));  // nothing was written
  REFUSED(index_select(x, 0, ints({2})), "index 2", "size 2");
  REFUSED(index_select(x, 0, zeros({1, 1}, {.dtype = kInt64})), "vector", "(1, 1)");
  REFUSED(index_select(x, 4, ints({0})), "index_select", "4", "[-2, 1]");
  const Tensor one = tensor(1.0), two = tensor(2.0);
  for (const Tensor& places : {ints({0, 0}), ints({})}) {  // a 0-dim tensor has one place
    const std::string count = tapir::format("got {}", places.numel());
    REFUSED(index_copy(one, 0, places, two), "index_copy_", "one index", count.c_str());
    REFUSED(index_add(one, 0, places, two), "index_add_", "one index", count.c_str());
  }
  CHECK(index_copy(one, 0, ints({0}), two).item() == 2);
  CHECK(index_add(one, 0, tensor(0), two).item() == 3);
}

TEST_CASE("index_add of integers and bools: a factor keeps the dtype, a fraction is refused") {
  const Tensor x = ones({3, 2}, {.dtype = kInt32}), places = ints({0, 2});
  CHECK(values(index_add(x, 0, places, x.narrow(0, 0, 2), 3)) == Values{4, 4, 1, 1, 4, 4});
  REFUSED(index_add(x, 0, places, x.narrow(0, 0, 2), 0.5), "index_add", "alpha", "0.5");
  const Tensor bools = zeros({3}, {.dtype = kBool}), yes = ones({2}, {.dtype = kBool});
  const Tensor y = index_add(bools, 0, places, yes, 2);
  CHECK(y.dtype() == kBool);
  CHECK(values(y) == Values{1, 0, 1});
}

TEST_CASE("BI-039 padding") {
  const Tensor x = ones({1, 2, 3});
  REFUSED(pad(x, {-2, -2}), "pad", "-2", "3");
  REFUSED(pad(x, {1}), "pad", "1");
  REFUSED(pad(x, {3, 0}, {.mode = "reflect"}), "pad", "3");
  REFUSED(pad(x, {1, 1}, {.mode = "mirror"}), "pad", "mirror");
}

TEST_CASE("BI-049 BI-051 sampling") {
  const Tensor x = ones({1, 3, 4, 4});
  for (const double scale : {0.0, kNan, kInf, -1.0}) {
    INFO(scale);
    CHECK(missing([&] { interpolate(x, {.scale_factor = {scale}}); }, {"interpolate"}) == "");
  }
  REFUSED(interpolate(x, {.size = {0, 4}}), "interpolate", "0");
  REFUSED(interpolate(x, {.size = {2, 2}, .scale_factor = {2.0}}), "interpolate", "size", "scale_factor");
  REFUSED(pixel_shuffle(x, 0), "pixel_shuffle", "0");
  REFUSED(pixel_shuffle(x, 2), "pixel_shuffle", "3", "2");
}
