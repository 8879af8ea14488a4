// cuda_kernels/runtime/late_errors.cpp: bad values are an ordinary error at the next wait, and the device goes on.
#include "cuda.h"

using namespace tapir;

TEST_CASE("cuda: an index out of range is raised at the next wait, once, and the device goes on (BI-059, BI-147)",
          "[border]") {
  NEEDS_CUDA
  const Tensor x = arange(10, {.dtype = kFloat32}).to(kCUDA), bad = tensor({1, 42, 3}).to(kCUDA);
  cuda::synchronize();
  const Tensor y = index_select(x, 0, bad);  // only queued
  const std::string text = error_of([] { cuda::synchronize(); });
  CHECK(contains(text, "42"));
  CHECK(contains(text, "10"));
  CHECK(error_of([] { cuda::synchronize(); }).empty());
  CHECK(index_select(x, 0, tensor({9}).to(kCUDA)).item<float>() == 9);
}

TEST_CASE("cuda: of several bad kernels the first is told; reading a value tells it too", "[border]") {
  NEEDS_CUDA
  const Tensor x = arange(10, {.dtype = kFloat32}).to(kCUDA);
  const Tensor first = tensor({77}).to(kCUDA), second = tensor({88}).to(kCUDA);
  (void)gather(x, 0, first);
  (void)gather(x, 0, second);
  const std::string text = error_of([&] { (void)x.sum().item<float>(); });
  CHECK(contains(text, "77"));
  CHECK_FALSE(contains(text, "88"));
  CHECK(x.sum().item<float>() == 45);
}

TEST_CASE("cuda: more checked kernels than there are places", "[border]") {
  NEEDS_CUDA
  const Tensor x = arange(4, {.dtype = kFloat32}).to(kCUDA), good = tensor({0, 3}).to(kCUDA),
               bad = tensor({5}).to(kCUDA);
  (void)gather(x, 0, bad);
  for (int i = 0; i < 5000; ++i) (void)gather(x, 0, good);
  CHECK(contains(error_of([] { cuda::synchronize(); }), "5"));
  for (int i = 0; i < 5000; ++i) (void)gather(x, 0, good);
  CHECK(error_of([] { cuda::synchronize(); }).empty());
}

TEST_CASE("cuda: labels out of range", "[border]") {
  NEEDS_CUDA
  const Tensor logits = zeros({2, 3}, {.device = kCUDA});
  (void)cross_entropy(logits, tensor({1, 3}).to(kCUDA));
  CHECK(contains(error_of([] { cuda::synchronize(); }), "[cross_entropy] target 3"));
  CHECK(cross_entropy(logits, tensor({1, 2}).to(kCUDA)).item<float>() == Approx(1.0986123));
}
