// cuda_kernels/reduce/scan.cu, histogram.cu, search.cu.
#include "kernels.h"

using namespace tapir;

TEST_CASE("cuda scan: tiles, chunks with carry, lines side by side") {
  NEEDS_CUDA
  const struct {
    Shape shape;
    int64_t dim;
  } cases[] = {{{20000}, 0},    {{5, 3000}, 1},   {{50, 20}, 1},  {{5000, 3}, 0},
               {{40, 5000}, 0}, {{3, 100, 7}, 1}, {{2500, 35}, 0}};
  for (DType dtype : {kFloat32, kFloat16, kFloat64, kInt64, kInt8})
    for (const auto& c : cases) {
      manual_seed(2);
      const Tensor x = is_floating(dtype) ? numbers(c.shape, dtype) : randint(-3, 4, c.shape).to(dtype),
                   there = x.to(kCUDA);
      INFO(tapir::format("{} along {}", x, c.dim));
      CHECK(difference(cumsum(there, c.dim), cumsum(x, c.dim)) < rounding(is_floating(dtype) ? dtype : kFloat64));
      for (bool most : {true, false}) {
        const auto [v, i] = most ? cummax(x, c.dim) : cummin(x, c.dim);
        const auto [v_there, i_there] = most ? cummax(there, c.dim) : cummin(there, c.dim);
        CHECK(difference(v_there, v) == 0);
        CHECK(difference(i_there, i) == 0);
      }
      if (!is_floating(dtype)) continue;
      CHECK(difference(logcumsumexp(there, c.dim), logcumsumexp(x, c.dim)) < rounding(dtype));
      CHECK(difference(cumprod(there, c.dim), cumprod(x, c.dim)) < rounding(dtype));
    }
  Tensor x = numbers({6000}, kFloat32);
  x[100] = NAN;
  x[5000] = NAN;
  CHECK(difference(std::get<1>(cummax(x.to(kCUDA), 0)), std::get<1>(cummax(x, 0))) == 0);
}

TEST_CASE("cuda histogram and search") {
  NEEDS_CUDA
  manual_seed(4);
  const Tensor x = randint(0, 50, {7000}), weights = rand({7000}), many = randint(0, 9000, {3000});
  CHECK(difference(bincount(x.to(kCUDA)), bincount(x)) == 0);
  CHECK(difference(bincount(many.to(kCUDA)), bincount(many)) == 0);
  CHECK(difference(bincount(x.to(kCUDA), weights.to(kCUDA)), bincount(x, weights)) < 1e-6);
  const Tensor f = numbers({5000}, kFloat32);
  CHECK(difference(histc(f.to(kCUDA), 20, {.min = -1, .max = 2}), histc(f, 20, {.min = -1, .max = 2})) == 0);
  const Tensor sorted = tensor({-1.f, 0.f, 0.f, 1.f, 2.f, float(NAN)}), there = sorted.to(kCUDA);
  for (bool right : {false, true})
    CHECK(difference(searchsorted(there, f.to(kCUDA), {.right = right}), searchsorted(sorted, f, {.right = right})) ==
          0);
}
