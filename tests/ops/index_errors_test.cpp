// Bad inputs of indexing, gathering and sorting: BI-053 to BI-077.
#include <numeric>

#include "helpers.h"

static const Tensor& table() {
  static const Tensor x = reshape(arange(6, {.dtype = kFloat64}), {3, 2});
  return x;
}

TEST_CASE("BI-053 to BI-056: the items of an index") {
  const Tensor x = table();
  CHECK(mentions(error_of([&] { Tensor y = x[5]; }), {"index 5", "dimension 0", "size 3"}));
  CHECK(mentions(error_of([&] { Tensor y = x[-4]; }), {"index -4", "dimension 0", "size 3"}));
  CHECK(mentions(error_of([&] { Tensor y = x[{0, 7}]; }), {"index 7", "dimension 1", "size 2"}));
  CHECK(mentions(error_of([&] { Tensor y = x[{None, Ellipsis, 2}]; }), {"index 2", "dimension 1", "size 2"}));
  CHECK(x[Slice(1, 100)].shape() == Shape{2, 2});
  CHECK(x[Slice(2, 1)].shape() == Shape{0, 2});
  CHECK(has(error_of([&] { Tensor y = x[Slice(0, 3, 0)]; }), "slice step must be positive"));
  CHECK(has(error_of([&] { Tensor y = x[Slice(0, 3, -1)]; }), "-1"));
  CHECK(has(error_of([&] { Tensor y = x[{0, 0, 0}]; }), "too many indices for tensor of dimension 2"));
  CHECK(has(error_of([&] { Tensor y = x[{Ellipsis, Ellipsis}]; }), "single ellipsis"));
}

TEST_CASE("BI-057 to BI-061: index tensors") {
  const Tensor x = table();
  CHECK(mentions(error_of([&] { Tensor y = x[ones(2)]; }), {"tensors used as indices must be", "float32"}));
  CHECK(mentions(error_of([&] { Tensor y = x[ones(4, {.dtype = kBool})]; }), {"mask", "(4,)", "(3, 2)"}));
  CHECK(mentions(error_of([&] { Tensor y = x[tensor({0, 3})]; }), {"index 3 at position 1", "dimension 0", "size 3"}));
  CHECK(mentions(error_of([&] {
                   Tensor y = x[{tensor({0, 2}), tensor({1, -3})}];
                 }),
                 {"index -3 at position 1", "dimension 1", "size 2"}));
  CHECK(mentions(error_of([&] { Tensor y = x[{0, tensor({2})}]; }), {"index 2", "dimension 1", "size 2"}));
  CHECK(has(error_of([&] { Tensor y = x[{tensor({0, 1}), tensor({0, 1, 0})}]; }), "[index]"));
  CHECK(mentions(error_of([&] { x.clone()[{Slice(), tensor({5})}] = 1; }), {"index 5", "dimension 1", "size 2"}));
  CHECK(mentions(error_of([&] { x.clone()[tensor({0, 1})] = ones({3}); }), {"(3,)", "(2, 2)"}));
  const Tensor y = zeros(3, {.dtype = kFloat64});
  y[tensor({1, 1})] = tensor({5.0, 6.0}, {.dtype = kFloat64});
  CHECK(values(y) == Values{0, 6, 0});  // the last one
}

TEST_CASE("BI-062 to BI-066: gather, scatter and their family") {
  const Tensor x = table();
  CHECK(mentions(error_of([&] {
                   gather(x, 0, tensor({{0, 7}}));
                 }),
                 {"index 7 at position 1", "dimension 0", "size 3"}));
  CHECK(mentions(error_of([&] { gather(x, 1, tensor({{-1}})); }), {"index -1", "dimension 1", "size 2"}));
  CHECK(has(error_of([&] { gather(x, 0, tensor({0})); }), "same number of dimensions"));
  CHECK(has(error_of([&] { gather(x, 0, zeros({1, 3}, {.dtype = kInt64})); }), "size does not match at dimension 1"));
  CHECK(gather(x, 0, zeros({0, 2}, {.dtype = kInt64})).numel() == 0);
  CHECK(mentions(error_of([&] { gather(ones({0, 2}), 0, tensor({{0, 0}})); }), {"index 0", "size 0"}));
  for (const bool add : {false, true}) {
    Tensor y = x.clone();
    const Tensor bad = tensor({{0, 1}, {9, 0}}), ones_ = ones({2, 2}, {.dtype = kFloat64});
    const auto text = error_of([&] { add ? scatter_add_(y, 0, bad, ones_) : scatter_(y, 0, bad, ones_); });
    CHECK(mentions(text, {add ? "[scatter_add_]" : "[scatter_]", "index 9 at position 2", "dimension 0", "size 3"}));
    CHECK(values(y) == values(x));
  }
  CHECK(has(error_of([&] { scatter(x, 0, tensor({{-1, 0}}), 1.0); }), "index -1"));
  CHECK(has(error_of([&] {
              scatter_reduce(x, 0, tensor({{0, 1}}), ones({1, 2}, {.dtype = kFloat64}), "median");
            }),
            "median"));
  CHECK(has(error_of([&] { scatter(x, 0, tensor({{0, 1}}), 1.0, "sum"); }), "reduce"));
  CHECK(mentions(error_of([&] { scatter(x, 0, tensor({{0, 1}}), ones({1, 2})); }), {"float64", "float32"}));
  CHECK(mentions(error_of([&] { index_select(x, 0, tensor({0, 3})); }), {"[index_select]", "index 3", "size 3"}));
  CHECK(has(error_of([&] { index_select(x, 0, tensor({-1})); }), "index -1"));
  CHECK(has(error_of([&] { index_select(x, 0, tensor({{0}})); }), "index is supposed to be a vector"));
  Tensor y = x.clone();
  CHECK(mentions(error_of([&] {
                   index_add_(y, 1, tensor({2}), ones({3, 1}, {.dtype = kFloat64}));
                 }),
                 {"[index_add_]", "index 2", "dimension 1", "size 2"}));
  CHECK(has(error_of([&] { index_copy_(y, 1, tensor({0}), ones({3, 2}, {.dtype = kFloat64})); }), "(3, 1)"));
  CHECK(has(error_of([&] { index_fill_(y, 1, tensor({-3}), 1); }), "index -3"));
  CHECK(mentions(error_of([&] { take(x, tensor({6})); }), {"[take]", "index 6", "size 6"}));
  CHECK(has(error_of([] { take(ones({0}), tensor({0})); }), "size 0"));
  CHECK(mentions(error_of([] { unravel_index(tensor({12}), {3, 4}); }), {"12", "(3, 4)"}));
  CHECK(has(error_of([] { unravel_index(tensor({0}), {3, 0}); }), "(3, 0)"));
  CHECK(has(error_of([&] { take_along_dim(x, tensor({0}), 0); }), "same number of dimensions"));
}

