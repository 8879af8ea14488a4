#pragma once
// The second program of a differentiable call: Note [Differentiable calls].
#include <memory>
#include <mutex>

#include "../record/sample.h"
#include "replay.h"

namespace tapir::inline v0::ir {

/// For each view that lies in memory a tensor, else none: what a Replay wants of tensors that are gone.
std::vector<Tensor> placeholders(std::span<const View> views);

class Backward {
 public:
  Backward(RecordedBackward recorded, Replay& forward, const CompileOptions& options);
  /// Ties the results of a run of the forward program to a node that runs this one. `results`: those of the call, and behind them the
  /// blocks that are kept for backward, which are taken away. `arena`: where that run worked. `random`: of the generator before it.
  static void tie(const std::shared_ptr<Backward>& program, std::span<const Tensor> arguments, StoragePtr arena,
                  const RandomState& random, std::vector<Tensor>& results);
  void refresh(RecordedBackward&& other);
  Fit fit(const char*& why, Held& held) const;
  const Replay& replay() const { return replay_; }
  void release_memory();
  /// What somebody wanted of a replayed call that it has no program for; empty: nothing.
  std::string refused() const;

 private:
  friend class BackwardNode;
  Backward(RecordedBackward&& recorded, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
           std::vector<Lodger> lodgers, const Replay& forward, const CompileOptions& options);
  std::vector<Tensor> run(const Grads& gradients, std::vector<Tensor> kept, StoragePtr arena,
                          const RandomState& random);
  std::vector<Tensor> seeds_of(const Grads& gradients);
  void drop_what_is_missing(const Grads& gradients, std::vector<Tensor>& found);
  [[noreturn]] void refuse(const std::string& what);
  RecordedBackward r_;              // without its program
  std::vector<View> kept_outside_;  // of the program's storages, those that must be as they were; Absent for the others
  Replay replay_;
  mutable std::mutex mutex_;
  std::string refused_;
};

}  // namespace tapir::inline v0::ir
