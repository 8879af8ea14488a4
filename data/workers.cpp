#include "workers.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tapir::inline v0::data::detail {

namespace {
constexpr auto kPatience = std::chrono::milliseconds(500);

struct Common {
  std::mutex mutex;
  std::condition_variable work, rested;  // rested: a thread is idle, or has gone
  std::deque<std::unique_ptr<Job>> jobs;
  int64_t idle = 0, alive = 0;
  bool stop = false;
};

void serve(std::shared_ptr<Common> common) {
  std::unique_lock lock(common->mutex);
  for (;;) {
    ++common->idle;
    common->rested.notify_all();
    common->work.wait(lock, [&] { return common->stop || !common->jobs.empty(); });
    --common->idle;
    if (common->jobs.empty()) break;
    std::unique_ptr<Job> job = std::move(common->jobs.front());
    common->jobs.pop_front();
    lock.unlock();
    job->run();
    job.reset();
    lock.lock();
  }
  --common->alive;
  common->rested.notify_all();
}

/// With a mask of every signal: signals are for the program's own threads.
std::thread new_thread(const std::shared_ptr<Common>& common) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(serve, common);
  } catch (const std::system_error&) {}
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}
}  // namespace

struct WorkerPool::State {
  std::shared_ptr<Common> common = std::make_shared<Common>();
  std::vector<std::thread> threads;
  const pid_t process = getpid();
};

WorkerPool::WorkerPool() : state_(new State) {}
WorkerPool::~WorkerPool() {
  if (state_->process != getpid()) return;  // what a forked child has of it is left as it is: nobody unlocks it there
  Common& c = *state_->common;
  bool all_gone;
  {
    std::unique_lock lock(c.mutex);
    c.stop = true;
    c.work.notify_all();
    all_gone = c.rested.wait_for(lock, kPatience, [&] { return c.alive == 0; });
  }
  for (std::thread& thread : state_->threads) all_gone ? thread.join() : thread.detach();
  delete state_;
}

bool WorkerPool::start(Job* job) {
  std::unique_ptr<Job> owned(job);
  if (state_->process != getpid()) state_ = new State;  // threads of the child's own
  Common& c = *state_->common;
  std::lock_guard lock(c.mutex);
  if (c.idle <= int64_t(c.jobs.size())) {
    std::thread thread = new_thread(state_->common);
    if (!thread.joinable()) return false;
    ++c.alive;
    state_->threads.push_back(std::move(thread));
  }
  c.jobs.push_back(std::move(owned));
  c.work.notify_one();
  return true;
}
void WorkerPool::settle() {
  Common& c = *state_->common;
  std::unique_lock lock(c.mutex);
  c.rested.wait_for(lock, kPatience, [&] { return c.jobs.empty() && c.idle == c.alive; });
}
int64_t WorkerPool::size() const {
  std::lock_guard lock(state_->common->mutex);
  return state_->common->alive;
}

}  // namespace tapir::inline v0::data::detail
