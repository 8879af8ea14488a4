#pragma once
// A recorded call, improved and ready to be run again: Note [Compiling a function].
#include <memory>
#include <string>
#include <vector>

#include "../compile.h"
#include "../record/recorded.h"
#include "schedule.h"

namespace tapir::inline v0::ir {

/// What a pass left, for explain().
struct PassEffect {
  const char* name;
  int64_t calls;  // after it
};

struct RandomState {
  uint64_t seed, offset;
};

class Replay {
 public:
  /// So many of the first ones are the caller's; the others pass from one program to another, which uses the memory as it lies.
  struct Callers {
    size_t arguments = ~size_t(0), results = ~size_t(0);
  };
  /// `results`: those of the recorded call. `arguments`: its tensors.
  Replay(Recorded recorded, std::span<const Tensor> arguments, std::span<const Tensor> results,
         std::unique_ptr<detail::CompileCall::Frame> frame, const CompileOptions& options, Callers callers);

  ~Replay() { release_pools(); }
  Replay(const Replay&) = delete;

  /// Would a call now do what was recorded? If not, `why` says what differs.
  Fit fit(const char*& why, Held& held) const;
  /// Do these arguments share no memory with what it writes, nor those that it writes with what it reads? Else it cannot run.
  bool apart(std::span<const Tensor> arguments) const;
  /// Are its kernels there? They were asked for when it was made, and are waited for where options.background is off.
  bool ready() const { return ready_ || (ready_ = schedule_->prepare(waits_ ? Prepare::Wait : Prepare::Look)); }
  /// Runs it, after fit() with what that gave to hold, and apart(). Random numbers are the default generator's next ones, or those `from`
  /// a state that it had.
  void run(std::span<const Tensor> arguments, std::vector<Tensor>& results, const RandomState* from = nullptr);
  /// What a run works in; run() takes it where it is not there. OutOfMemoryError.
  void take_memory() { schedule_->take_arena(); }
  /// Gives that back until the next run: the call in between runs as it is.
  void release_memory();
  void keep_gradients();
  /// What lies outside, as another recording of the same left it.
  void refresh(Outside&& outside) {
    r_.storages = std::move(outside.storages), r_.objects = std::move(outside.objects);
  }
  const detail::CompileCall::Frame& frame() const { return *frame_; }
  const Recorded& recorded() const { return r_; }
  const Schedule& schedule() const { return *schedule_; }
  const std::vector<PassEffect>& effects() const { return effects_; }
  CompileStats stats() const;
  /// Bytes that stats().peak() was to stay below; 0: any number.
  int64_t budget() const { return budget_; }
  int64_t replays() const { return replays_; }

 private:
  struct Result {
    enum Kind : uint8_t { Undefined, Argument, Leaf, Made, OfArgument, OfGradient, OfOutside } kind = Undefined;
    size_t argument = 0;  // OfGradient: which slot's; Made: which pool
    Tensor gradient;      // OfGradient, while it runs: that is there at the beginning
    View view;
    bool contiguous = true;
    WeakTensor leaf;
    detail::Weak<Storage> storage;  // OfOutside; view.offset is then in it
  };
  struct Slot {          // of recorded().grads
    WeakTensor current;  // that the last run left
    int pool = -1;       // where `end` lies, if it is made here
    size_t first = 0;    // the first slot whose gradient at the start lies in the same block
    bool contiguous = true;
  };
  struct Pool {  // a block that is made anew where somebody holds the last one
    int block;
    StoragePtr storage = {};
    /// Other memory, or none; the old one is whoever's who has it.
    void set(StoragePtr other) {
      if (storage) storage->pooled = false;
      if (other) other->pooled = true;
      storage = std::move(other);
    }
    StoragePtr copy = {};  // what the caller gets, where the program keeps its own
    std::vector<size_t> slots = {};
    bool callers = true;
    const std::string* values = nullptr;  // of a constant
  };
  struct Bound {
    size_t argument;
    int block;
    int64_t bytes;       // of the argument behind its block's beginning
    int64_t copied = 0;  // bytes that are brought to `place`, where addresses shall stay
    StoragePtr place = {};
  };
  struct Range {
    const char *begin, *end;
    bool written;
  };
  void release_pools() {
    for (Pool& pool : pools_) pool.set({});
  }
  Fit fit_gradient(size_t slot, const char*& why) const;
  void add_result(const Tensor& y, const View& v, std::span<const Tensor> arguments);
  int pool_of(int block);
  bool reusable(const Pool& pool) const;
  void settle_device(const CompileOptions& options, int64_t budget);
  void copy_within_device(void* to, const void* from, int64_t bytes) const;
  bool fixed_places() const;
  bool is_copied_out(const Pool& pool) const;
  void bind_arguments(std::span<const Tensor> arguments);
  void bind_made();
  void copy_results();
  void set_gradients();
  void find_prepared();
  uint64_t versions_of_sources() const;
  void raise_versions(std::span<const Tensor> arguments);
  const char* start_of(size_t slot) const;
  Tensor made(const View& v, bool contiguous, const StoragePtr& storage, int64_t offset) const;

  Recorded r_;
  std::unique_ptr<detail::CompileCall::Frame> frame_;
  Device device_;
  std::unique_ptr<Schedule> schedule_;
  std::vector<Result> results_;
  std::vector<Slot> slots_;
  std::vector<Pool> pools_;
  std::vector<Bound> bound_;
  std::vector<Range> ranges_;  // of outside blocks that stay, by address
  std::vector<bool> written_argument_;
  std::vector<size_t> sources_;  // of recorded().storages: what prepared calls read
  uint64_t prepared_at_ = 0;     // the sum of their versions, plus 1; 0: never
  std::vector<PassEffect> effects_;
  int64_t peak_before_ = 0, budget_ = 0, replays_ = 0;
  mutable bool ready_ = false;
  bool waits_;
  double seconds_ = 0;
};

}  // namespace tapir::inline v0::ir
