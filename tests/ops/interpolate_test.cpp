#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("interpolate: sizes and scales, layouts") {
  const Tensor x = numbers({2, 3, 4, 6});
  CHECK(close(interpolate(x, {.scale_factor = {0.5}, .mode = "bilinear"}), avg_pool2d(x, 2)));
  CHECK(close(interpolate(x, {.size = {4, 6}, .mode = "bicubic"}), x));
  CHECK(close(interpolate(x, {.size = 2, .mode = "area"}), adaptive_avg_pool2d(x, 2)));
  CHECK(interpolate(x, {.scale_factor = {1.3, 0.7}}).shape() == Shape{2, 3, 5, 4});
  CHECK(interpolate(contiguous(x, kChannelsLast), {.size = 7, .mode = "bilinear"}).is_contiguous(kChannelsLast));
  const Tensor bytes = tensor({{{{0, 255}, {255, 0}}}}, {.dtype = kUInt8});
  CHECK(interpolate(bytes, {.size = 1, .mode = "bilinear"}).to_vector<int64_t>() == std::vector<int64_t>{128});
  const Tensor halves = tensor({{{{6, 7}}}}, {.dtype = kUInt8});  // a half goes up
  CHECK(interpolate(halves, {.size = {1, 3}, .mode = "bilinear"}).to_vector<int64_t>() ==
        std::vector<int64_t>{6, 7, 7});
}

TEST_CASE("interpolate: the gradient is the transposed map, at ratios whose windows end between two places too") {
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{7, 5}, {14, 10}, {25, 9}, {224, 160}, {448, 320}, {5, 7}})
    for (const char* mode : {"bilinear", "bicubic"})
      for (const DType dtype : {kFloat32, kFloat64}) {
        CAPTURE(in, out, mode);
        const Tensor x = randn({1, 2, in, in}, {.dtype = dtype}).requires_grad_(),
                     dy = randn({1, 2, out, out}, {.dtype = dtype});
        const Tensor y = interpolate(x, {.size = out, .mode = mode, .antialias = true});
        y.backward(dy);
        const double forward = sum(y.detach() * dy).item(), backward = sum(x.detach() * x.grad()).item();
        CHECK(forward == Approx(backward).margin(dtype == kFloat64 ? 1e-9 : 0.02));
      }
}

TEST_CASE("interpolate: options that do not fit") {
  const Tensor x = zeros({2, 3, 4, 6});
  CHECK(refuses([&] { interpolate(x, {}); }, "size"));
  CHECK(refuses([&] { interpolate(x, {.size = 2, .scale_factor = {2}}); }, "both"));
  CHECK(refuses([&] { interpolate(x, {.size = {1, 2, 3}}); }, "3"));
  CHECK(refuses([&] { interpolate(x, {.size = 0}); }, "greater than 0"));
  CHECK(refuses([&] { interpolate(x, {.size = -2}); }, "greater than 0", "-2"));
  CHECK(refuses([&] { interpolate(x, {.scale_factor = {0.1}}); }, "greater than 0"));
  CHECK(refuses([&] { interpolate(x, {.scale_factor = {NAN}}); }, "scale"));
  CHECK(refuses([&] { interpolate(x, {.scale_factor = {1e300}}); }, "greater than 0"));
  CHECK(refuses([&] { interpolate(x, {.size = int64_t(1) << 61}); }, "overflows"));
  CHECK(refuses([&] { interpolate(x, {.size = 2, .mode = "linear"}); }, "linear", "(2, 3, 4, 6)"));
  CHECK(refuses([&] { interpolate(x, {.size = 2, .mode = "cubic"}); }, "cubic"));
  CHECK(refuses([&] { interpolate(x, {.size = 2, .align_corners = true}); }, "align_corners"));
  CHECK(refuses([&] { interpolate(x, {.size = 2, .antialias = true}); }, "antialias"));
  CHECK(refuses([&] { interpolate(zeros({2, 3}), {.size = 2}); }, "(2, 3)"));
  CHECK(refuses([&] { interpolate(zeros({2, 3, 0, 4}), {.size = 2}); }, "greater than 0"));
}
