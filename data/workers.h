#pragma once
#include <cstdint>

#include "shared.h"

namespace tapir::inline v0::data::detail {

/// What a worker thread runs; it may outlive the pool.
struct Job {
  virtual ~Job() = default;
  virtual void run() = 0;
};

/// Threads that wait for jobs. They go with the pool; one that still works half a second later is left behind.
class WorkerPool {
 public:
  WorkerPool();
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  /// Runs a job, which it adopts, in an idle thread or a new one. False where the system gives no thread.
  bool start(Job* job);
  /// Waits, half a second at most, until no thread works.
  void settle();
  /// Threads that live, idle ones included.
  int64_t size() const;

 private:
  struct State;
  State* state_;
};

}  // namespace tapir::inline v0::data::detail
