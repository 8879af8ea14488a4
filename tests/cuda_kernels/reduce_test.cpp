// cuda_kernels/reduce/reduce.cu: shapes that take each of its ways (rows in groups and blocks, columns, packs, chunks).
#include "kernels.h"

using namespace tapir;

namespace {
void check_reductions(const Tensor& device, const Tensor& host, const Dims& dims) {
  const double tolerance = rounding(host.dtype());
  CHECK(difference(sum(device, dims), sum(host, dims)) < tolerance);
  CHECK(difference(mean(device, dims), mean(host, dims)) < tolerance);
  CHECK(difference(var(device, dims), var(host, dims)) < tolerance);
  CHECK(difference(amax(device, dims), amax(host, dims)) == 0);
  CHECK(difference(amin(device, dims), amin(host, dims)) == 0);
  CHECK(difference(logsumexp(device, dims), logsumexp(host, dims)) < tolerance);
}
}  // namespace

TEST_CASE("cuda reduce: every way through memory") {
  NEEDS_CUDA
  const struct {
    Shape shape;
    Dims dims;
  } cases[] = {{{50003}, {0}},       {{3, 9000}, {1}},  {{9000, 24}, {0}},          {{5000, 3}, {0}},
               {{6, 5, 64}, {0, 2}}, {{40, 7, 8}, {0}}, {{4, 16, 6, 6}, {0, 2, 3}}, {{700, 40}, {1}},
               {{64, 513}, {1}},     {{2, 3, 4}, {}},   {{300, 1, 2}, {1}},         {{33, 65}, {0}}};
  for (DType dtype : kFloats)
    for (const auto& c : cases) {
      const Tensor x = numbers(c.shape, dtype), there = x.to(kCUDA);
      INFO(tapir::format("{} over {}", x, c.dims));
      check_reductions(there, x, c.dims);
    }
}

TEST_CASE("cuda reduce: any strides") {
  NEEDS_CUDA
  const Tensor x = numbers({37, 6, 50}, kFloat32), there = x.to(kCUDA);
  for (const Dims& dims : {Dims(0), Dims(1), Dims(2), Dims{0, 2}, Dims{1, 2}}) {
    check_reductions(permute(there, {2, 0, 1}), permute(x, {2, 0, 1}), dims);
    check_reductions(narrow(there, 2, 1, 41), narrow(x, 2, 1, 41), dims);
    check_reductions(expand(narrow(there, 1, 0, 1), {37, 9, 50}), expand(narrow(x, 1, 0, 1), {37, 9, 50}), dims);
  }
}

TEST_CASE("cuda reduce: integers wrap, positions are the first") {
  NEEDS_CUDA
  manual_seed(3);
  for (DType dtype : {kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    const Tensor x = randint(0, 2, {70, 90}).to(dtype), there = x.to(kCUDA);
    CHECK(difference(sum(there, 0), sum(x, 0)) == 0);
    CHECK(difference(sum(there, 1, {.dtype = dtype}), sum(x, 1, {.dtype = dtype})) == 0);
    CHECK(difference(prod(there, 1), prod(x, 1)) == 0);
    CHECK(difference(any(there, 1), any(x, 1)) == 0);
    CHECK(difference(all(there, 0), all(x, 0)) == 0);
    CHECK(difference(argmax(there, 1), argmax(x, 1)) == 0);
    CHECK(difference(argmin(there), argmin(x)) == 0);
    CHECK(difference(count_nonzero(there), count_nonzero(x)) == 0);
  }
  for (DType dtype : {kFloat32, kFloat16, kBFloat16}) {
    const Tensor x = randint(0, 3, {64, 4096}).to(dtype), there = x.to(kCUDA);
    for (int64_t dim : {0, 1}) {
      CHECK(difference(argmax(there, dim), argmax(x, dim)) == 0);
      CHECK(difference(argmin(there.t(), dim), argmin(x.t(), dim)) == 0);
    }
  }
  Tensor f = numbers({20000}, kFloat32);
  f[19000] = NAN;
  f[12345] = NAN;
  CHECK(argmax(f.to(kCUDA)).cpu().item<int64_t>() == 12345);
  CHECK(argmin(f.to(kCUDA)).cpu().item<int64_t>() == 12345);
  CHECK(std::isnan(max(f.to(kCUDA)).cpu().item()));
}

TEST_CASE("cuda reduce: norms do not overflow; nothing to reduce") {
  NEEDS_CUDA
  const Tensor x = full({5000}, 1e30f), there = x.to(kCUDA);
  for (double p : {0.0, 1.0, 2.0, 3.0, double(INFINITY), -double(INFINITY)})
    CHECK(difference(linalg::vector_norm(there, p), linalg::vector_norm(x, p)) < 1e-5);
  const Tensor none = zeros({3, 0}), none_there = none.to(kCUDA);
  CHECK(difference(sum(none_there, 1), sum(none, 1)) == 0);
  CHECK(difference(prod(none_there, 1), prod(none, 1)) == 0);
  CHECK(difference(mean(none_there, 1), mean(none, 1)) == 0);
  CHECK(difference(logsumexp(none_there, 1), logsumexp(none, 1)) == 0);
  CHECK(difference(all(none_there, 1), all(none, 1)) == 0);
  CHECK(difference(any(none_there, 1), any(none, 1)) == 0);
}
