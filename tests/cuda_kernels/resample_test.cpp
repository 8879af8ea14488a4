// cuda_kernels/resample/resample.cu: interpolate and its gradients against the CPU.
#include "kernels.h"

using namespace tapir;

namespace {
Tensor gradient_of(const Tensor& input, const InterpolateOptions& o) {
  Tensor x = input.detach().clone().requires_grad_();
  const Tensor y = interpolate(x, o);
  (y * sin(arange(y.numel(), {.dtype = kFloat32, .device = y.device()}).view(y.shape()).to(y.dtype())))
      .sum()
      .backward();
  return x.grad();
}
void compare(const Shape& shape, const InterpolateOptions& o, bool gradient = true) {
  for (const DType t : kFloats)
    for (const bool last : {false, true}) {
      if (last && shape.size() != 4) continue;
      CAPTURE(std::string(o.mode), std::string(name_of(t)), last);
      Tensor x = numbers(shape, t);
      if (last) x = contiguous(x, kChannelsLast);
      const Tensor there = x.to(kCUDA);
      CHECK(difference(interpolate(there, o), interpolate(x, o)) <= rounding(t));
      if (gradient) CHECK(difference(gradient_of(there, o), gradient_of(x, o)) <= 4 * rounding(t));
    }
}
}  // namespace

TEST_CASE("cuda interpolate: every mode, larger, smaller and both") {
  NEEDS_CUDA
  compare({2, 3, 7}, {.size = {12}, .mode = "linear"});
  compare({2, 3, 7}, {.size = {3}, .mode = "nearest"});
  compare({1, 2, 3, 4, 5}, {.size = {5, 4, 2}, .mode = "trilinear"});
  compare({1, 2, 3, 4, 5}, {.size = {2, 8, 5}, .mode = "nearest-exact"});
  for (const std::string_view mode : {"nearest", "nearest-exact", "bilinear", "bicubic"}) {
    compare({2, 3, 5, 6}, {.scale_factor = {2}, .mode = mode});
    compare({2, 8, 5, 6}, {.size = {3, 9}, .mode = mode});
    compare({1, 16, 9, 4}, {.scale_factor = {0.6, 1.7}, .mode = mode});
    compare({2, 3, 1, 6}, {.size = {4, 1}, .mode = mode});
  }
  for (const std::string_view mode : {"bilinear", "bicubic"}) {
    compare({2, 3, 5, 6}, {.size = {9, 3}, .mode = mode, .align_corners = true});
    compare({2, 3, 5, 6}, {.size = {1, 1}, .mode = mode, .align_corners = true});
    compare({2, 8, 17, 11}, {.size = {5, 7}, .mode = mode, .antialias = true});
    compare({1, 3, 4, 13}, {.size = {9, 2}, .mode = mode, .antialias = true});
  }
}

TEST_CASE("cuda interpolate: integers, strides, nothing, and NaN where weights are 0") {
  NEEDS_CUDA
  for (const DType t : {kUInt8, kInt16, kInt64}) {
    const Tensor x = remainder(arange(96), 50).to(t).view({2, 3, 4, 4});
    CHECK(equal(interpolate(x.to(kCUDA), {.size = {7, 3}}).cpu(), interpolate(x, {.size = {7, 3}})));
  }
  const Tensor x = numbers({2, 3, 6, 5}, kFloat32), turned = x.transpose(2, 3);
  CHECK(difference(interpolate(x.to(kCUDA).transpose(2, 3), {.size = {9, 4}, .mode = "bilinear"}),
                   interpolate(turned, {.size = {9, 4}, .mode = "bilinear"})) <= 2e-5);
  CHECK(interpolate(zeros({0, 3, 4, 4}, {.device = kCUDA}), {.size = {2, 2}}).shape() == Shape{0, 3, 2, 2});
  Tensor bad = ones({1, 1, 4, 4});
  bad[0][0][3][3] = NAN;
  const InterpolateOptions same{.size = {4, 4}, .mode = "bilinear"};
  CHECK(difference(interpolate(bad.to(kCUDA), same), interpolate(bad, same)) == 0);
  const Tensor first = gradient_of(x.to(kCUDA), {.size = {11, 9}, .mode = "bicubic"}),
               again = gradient_of(x.to(kCUDA), {.size = {11, 9}, .mode = "bicubic"});
  CHECK(equal(first.cpu(), again.cpu()));
}
