#pragma once
// Note [Replay]
// A Schedule is a program with everything decided: operands are TensorViews with addresses, parameters are structs, entries are function
// pointers. run() calls one after the other; on a device with queues, see Note [Replay on a device]. Blocks that move between runs
// (inputs, outputs) are bound before, by address: the views that name them are listed, and written to only where the address changed.
// Constants that the program writes to are restored first.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "../../core/device_table.h"
#include "../../core/fused.h"
#include "../device/device_run.h"
#include "../plan/plan.h"
#include "../program/program.h"

namespace tapir::inline v0::ir {

/// One kernel call with its arguments.
struct Thunk {
  virtual ~Thunk() = default;
  virtual void run(Context& ctx) = 0;
  /// Calls that table's entry from now on.
  virtual void retarget(const BackendTable& table) = 0;
  /// Is its kernel there? See DeviceTable::prepare_fused.
  virtual bool prepare(Device, Prepare) { return true; }
  CallModes modes;
};

class Schedule {
 public:
  /// bind() will place what moves. The other Outside blocks stay where they are. `offset`: of the generator when the program was recorded; of a
  /// program on a device, 0: what is random counts from memory (count_from_memory()).
  Schedule(const Program& program, const Placement& placement, uint64_t offset);
  Schedule(const Schedule&) = delete;
  /// Of a program on a device with queues, before the first run.
  void run_on(std::unique_ptr<DeviceRun> run);
  /// Null for the CPU.
  DeviceRun* device_run() const { return device_run_.get(); }
  /// Where block i begins from now on.
  void bind(int block, void* data) {
    Moving& m = moving_[size_t(block)];
    if (m.data != data) [[unlikely]]
      move(m, static_cast<char*>(data));
  }
  /// Are all kernels there? What is not bound yet is taken to begin where allocations do.
  bool prepare(Prepare how);
  static char* anywhere() { return reinterpret_cast<char*>(uintptr_t(1) << 40); }
  /// Random numbers come from this seed and position on. ValueError for what kernels refuse (a label out of range). `prepared`: without
  /// the calls that stand first.
  void run(uint64_t seed, uint64_t offset, bool prepared);
  /// Memory to work in: taken before a run, kept until it is released.
  void take_arena();
  void release_arena();
  /// Works in that memory until it is released.
  void use_arena(StoragePtr memory);
  const StoragePtr& arena() const { return arena_; }
  /// Makes arenas as large as another program needs that works in them later.
  void reserve(int64_t bytes) { arena_bytes_ = std::max(arena_bytes_, bytes); }
  int64_t arena_bytes() const { return arena_bytes_; }
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
  void place_constant(const Block& b, size_t block, bool written);
  void queue(Context& ctx, size_t first, size_t last);
  void draw_from(uint64_t seed, uint64_t offset);
  void refuse(Context& ctx, size_t i);
  void place_blocks(const Program& program, const Placement& placement);
  TensorView view_of(const View& v) const;
  void watch(const View& v, TensorView& at);
  std::unique_ptr<Thunk> make(const Call& call);
  template <class E> friend struct KernelThunk;
  friend struct CopyThunk;
  friend struct CustomThunk;

  Device device_;
  Plan plan_;
  StoragePtr arena_;
  int64_t arena_bytes_ = 0;
  std::vector<StoragePtr> held_;  // constants
  std::vector<std::string> values_;
  std::vector<char*> base_;  // of each block; null where it moves, or lies in the arena
  std::vector<bool> moves_;
  std::vector<Moving> moving_;  // by block
  std::vector<Random> random_;
  std::vector<RandomStep> random_steps_;
  std::vector<Restored> restored_;
  std::vector<std::unique_ptr<Thunk>> thunks_;
  struct Refusal {
    std::string text;  // of what a call meets; with the site, once it was asked for
    std::shared_ptr<const CallSite> site;
    bool iterates;
  };
  std::vector<Refusal> refusals_;  // by call
  const BackendTable* table_;
  uint64_t offset_;               // of the generator when the program was recorded
  std::optional<uint64_t> seed_;  // that parameters have
  bool changed_ = true;           // since the last run: addresses, the seed
  std::unique_ptr<DeviceRun> device_run_;
  size_t prepared_;  // so many thunks stand first
};

}  // namespace tapir::inline v0::ir