TEST_CASE("BI-069: masks") {
  const Tensor x = table();
  CHECK(mentions(error_of([&] { masked_scatter(x, x.ge(2), ones(3, {.dtype = kFloat64})); }),
                 {"[masked_scatter]", "4", "3"}));
  CHECK(has(error_of([&] { masked_select(x, tensor({1, 0})); }), "bool"));
  CHECK(has(error_of([&] { masked_select(x, tensor({true, false, true})); }), "[masked_select]"));
}

TEST_CASE("BI-070 to BI-072, BI-074: order") {
  const Tensor x = tensor({3.0, kNan, 1.0, kInf, kNan, -2.0});
  CHECK(mentions(error_of([&] { topk(x, 7); }), {"selected index k out of range", "6", "7"}));
  CHECK(has(error_of([&] { topk(x, -1); }), "-1"));
  CHECK(has(error_of([&] { kthvalue(x, 0); }), "[kthvalue]"));
  CHECK(close(values(sort(x).first), {-2, 1, 3, kInf, kNan, kNan}));
  CHECK(argsort(x, 0, {.descending = true}).to_vector<int64_t>() == std::vector<int64_t>{1, 4, 3, 0, 2, 5});
  CHECK(close(values(topk(x, 3).first), {kNan, kNan, kInf}));
  CHECK(std::isnan(median(x).item<double>()));
  CHECK(nanmedian(x).item<double>() == 1);
  const Tensor nothing = ones({2, 0});
  CHECK(has(error_of([&] { kthvalue(nothing, 1); }), "[kthvalue]"));
  CHECK(has(error_of([&] { median(nothing, 1); }), "[median]"));
  CHECK(has(error_of([&] { mode(nothing, 1); }), "[mode]"));
  CHECK(has(error_of([&] { quantile(nothing, 0.5); }), "non-empty"));
  CHECK(has(error_of([&] { quantile(ones(2), 1.5); }), "[0, 1]"));
  const Tensor found = searchsorted(tensor({5.0, kNan, 1.0}), tensor({2.0, kNan, 9.0}));
  for (int64_t i : found.to_vector<int64_t>()) CHECK((i >= 0 && i <= 3));
  CHECK(has(error_of([] { searchsorted(ones({2, 3}), ones({3, 3})); }), "must match"));
  CHECK(has(error_of([] { bucketize(ones(2), ones({2, 2})); }), "1 dimension"));
}

TEST_CASE("BI-073, BI-077: histograms") {
  CHECK(has(error_of([] { bincount(tensor({-1})); }), "[bincount]"));
  CHECK(has(error_of([] { histc(ones(3), 0); }), "[histc]"));
  CHECK(has(error_of([] { histc(ones(3), 4, {.min = 2, .max = 1}); }), "max must be larger than min"));
  CHECK(has(error_of([] { histc(tensor({1.0, kNan}), 4); }), "[histc]"));
}

TEST_CASE("BI-076: more than 2^32 elements") {
  const int64_t n = (int64_t(1) << 32) + 3;
  const Tensor wide = tensor({7.0}).expand(n), last = tensor({n - 1, int64_t(5), int64_t(1) << 31});
  CHECK(values(index_select(wide, 0, last)) == Values{7, 7, 7});
  CHECK(values(gather(wide, 0, last)) == Values{7, 7, 7});
  CHECK(values(Tensor(wide[last])) == Values{7, 7, 7});
  CHECK(mentions(error_of([&] { index_select(wide, 0, tensor({n})); }), {"4294967299"}));
  CHECK(wide[Slice(n - 2, {})].shape() == Shape{2});
  CHECK(cat({ones(2), wide[Slice(n - 1, {})].to(kFloat32)}).numel() == 3);
}
