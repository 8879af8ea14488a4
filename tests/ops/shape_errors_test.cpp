// Bad inputs of creation and shapes: BI-001 to BI-052.
#include <limits>

#include "helpers.h"

TEST_CASE("BI-001 to BI-006: sizes that cannot be") {
  CHECK(mentions(error_of([] { zeros({-1}); }), {"-1", "(-1,)"}));
  CHECK(mentions(error_of([] { empty({2, -3}); }), {"-3", "(2, -3)"}));
  CHECK(mentions(error_of([] { zeros(int64_t(1) << 62); }), {"4611686018427387904"}));
  CHECK(has(error_of([] { zeros({int64_t(1) << 33, int64_t(1) << 33}); }), "(8589934592, 8589934592)"));
  CHECK(has(error_of([] { zeros({0, int64_t(1) << 62, int64_t(1) << 62}); }), "(0, 4611686018427387904"));
  CHECK(has(error_of([] { ones(1).reshape(Dims::filled(16, 1)).unsqueeze(0); }), "16"));
  try {
    empty(int64_t(1) << 40);
    FAIL("1 TB was given");
  } catch (const OutOfMemoryError& e) {
    CHECK(mentions(e.what(), {"(1099511627776,)", "float32"}));
  }
}

TEST_CASE("BI-007 to BI-010: values and ranges") {
  CHECK(mentions(error_of([] { full({2}, 300, {.dtype = kUInt8}); }), {"[full]", "300", "uint8"}));
  CHECK(mentions(error_of([] { full({2}, -1, {.dtype = kUInt8}); }), {"-1", "uint8"}));
  CHECK(mentions(error_of([] { full({2}, 1e300, {.dtype = kFloat32}); }), {"1e+300", "float32"}));
  CHECK(mentions(error_of([] { arange(0, 10, 0); }), {"step must be nonzero", "10"}));
  CHECK(mentions(error_of([] { arange(0, 10, -1); }), {"inconsistent with step sign", "-1"}));
  CHECK(has(error_of([] { arange(0, 1e300, 1); }), "unsupported range"));
  CHECK(has(error_of([] { arange(0, kNan, 1); }), "unsupported range"));
  CHECK(has(error_of([] { linspace(0, 1, -1); }), "number of steps must be non-negative"));
  CHECK(has(error_of([] { logspace(0, 1, -1); }), "number of steps must be non-negative"));
  CHECK(linspace(3, 7, 0).numel() == 0);
  CHECK(values(linspace(3, 7, 1)) == Values{3});
}

