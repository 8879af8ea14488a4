#include "generator.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "recorder.h"

namespace tapir::inline v0 {
namespace {

// What the main thread was seeded with. A thread's generator restarts when `epoch` has moved since it last looked.
struct Seeds {
  std::mutex mutex;
  uint64_t seed = 0;
  uint64_t epoch = 1;
  uint64_t threads = 0;  // side threads that took a key in this epoch
};
Seeds seeds;
constinit std::atomic<uint64_t> current_epoch{1};

struct ThreadGenerator {
  Generator generator;
  uint64_t epoch = 0;
};
constinit thread_local ThreadGenerator mine{Generator(0), 0};

bool in_main_thread() {
  static const thread_local bool is_main = syscall(SYS_gettid) == getpid();
  return is_main;
}

/// Key of the n-th side thread: two words of a Philox block whose counter ordinary streams do not reach.
uint64_t side_key(uint64_t seed, uint64_t n) {
  const auto b = Philox::block(seed, ~uint64_t(0) - n);
  return uint64_t(b.word[0]) << 32 | b.word[1];
}

void restart() {
  if (modes.recorder) modes.recorder->seeded();
  std::lock_guard lock(seeds.mutex);
  mine.epoch = seeds.epoch;
  mine.generator = Generator(in_main_thread() ? seeds.seed : side_key(seeds.seed, seeds.threads++));
}

}  // namespace

Generator& default_generator() {
  if (mine.epoch != current_epoch.load(std::memory_order_acquire)) [[unlikely]]
    restart();
  return mine.generator;
}

void manual_seed(uint64_t seed) {
  if (modes.recorder) modes.recorder->seeded();
  std::lock_guard lock(seeds.mutex);
  if (in_main_thread()) {
    seeds.seed = seed;
    seeds.threads = 0;
    current_epoch.store(++seeds.epoch, std::memory_order_release);
  }
  mine.epoch = seeds.epoch;
  mine.generator = Generator(seed);
}

}  // namespace tapir::inline v0
