// The threads of the running block: who may run, who waits for whom.
#pragma once
#include "include/emulation/warp.h"
#include "runtime.h"

#pragma GCC visibility push(hidden)
namespace cuda_emulation {

struct Fiber;
enum class State : uint8_t { Ready, AtBarrier, AtWarp, Done };
struct Thread {
  uint3 index;
  unsigned id;
  State state;
  Vote vote;            // of a barrier
  bool orders_memory;   // of a warp operation, as are the next four
  uint8_t source;       // the lane asked for
  uint16_t warp_epoch;  // __syncwarps passed
  unsigned mask;
  Combine combine;
  uint64_t value;  // brought, then received
  Site site;
  Fiber* fiber;
};

class Block {
 public:
  void start(dim3 threads);
  /// Takes a thread that can run, in random order; null where there is none.
  Thread* pick() {
    if (ready_.empty()) return nullptr;
    const size_t i = ready_.size() == 1 ? 0 : random_below(ready_.size());
    Thread* t = ready_[i];
    ready_[i] = ready_.back(), ready_.pop_back();
    return t;
  }
  void finish(Thread& t);
  /// A thread has come to a warp operation. The last one of its mask completes it, for itself and all others.
  void arrive(Thread& t);
  /// Nobody can run. True if somebody can again; false when the block is done, or never will be.
  bool unblock();
  bool done() const { return done_ == threads_.size(); }
  /// Where the threads stand, for the message.
  std::string divergence() const;

  uint16_t barriers_passed = 0;

 private:
  struct Warp {
    unsigned waiting, gone;  // lanes in a warp operation; lanes that have returned or never were
  };
  bool all_at_one_barrier() const;
  bool complete(const Thread& caller);
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Thread*> ready_;
  size_t done_ = 0;
};
std::string line(const Site& site);
/// The number of the running thread in its block.
unsigned running_thread();
/// Is it a launch that may begin before the one before it has ended?
bool is_early(const cudaLaunchConfig_t& config);
/// May the running thread use device memory: has it waited, where its launch is an early one?
bool has_waited();
/// Has a thread let the next launch begin before it had waited itself, since the last question?
bool take_lets_first();
/// Copies that threads of a block left unfinished end with it.
void forget_async_copies();
/// Runs one block, blockIdx, of a launch; throws a Fault.
void run_block(const Call& call, const cudaLaunchConfig_t& config, uint32_t launch);

}  // namespace cuda_emulation
#pragma GCC visibility pop
