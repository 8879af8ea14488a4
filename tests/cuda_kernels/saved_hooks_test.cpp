#include <optional>
#include <vector>

#include "cuda.h"

using namespace tapir;

TEST_CASE("what is saved on the host leaves the device's memory, and the gradients are the same") {
  NEEDS_CUDA
  struct Outcome {
    std::vector<float> gradient;
    int64_t held;
  };
  const auto run = [](int mode) {
    manual_seed(1);
    const Tensor w = randn({64, 64}).to(kCUDA).requires_grad_(), x = randn({256, 64}).to(kCUDA);
    const int64_t before = cuda::memory_allocated();
    Tensor y = x;
    {
      std::optional<SaveOnCpu> host;
      if (mode) host.emplace(mode == 2);
      for (int i = 0; i < 6; ++i) y = tanh(matmul(y, w));
      y = sum(square(y));
    }
    cuda::synchronize();
    const int64_t held = cuda::memory_allocated() - before;
    y.backward();
    return Outcome{w.grad().cpu().to_vector<float>(), held};
  };
  const Outcome plain = run(0);
  for (const int mode : {1, 2}) {
    const Outcome host = run(mode);
    CHECK(host.gradient == plain.gradient);
    CHECK(host.held * 4 < plain.held);
  }
}
