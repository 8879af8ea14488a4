#pragma once
// Note [Replay on a device]
// On a device with queues a schedule's thunks queue their kernels, one by one, each with what the host does for it. Where the device
// keeps graphs (begin_capture), all of it is captured once and from then on queued by one call. That asks for the same work in every run:
// - The first run with new addresses is plain: kernels are compiled, plans are made, scratch memory is taken. The second one with the same
//   addresses is captured. When something moves (a gradient that somebody holds, other memory for an argument that is written), the
//   graph is given up and the same begins again.
// - Arguments that are only read are copied into memory of the program before, results out of it afterwards (replay.cpp).
// - Random calls count from `position`, an int64 on the device, which each run moves on by itself; it is set where the generator went
//   elsewhere meanwhile. Another seed is like another address.
// - Scratch memory is the program's, kept while it lives: a graph's kernels go on using what they were captured with.
// - Runs on another stream than the last one wait for it: the memory is shared.
// What cannot be captured (a kernel that waits) is run call by call, with the reason in explain(). Where a profiler or a log stands before
// the table, runs are plain too, so that it sees the kernels.
#include <memory>
#include <string>
#include <vector>

#include "../../core/device_table.h"
#include "../../core/storage.h"
#include "../custom_call.h"

namespace tapir::inline v0::ir {

class DeviceRun {
 public:
  /// `position`: null, or the storage that random calls count from; a run draws `numbers` of them.
  DeviceRun(Device device, StoragePtr position, uint64_t numbers);
  ~DeviceRun();
  DeviceRun(const DeviceRun&) = delete;
  /// The program's memory, which runs on another stream must be known to use.
  void hold(StoragePtr memory) { held_.push_back(std::move(memory)); }
  void let_go(const StoragePtr& memory) {
    std::erase_if(held_, [&](const StoragePtr& s) { return s.get() == memory.get(); });
  }
  /// Host code whose device work a graph may have.
  void accompany(std::shared_ptr<const detail::CustomFunction> custom) { customs_.push_back(std::move(custom)); }
  /// Is this thread's work for a device captured now?
  static bool captures_here();
  /// Before a run: is it on another stream than the last one?
  bool enter_stream();
  /// queue(context) queues the work of a run, which is what it was the last time where `same` is set.
  template <class F> void run(bool same, uint64_t offset, F&& queue) {
    run(
        same, offset, [](void* f, Context& ctx) { (*static_cast<std::remove_reference_t<F>*>(f))(ctx); }, &queue);
  }
  /// Runs are queued call by call from now on.
  void leave_graphs(std::string why) { graphs_ = false, why_ = std::move(why); }
  /// Could a graph be made of runs whose addresses stay?
  bool wants_fixed_places() const { return graphs_; }
  /// How runs were made, for explain().
  std::string text() const;

 private:
  struct Scratch final : ScratchPool {
    struct Piece {
      StoragePtr memory;
      bool taken = false;
    };
    explicit Scratch(Device device) : device(device) {}
    void* take(int64_t bytes) override;
    void give(void* piece) override;
    void give_all();
    Device device;
    std::vector<Piece> pieces;
    bool complete = false;  // while a graph is captured: what is not there cannot be had
    bool kept = false;      // a graph uses the pieces
  };
  class Pooled;
  using Queue = void (*)(void*, Context&);
  void run(bool same, uint64_t offset, Queue queue, void* f);
  TensorView position() const;
  void set_position(uint64_t offset);
  void plain(Queue queue, void* f);
  bool capture(Queue queue, void* f);
  void drop_graph();

  Device device_;
  bool graphs_;
  StoragePtr position_;
  uint64_t numbers_, at_ = ~uint64_t(0);  // what `position_` will hold when the queue is done
  std::vector<StoragePtr> held_;
  void* stream_;
  Scratch scratch_;
  std::vector<std::shared_ptr<const detail::CustomFunction>> customs_;  // in their order
  void* graph_ = nullptr;
  bool warm_ = false;  // the next run finds what kernels need
  int failures_ = 0;   // of captures, one after the other
  int64_t launches_ = 0, plain_ = 0;
  std::string why_;
};

}  // namespace tapir::inline v0::ir
