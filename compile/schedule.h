#pragma once
// Note [Replay on the CPU]
// A Schedule is a program with everything decided: operands are TensorViews with addresses, parameters are structs, entries are function
// pointers. run() calls one after the other. Blocks that move between runs (inputs, outputs) are bound before, by address: the views
// that name them are listed, and written to only where the address changed. Constants that the program writes to are restored first.
#include <memory>
#include <vector>

#include "../core/fused.h"
#include "plan.h"
#include "program.h"

namespace tapir::inline v0::ir {

/// One kernel call with its arguments.
struct Thunk {
  virtual ~Thunk() = default;
  virtual void run(Context& ctx) = 0;
  /// Calls that table's entry from now on.
  virtual void retarget(const BackendTable& table) = 0;
  bool deterministic = false;
};

class Schedule {
 public:
  /// `moves`: a flag for each block that bind() will place. The other Outside blocks stay where they are. `offset`: of the generator
  /// when the program was recorded.
  Schedule(const Program& program, const std::vector<bool>& moves, uint64_t offset);
  Schedule(const Schedule&) = delete;
  /// Where block i begins from now on.
  void bind(int block, void* data) {
    Moving& m = moving_[size_t(block)];
    if (m.data != data) [[unlikely]]
      move(m, static_cast<char*>(data));
  }
  /// Random numbers come from this seed and position on. ValueError for what kernels refuse (a label out of range). `prepared`: without
  /// the calls that stand first.
  void run(uint64_t seed, uint64_t offset, bool prepared);
  const Plan& plan() const { return plan_; }
  size_t size() const { return thunks_.size(); }

 private:
  struct Place {  // a view, and where it lies in its block
    TensorView* view;
    int64_t bytes;
  };
  struct Moving {
    char* data = nullptr;
    std::vector<Place> places;
  };
  struct Random {  // parameters of a random call
    uint64_t *seed, *offset;
    uint64_t relative;
  };
  struct RandomStep {  // of a fused call
    FusedStep* step;
    uint64_t relative;
  };
  struct Restored {
    void* to;
    const std::string* from;
  };
  void move(Moving& m, char* data);
  void place_blocks(const Program& program, const std::vector<bool>& moves);
  TensorView view_of(const View& v) const;
  void watch(const View& v, TensorView& at);
  std::unique_ptr<Thunk> make(const Call& call);
  [[noreturn]] void fail_at(size_t i, const Context& ctx) const;
  template <auto Member, class E> friend struct KernelThunk;

  Plan plan_;
  StoragePtr arena_;
  std::vector<StoragePtr> held_;  // constants
  std::vector<std::string> values_;
  std::vector<char*> base_;  // of each block; null where it moves
  std::vector<bool> moves_;
  std::vector<Moving> moving_;  // by block
  std::vector<Random> random_;
  std::vector<RandomStep> random_steps_;
  std::vector<Restored> restored_;
  std::vector<std::unique_ptr<Thunk>> thunks_;
  std::vector<std::pair<const char*, std::shared_ptr<const CallSite>>> sites_;
  const BackendTable* table_;
  uint64_t offset_;  // of the generator when the program was recorded
  size_t prepared_;  // so many thunks stand first
};

}  // namespace tapir::inline v0::ir
