#pragma once
// A recorded call, improved and ready to be run again: Note [Compiling a function].
// Note [Gradients in the arena]
// A gradient that a call makes anew lies in the arena, where activations are when the next call begins: so a replay needs no more memory at
// once than eager code, which has no gradients yet while it has most activations. Before a run such a gradient must be the leaf's alone.
// Where somebody else holds one, that arena stays his, and from then on the program has another one, with its gradients apart from it.
// Note [The arena of a differentiable call]
// What forward keeps for backward lies in its arena too, which goes with the call's graph: each call takes another one, large enough for the
// backward program, which works in it, where forward's temporaries were and where kept blocks end. Where the graph is retained, backward
// works in memory of its own. On the CPU alone: a device's graphs want the same addresses in each call.
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
  /// So many of the first ones are the caller's; the others pass from one program to another, which uses the memory as it lies. `lodgers`:
  /// those in whose arena this program works.
  struct Callers {
    size_t arguments = ~size_t(0), results = ~size_t(0);
    std::vector<Lodger> lodgers = {};
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
  /// Takes what a run works in, for which gradients of the last one in its arena go; run() does it too. OutOfMemoryError.
  void make_room();
  /// Makes a run work in that arena of another program, which takes it back afterwards.
  void lend(StoragePtr arena) { schedule_->use_arena(std::move(arena)); }
  /// Takes away the arena of the last run, with the results in it that another program reads; null where it keeps that.
  StoragePtr hand_over();
  /// The results behind the caller's as they lie in the arena, for `blocks` of a program that will work in it.
  std::vector<Lodger> lodgers(std::span<const int> blocks) const;
  void reserve(int64_t bytes) { schedule_->reserve(bytes); }
  /// The results are whoever's who has them: the next run makes others.
  void let_go_of_results() {
    for (Pool& pool : pools_)
      if (!pool.inside && !is_copied_out(pool)) pool.set({});
  }
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
    bool inside = false;  // it is a part of the arena
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
  void improve_for_device(const CompileOptions& options, int64_t budget);
  void make_schedule();
  void find_staying(size_t results, const Callers& callers);
  void leave_kept_arena();
  void copy_within_device(void* to, const void* from, int64_t bytes) const;
  bool fixed_places() const;
  bool is_copied_out(const Pool& pool) const;
  void bind_arguments(std::span<const Tensor> arguments);
  void bind_made();
  void copy_results();
  void set_gradients();
  void drop_gradients();
  void find_prepared();
  uint64_t versions_of_sources() const;
  void raise_versions(std::span<const Tensor> arguments);
  const char* start_of(size_t slot) const;
  Tensor made(const View& v, bool contiguous, const StoragePtr& storage, int64_t offset) const;

  Recorded r_;
  std::unique_ptr<detail::CompileCall::Frame> frame_;
  Device device_;
  std::unique_ptr<Schedule> schedule_;
  int counted_ = -1;  // the block that random numbers count from, on a device; `position_`: where it is
  StoragePtr position_;
  std::vector<bool> stays_;  // blocks of the arena that are read when a run is over
  std::vector<Lodger> lodgers_;
  bool hands_over_ = false;  // results of the arena go to another program
  std::vector<Result> results_;
  std::vector<Slot> slots_;
  std::vector<Pool> pools_;
  std::vector<Bound> bound_;
  std::vector<Range> ranges_;  // of outside blocks that stay, by address
  std::vector<bool> written_argument_;
  std::vector<size_t> sources_;  // of recorded().storages: what prepared calls read
  uint64_t prepared_at_ = 0;     // the sum of their versions, plus 1; 0: never
  std::vector<PassEffect> effects_;
  bool autotune_;
  int64_t peak_before_ = 0, budget_ = 0, replays_ = 0;
  mutable bool ready_ = false;
  bool waits_;
  double seconds_ = 0;
};

}  // namespace tapir::inline v0::ir