TEST_CASE("BI-016, BI-018 to BI-021: memory and lists of the caller's") {
  CHECK(has(error_of([] { from_blob(nullptr, {4}); }), "[from_blob]"));
  float memory[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(has(error_of([&] { from_blob(memory, {2}, Strides{-1}, {}); }), "-1"));
  CHECK(!error_of([&] { from_blob(memory, {3, 3}, Strides{int64_t(1) << 62, int64_t(1) << 62}, {}); }).empty());
  CHECK(mentions(error_of([] { tensor({{1, 2}, {3}}); }), {"2", "1"}));
  const Values five(5, 1);
  CHECK(mentions(error_of([&] { tensor(std::span(five), {2, 3}); }), {"5", "(2, 3)"}));
}

TEST_CASE("BI-022 to BI-026: view and reshape") {
  const Tensor x = ones({2, 3});
  CHECK(has(error_of([&] { view(x, 4); }), "shape '(4,)' is invalid for input of size 6"));
  CHECK(has(error_of([&] { view(x, {-1, -1}); }), "only one dimension can be inferred"));
  CHECK(has(error_of([&] { view(x, {-2, 3}); }), "(-2, 3)"));
  CHECK(has(error_of([] { view(ones({0, 3}), {0, -1}); }), "ambiguous"));
  CHECK(mentions(error_of([&] { view(t(x), 6); }), {"(3, 2)", "(1, 3)", "Use reshape(...) instead"}));
  CHECK(reshape(t(x), 6).numel() == 6);
  CHECK(has(error_of([] { reshape(ones({0}), {int64_t(1) << 32, int64_t(1) << 32}); }), "4294967296"));
}

TEST_CASE("BI-027 to BI-030: dimensions") {
  const Tensor x = ones({4, 3});
  CHECK(mentions(error_of([&] { permute(x, {0}); }), {"[permute]", "(0,)", "2"}));
  CHECK(has(error_of([&] { permute(x, {0, 0}); }), "repeated dim"));
  CHECK(mentions(error_of([&] { permute(x, {0, 2}); }), {"[-2, 1]", "2"}));
  CHECK(mentions(error_of([&] { expand(x, {2, 3}); }), {"(4, 3)", "(2, 3)", "dimension 0"}));
  CHECK(mentions(error_of([&] { expand(x, {-1, 4, 3}); }), {"(4, 3)", "dimension 0"}));
  CHECK(mentions(error_of([&] { squeeze(x, 5); }), {"[-2, 1]", "5"}));
  CHECK(mentions(error_of([&] { sum(x, 3); }), {"[-2, 1]", "3"}));
  CHECK(mentions(error_of([&] { unsqueeze(x, -9); }), {"[-3, 2]", "-9"}));
  CHECK(has(error_of([&] { sum(x, {0, 0}); }), "[sum]"));
  CHECK(has(error_of([&] { flip(x, {1, 1}); }), "[flip]"));
  CHECK(mentions(error_of([&] { movedim(x, {0, 0}, {0, 1}); }), {"[movedim]", "repeated dim"}));
  CHECK(has(error_of([&] { movedim(x, {0, 1}, 0); }), "[movedim]"));
  CHECK(has(error_of([&] { transpose(x, 0, 2); }), "[-2, 1]"));
  CHECK(mentions(error_of([&] { unflatten(x, 0, {3, -1}); }), {"[unflatten]", "(3, -1)", "4"}));
  CHECK(has(error_of([&] { unflatten(x, 0, {int64_t(1) << 62, 8}); }), "[unflatten]"));
}

TEST_CASE("BI-031 to BI-036: joins and splits") {
  const Tensor x = ones({2, 3});
  for (const auto& text :
       {error_of([] { cat(std::vector<Tensor>{}); }), error_of([] { stack(std::vector<Tensor>{}); }),
        error_of([] { hstack({}); }), error_of([] { cartesian_prod({}); }), error_of([] { meshgrid({}); })})
    CHECK(has(text, "non-empty list of Tensors"));
  CHECK(mentions(error_of([&] { cat({x, ones({3, 3})}, 1); }), {"(2, 3)", "(3, 3)", "position 1", "dimension 1"}));
  CHECK(has(error_of([&] { cat({x, x}, 2); }), "[-2, 1]"));
  CHECK(cat({x, ones({0})}).shape() == Shape{2, 3});
  const int64_t half = std::numeric_limits<int64_t>::max() / 2 + 1;
  const Tensor wide = ones({0, 1}).expand({0, half});
  CHECK(has(error_of([&] { cat({wide, wide}, 1); }), "overflow"));
  CHECK(mentions(error_of([] { stack({ones(2), ones(3)}); }), {"equal size", "(2,)", "entry 0", "(3,)", "entry 1"}));
  CHECK(mentions(error_of([&] { split(x, std::vector<int64_t>{1, 1}, 1); }), {"[split]", "3", "2"}));
  CHECK(has(error_of([&] { split(x, std::vector<int64_t>{4, -1}, 1); }), "[split]"));
  CHECK(has(error_of([&] { split(x, 0, 1); }), "[split]"));
  CHECK(has(error_of([&] { chunk(x, 0); }), "greater than 0"));
  CHECK(has(error_of([&] { tensor_split(x, 0); }), "larger than 0"));
  CHECK(mentions(error_of([&] { hsplit(x, 2); }), {"[hsplit]", "3", "not divisible", "2"}));
}

TEST_CASE("BI-037, BI-038: repeats") {
  const Tensor x = ones({2, 3});
  CHECK(mentions(error_of([&] { repeat(x, {1, -1}); }), {"[repeat]", "-1"}));
  CHECK(mentions(error_of([&] { tile(x, -1); }), {"-1"}));
  CHECK(has(error_of([&] { repeat(x, {int64_t(1) << 40, int64_t(1) << 40}); }), "overflows"));
  CHECK(mentions(error_of([&] { repeat(x, 2); }), {"can not be smaller", "(2,)"}));
  CHECK_THROWS_AS(repeat(x, {int64_t(1) << 40, 1}), OutOfMemoryError);
  CHECK(has(error_of([&] { repeat_interleave(x, -1, 0); }), "non-negative"));
  CHECK(has(error_of([&] { repeat_interleave(x, tensor({1, -2}), 0); }), "can not be negative, got -2"));
  CHECK(has(error_of([&] { repeat_interleave(x, tensor({1, 2, 3}), 0); }), "same size"));
  CHECK(has(error_of([&] { repeat_interleave(tensor({1.5})); }), "Long or Int"));
}

TEST_CASE("BI-040, BI-041: windows over memory") {
  const Tensor x = ones({2, 3});
  CHECK(mentions(error_of([&] { as_strided(x, {3, 3}, {3, 1}); }), {"36", "24", "out of bounds"}));
  CHECK(has(error_of([&] { as_strided(x, {2}, {1}, -1); }), "-1"));
  CHECK(mentions(error_of([&] { unfold(x, 1, 4, 1); }), {"[unfold]", "3", "4"}));
  CHECK(has(error_of([&] { unfold(x, 1, 2, 0); }), "step is 0"));
  CHECK(has(error_of([&] { unfold(x, 1, -1, 1); }), "-1"));
}

TEST_CASE("BI-042, BI-044 to BI-046, BI-052: operands that do not fit") {
  CHECK(mentions(error_of([] { add(ones({2, 3}), ones({2, 4})); }), {"3", "4", "dimension 1"}));
  const Tensor none;
  CHECK_THROWS_AS(none.shape(), ValueError);
  CHECK_THROWS_AS(flip(none, 0), ValueError);
  CHECK_THROWS_AS(cat({ones(2), none}), ValueError);
  CHECK_THROWS_AS(gather(none, 0, none), ValueError);
  CHECK(has(error_of([] { ones({2}).item(); }), "2 elements"));
  CHECK(!error_of([] { full({}, kNan).item<int>(); }).empty());
  CHECK(mentions(error_of([] { ones({2}).data<double>(); }), {"float32", "float64"}));
  CHECK(mentions(error_of([] { ones({2, 3}).copy_(ones({2, 2})); }), {"(2, 3)", "(2, 2)"}));
}

TEST_CASE("BI-048: matrices that are none") {
  CHECK(mentions(error_of([] { tril(ones(3)); }), {"[tril]", "at least 2 dimensions"}));
  CHECK(mentions(error_of([] { triu(ones(3)); }), {"[triu]", "at least 2 dimensions"}));
  CHECK(has(error_of([] { diag(ones({2, 2, 2})); }), "[diag]"));
  CHECK(has(error_of([] { diagonal(ones({2, 2}), 0, 0, 0); }), "cannot be identical"));
  CHECK(has(error_of([] { diagonal(ones({2, 2}), 0, 0, -2); }), "cannot be identical"));
  CHECK(has(error_of([] { trace(ones({2, 2, 2})); }), "[trace]"));
  CHECK(mentions(error_of([] { diagonal_scatter(ones({2, 2}), ones(3)); }), {"(2,)", "(3,)"}));
  CHECK(has(error_of([] { block_diag({ones({2, 2, 2})}); }), "position 0"));
  CHECK(has(error_of([] { tril_indices(-1, 2); }), "[tril_indices]"));
  CHECK(diagonal(ones({2, 2}), 5).numel() == 0);
  CHECK(diagonal(ones({2, 2}), std::numeric_limits<int64_t>::max()).numel() == 0);
}
