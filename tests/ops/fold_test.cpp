#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("fold: counts the windows of each element") {
  const Tensor x = ones({1, 1, 4, 5}, {.dtype = kFloat64});
  const FoldOptions o{.padding = 1, .stride = {2, 1}};
  const Tensor count = fold(unfold(x, 3, o), {4, 5}, 3, o);
  CHECK(count[{0, 0, 0}].to_vector<double>() == std::vector<double>{2, 3, 3, 3, 2});
  CHECK(count[{0, 0, 1}].to_vector<double>() == std::vector<double>{4, 6, 6, 6, 4});
  CHECK(close(fold(unfold(x[0], 2), {4, 5}, 2), fold(unfold(x, 2), {4, 5}, 2)[0]));
}

TEST_CASE("fold, unfold: sizes that do not fit") {
  const Tensor x = zeros({2, 3, 4, 5});
  CHECK(unfold(zeros({0, 3, 4, 5}), 2).shape() == Shape{0, 12, 12});
  CHECK(refuses([&] { unfold(zeros({2, 3}), 2); }, "(2, 3)"));
  CHECK(refuses([&] { unfold(x, 5); }, "fit"));
  CHECK(refuses([&] { unfold(x, 0); }, "kernel size", "0"));
  CHECK(refuses([&] { unfold(x, 2, {.stride = 0}); }, "stride"));
  CHECK(refuses([&] { unfold(x, 2, {.dilation = 0}); }, "dilation"));
  CHECK(refuses([&] { unfold(x, 2, {.padding = -1}); }, "padding"));
  CHECK(refuses([&] { unfold(x, 2, {.padding = INT64_MAX / 2}); }, "overflows"));
  CHECK(refuses([&] { unfold(zeros({2, 3, 0, 5}), 2); }, "batch alone"));
  CHECK(refuses([&] { fold(zeros({1, 5, 9}), 4, 2); }, "divisible"));
  CHECK(refuses([&] { fold(zeros({1, 4, 8}), 4, 2); }, "3 x 3 = 9"));
}
