// How long a training loop waits for its loader: build/<preset>/benchmarks/loader_wait. A synthetic device takes 5 ms for a batch of 64, and
// a worker some 4 ms to make one.
#include <tapir/tapir.h>

#include <chrono>
#include <cstdio>
#include <thread>

using namespace tapir;
using Clock = std::chrono::steady_clock;

namespace {
struct Decoded {
  int64_t size() const { return 64 * 200; }
  std::array<Tensor, 2> get(int64_t i) const {
    const auto until = Clock::now() + std::chrono::microseconds(60);
    while (Clock::now() < until) {}
    return {full({3, 32, 32}, double(i)), full({}, i)};
  }
};
}  // namespace

int main() {
  std::printf("workers  batches  seconds  waited s  waited %%\n");
  for (const int64_t workers : {0, 1, 2, 4}) {
    data::DataLoader loader(Decoded(), {.batch_size = 64, .shuffle = true, .num_workers = workers});
    const auto began = Clock::now();
    double busy = 0;
    for (auto& batch : loader) {
      (void)batch;
      const auto step = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      busy += std::chrono::duration<double>(Clock::now() - step).count();
    }
    const double all = std::chrono::duration<double>(Clock::now() - began).count();
    std::printf("%7lld  %7lld  %7.3f  %8.3f  %8.1f\n", static_cast<long long>(workers),
                static_cast<long long>(loader.stats().batches), all, all - busy, 100 * (all - busy) / all);
  }
}
