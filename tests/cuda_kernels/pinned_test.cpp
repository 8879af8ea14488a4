// cuda_kernels/runtime/pinned.cpp and the copies of streams.cpp.
#include "cuda.h"

using namespace tapir;

TEST_CASE("cuda copies: every dtype, from and to strided and pinned memory") {
  NEEDS_CUDA
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
    const Tensor x = remainder(arange(24), 5).to(dtype).view({4, 6});
    CHECK(equal(x.to(kCUDA).to(kCPU), x));
    CHECK(equal(x.t().to(kCUDA).to(kCPU), x.t()));
    CHECK(equal(x.pin_memory().to(kCUDA, true).to(kCPU), x));
  }
  CHECK(zeros({0, 3}).to(kCUDA).to(kCPU).shape() == Shape{0, 3});
  const Tensor big = arange(int64_t(3) << 20);  // 24 MiB: not staged
  CHECK(equal(big.to(kCUDA).to(kCPU), big));
}

TEST_CASE("cuda copies: a source from the heap may change as soon as the call returns (BI-356)") {
  NEEDS_CUDA
  Tensor x = full({100000}, 1.f);
  const Tensor y = x.to(kCUDA, true);
  x.fill_(9.f);
  CHECK(y.sum().item<float>() == 100000);
}

TEST_CASE("cuda pinned memory: seen as such, used again only after its copies") {
  NEEDS_CUDA
  const Tensor x = arange(5000, {.dtype = kFloat32});
  CHECK_FALSE(x.is_pinned());
  Tensor p = x.pin_memory();
  CHECK(p.is_pinned());
  CHECK(p.slice(0, 10, 20).is_pinned());
  CHECK(equal(p, x));
  CHECK(p.pin_memory().data_ptr() == p.data_ptr());
  std::vector<Tensor> there;
  for (int i = 0; i < 8; ++i) {  // blocks come and go while their copies may still run
    Tensor block = full({4096}, float(i)).pin_memory();
    there.push_back(block.to(kCUDA, true));
  }
  for (int i = 0; i < 8; ++i) CHECK(there[size_t(i)].sum().item<float>() == 4096.f * float(i));

  const Tensor late = there[3].to(kCPU, true);  // the result may be read after a wait
  CHECK(late.is_pinned());
  cuda::current_stream().synchronize();
  CHECK(late.sum().item<float>() == 4096.f * 3);
}
