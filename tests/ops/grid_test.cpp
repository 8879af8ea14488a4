#include <limits>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("BI-075 grid_sample: coordinates that are no places") {
  const Tensor x = full({1, 1, 3, 3}, 2, {.dtype = kFloat32});
  const std::vector<double> far = {NAN, INFINITY, -INFINITY, 1e30, -1e30, 0};
  for (const char* mode : {"bilinear", "nearest", "bicubic"})
    for (const char* outside : {"zeros", "border", "reflection"})
      for (double place : far) {
        const Tensor grid = full({1, 1, 1, 2}, place, {.dtype = kFloat32}).requires_grad_();
        const Tensor y = grid_sample(x, grid, {.mode = mode, .padding_mode = outside});
        CHECK(y.shape() == Shape{1, 1, 1, 1});
        if (place == 0) CHECK(std::abs(y.item() - 2) < 1e-5);
        else if (std::string(outside) == "zeros") CHECK(y.item() == 0);
        y.backward();
      }
}

TEST_CASE("grid_sample: operands that do not fit") {
  const Tensor x = zeros({2, 3, 4, 5}), grid = zeros({2, 6, 7, 2});
  CHECK(grid_sample(x, grid).shape() == Shape{2, 3, 6, 7});
  CHECK(grid_sample(zeros({2, 0, 4, 5}), grid).shape() == Shape{2, 0, 6, 7});  // no channels
  CHECK(refuses([&] { grid_sample(x, zeros({1, 6, 7, 2})); }, "batch size", "(1, 6, 7, 2)"));
  CHECK(refuses([&] { grid_sample(x, zeros({2, 6, 7, 3})); }, "size 2 in last dimension"));
  CHECK(refuses([&] { grid_sample(x, zeros({2, 6, 2})); }, "same number of dimensions"));
  CHECK(refuses([&] { grid_sample(zeros({2, 3, 0, 5}), grid); }, "non-empty"));
  CHECK(refuses([&] { grid_sample(x, to(grid, kFloat64)); }, "dtype"));
  CHECK(refuses([&] { grid_sample(x, grid, {.mode = "cubic"}); }, "cubic"));
  CHECK(refuses([&] { grid_sample(x, grid, {.padding_mode = "zero"}); }, "zero"));
  CHECK(refuses([&] { affine_grid(zeros({2, 2, 3}), {1, 1, 4, 4}); }, "(2, 2, 3)"));
  CHECK(refuses([&] { affine_grid(zeros({1, 2, 3}), {1, 1, 0, 4}); }, "(1, 1, 0, 4)"));
}

TEST_CASE("grid_sample: the identity gives the image") {
  const Tensor x = numbers({2, 3, 4, 5});
  const Tensor theta = expand(tensor({{1., 0., 0.}, {0., 1., 0.}}, {.dtype = kFloat64}), {2, 2, 3});
  for (bool corners : {false, true})
    for (const char* mode : {"bilinear", "nearest", "bicubic"})
      CHECK(close(grid_sample(x, affine_grid(theta, x.shape(), corners),
                              {.mode = mode, .padding_mode = "border", .align_corners = corners}),
                  x));
}
