#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("fractional_max_pool: drawn windows end with the input") {
  const Tensor x = view(arange(0, 49, 1, {.dtype = kFloat64}), {1, 1, 7, 7});
  manual_seed(1);
  const auto [y, places] = fractional_max_pool2d_with_indices(x, {2, 3}, {.output_size = {4, 3}});
  CHECK(y.shape() == Shape{1, 1, 4, 3});
  CHECK(y[{0, 0, 3, 2}].item() == 48);
  CHECK(close(y, to(places, kFloat64)));
  CHECK(close(fractional_max_pool2d(x, 7, {.output_size = 1}), full({1, 1, 1, 1}, 48.)));
  CHECK(fractional_max_pool3d(zeros({2, 4, 5, 6}), 2, {.output_ratio = {0.5}}).shape() == Shape{2, 2, 2, 3});
}

TEST_CASE("fractional_max_pool: sizes that do not fit") {
  const Tensor x = zeros({1, 2, 5, 5});
  CHECK(refuses([&] { fractional_max_pool2d(x, 2, {}); }, "output_size"));
  CHECK(refuses([&] { fractional_max_pool2d(x, 2, {.output_size = 2, .output_ratio = {0.5}}); }, "output_ratio"));
  CHECK(refuses([&] { fractional_max_pool2d(x, 2, {.output_size = 5}); }, "output_size", "5"));
  CHECK(refuses([&] { fractional_max_pool2d(x, 2, {.output_size = 0}); }, "at least 1"));
  CHECK(refuses([&] { fractional_max_pool2d(x, 6, {.output_size = 1}); }, "kernel 6"));
  CHECK(refuses([&] { fractional_max_pool2d(x, 2, {.output_ratio = {1.5}}); }, "1.5"));
  CHECK(refuses([&] { fractional_max_pool2d(x, 0, {.output_size = 1}); }, "kernel size"));
  CHECK(refuses(
      [&] {
        fractional_max_pool2d(x, 2, {.output_size = 1, .random_samples = zeros({1, 2, 3})});
      },
      "(1, 2, 3)"));
}
