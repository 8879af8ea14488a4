#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "parallel_detail.h"

namespace tapir::inline v0::detail {
namespace {

/// Lives as long as the process: at exit, or in a forked child, there may be nobody left to join.
/// Workers that wait for loops. One loop at a time: a second thread that comes meanwhile runs its own serially.
class Team {
 public:
  void run(Loop& loop) {
    std::unique_lock owner(owner_, std::try_to_lock);
    if (!owner) return run_serially(loop, 0);
    grow(loop.pieces - 1);
    {
      std::lock_guard lock(mutex_);
      loop_ = &loop, next_ = 1, open_ = loop.pieces - 1;
    }
    wake_.notify_all();
    loop.run(0);
    std::unique_lock lock(mutex_);
    while (next_ < loop.pieces) run_next(lock);
    done_.wait(lock, [&] { return open_ == 0; });
    loop_ = nullptr;
  }

 private:
  static void run_serially(Loop& loop, int64_t from) {
    for (int64_t i = from; i < loop.pieces; ++i) loop.run(i);
  }
  void run_next(std::unique_lock<std::mutex>& lock) {
    Loop* loop = loop_;
    const int64_t piece = next_++;
    lock.unlock();
    loop->run(piece);
    lock.lock();
    if (--open_ == 0) done_.notify_all();
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return loop_ && next_ < loop_->pieces; });
      run_next(lock);
    }
  }
  /// A thread that cannot be had is done without: the others take its pieces.
  void grow(int64_t wanted) {
    try {
      while (int64_t(workers_.size()) < wanted) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {}
  }

  std::mutex owner_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  Loop* loop_ = nullptr;
  int64_t next_ = 0, open_ = 0;
};

}  // namespace

void run_team(Loop& loop) {
  static Team* const team = new Team;
  team->run(loop);
}

LibraryLoop begin_library_loop() { return {}; }
void end_library_loop(LibraryLoop, int64_t&) {}
void set_team_size(int) {}
void set_team_denormals(int, uint64_t) {}
void before_fork() {}

}  // namespace tapir::inline v0::detail
