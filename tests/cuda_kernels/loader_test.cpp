#include <tapir/tapir.h>

#include "cuda.h"

using namespace tapir;

struct Squares {
  int64_t size() { return 50; }
  std::pair<Tensor, Tensor> get(int64_t i) { return {full({3}, double(i * i)), tensor(i)}; }
};

TEST_CASE("DataLoader: batches arrive on the device in order, from any number of workers, without the host waiting") {
  NEEDS_CUDA
  if (is_emulated() && !is_direct()) SKIP_TEST("the emulation orders whole segments");
  for (const int64_t workers : {0, 1, 3}) {
    data::DataLoader loader(Squares{}, {.batch_size = 8, .num_workers = workers, .device = kCUDA});
    const int64_t before = cuda::synchronizations();
    std::vector<Tensor> kept;
    Tensor sum = zeros({}, {.device = kCUDA});
    for (auto& [x, y] : loader) {
      CHECK(x.device() == kCUDA);
      sum.add_(x.select(1, 0).sum());  // reads it on the loop's stream at once
      kept.push_back(y);
    }
    CHECK(cuda::synchronizations() == before);
    CHECK(sum.item() == 40425);
    int64_t at = 0;
    for (const Tensor& y : kept)
      for (const int64_t i : y.cpu().to_vector<int64_t>()) CHECK(i == at++);
    CHECK(at == 50);
    CHECK(loader.stats().samples == 50);
  }
}

TEST_CASE("DataLoader: whole batches of a TensorDataset go through page-locked memory, on the stream of the loop") {
  NEEDS_CUDA
  if (is_emulated() && !is_direct()) SKIP_TEST("the emulation orders whole segments");
  const Tensor x = arange(600).to(kFloat32).view({100, 6});
  data::DataLoader loader(data::TensorDataset<1>(x),
                          {.batch_size = 32, .shuffle = true, .num_workers = 2, .seed = 3, .device = kCUDA});
  cuda::Stream other;
  cuda::StreamGuard guard(other);
  for (int epoch = 0; epoch < 2; ++epoch) {
    Tensor sum = zeros({}, {.device = kCUDA});
    for (auto& [batch] : loader) sum.add_(batch.sum());
    CHECK(sum.item() == 179700);
  }
}
