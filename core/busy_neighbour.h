#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace tapir::inline v0::detail {

/// Whether another process keeps a CPU busy that our team needs, and for how long it is worth while to wait passively: Note [The busy
/// neighbour]. Times are microseconds. note_begin() and note_end() may be called by any thread, the others by one at a time.
class BusyNeighbour {
 public:
  /// What it would mean, were this loop late. Weak: its workers sleep, or have just been woken.
  enum class Evidence : uint8_t { Weak, Strong };

  Evidence note_begin(int64_t now) {
    const int64_t loop = loops_.fetch_add(1, std::memory_order_relaxed);
    if (now - ended_.load(std::memory_order_relaxed) > kAwake) woke_.store(loop, std::memory_order_relaxed);
    return loop - woke_.load(std::memory_order_relaxed) < kWaking ? Evidence::Weak : Evidence::Strong;
  }
  void note_end(int64_t now) { ended_.store(now, std::memory_order_relaxed); }
  /// How long to wait passively from now on; 0: not at all.
  int64_t note_late(int64_t now, Evidence evidence) {
    if (evidence == Evidence::Weak) {
      if (now - weak_since_ > kTwice) weak_since_ = now, weak_ = 0;
      if (++weak_ < kManyWeak) return 0;
      weak_ = 0;
      return stay_ = kShortest;
    }
    const Moment at{now, loops_.load(std::memory_order_relaxed)}, before = std::exchange(last_late_, at);
    const bool on_trial = soon(left_, at, kTrial);
    if (!on_trial && !soon(before, at, kTwice)) return 0;
    return stay_ = on_trial ? std::min(2 * stay_, kLongest) : kShortest;
  }
  /// The passive time is over.
  void note_left(int64_t now) { left_ = {now, loops_.load(std::memory_order_relaxed)}; }

  static constexpr int64_t kShortest = 50'000, kLongest = 2'000'000;

 private:
  static constexpr int64_t kAwake = 4'000, kTwice = 100'000, kTrial = 30'000;
  static constexpr int64_t kWaking = 3, kManyWeak = 8, kFewLoops = 32;
  struct Moment {
    int64_t time, loop;
  };
  static bool soon(Moment a, Moment b, int64_t time) { return b.time - a.time <= time || b.loop - a.loop <= kFewLoops; }

  std::atomic<int64_t> loops_{0}, ended_{0}, woke_{0};
  Moment last_late_{-kTwice, -kFewLoops - 1}, left_{-kTrial, -kFewLoops - 1};
  int64_t weak_since_ = -kTwice, weak_ = 0, stay_ = kShortest;
};

}  // namespace tapir::inline v0::detail
