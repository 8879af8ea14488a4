#include "background.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "../../core/parallel.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kMostThreads = 4;

struct Background {
  std::mutex mutex;
  std::deque<std::function<void()>> jobs;
  std::vector<std::thread> threads;  // of which so many are at work:
  int busy = 0;
  std::atomic<bool> ends{false};
  const pid_t process = getpid();
};
Background& background() {
  static auto* const b = new Background;  // never destroyed: a thread may be at its last line
  return *b;
}

void serve() {
  Background& b = background();
  std::unique_lock lock(b.mutex);
  while (!b.jobs.empty()) {
    std::function<void()> job = std::move(b.jobs.front());
    b.jobs.pop_front();
    lock.unlock();
    job();
    job = {};
    lock.lock();
  }
  --b.busy;
}

/// One more, if there may be; signals are for the program's own threads.
void start_thread(Background& b) {
  if (b.busy >= std::min(get_num_threads(), kMostThreads)) return;
  if (b.busy == 0)
    for (std::thread& ended : std::exchange(b.threads, {})) ended.join();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    b.threads.reserve(b.threads.size() + 1);
    b.threads.emplace_back(serve);
    ++b.busy;
  } catch (const std::system_error&) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Made after the compiler's library was opened, and so destroyed before its parts are.
struct AtExit {
  ~AtExit() {
    Background& b = background();
    if (getpid() != b.process) return;
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(b.mutex);
      b.ends = true;
      b.jobs.clear();
      threads = std::move(b.threads);
    }
    for (std::thread& t : threads) t.join();
  }
};

}  // namespace

bool background_ends() { return background().ends; }

void in_background(std::function<void()> job) {
  static const AtExit at_exit;
  Background& b = background();
  if (getpid() == b.process) {
    const std::lock_guard lock(b.mutex);
    if (!b.ends) {
      start_thread(b);
      if (b.busy) return b.jobs.push_back(std::move(job));
    }
  }
  job();
}

}  // namespace tapir::inline v0::cuda_kernels
