#pragma once
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/no_copy.h"
#include "../nn/module.h"
#include "comm_hooks.h"
#include "process_group.h"

namespace tapir::inline v0::distributed {

struct DdpOptions {
  double bucket_cap_mb = 25;
  double first_bucket_mb = 1;     // small, so that the first reduction starts early
  bool broadcast_buffers = true;  // running statistics are rank 0's, before each forward that will be reduced
  bool find_unused_parameters =
      false;  // parameters that a step does not use count as zero gradients; costs a walk over the graph
  /// All steps use the same parameters, on every rank: what the first one does not use is left alone from then on, and nobody looks again.
  bool static_graph = false;
  std::optional<DType> compression =
      {};  // kBFloat16 or kFloat16: what gradients travel as (their sums are taken in float32)
};

struct ReducerState;
void retain(ReducerState* state);
void release(ReducerState* state);

// Note [Reducer]
// Gradients live in flat buckets: each parameter's gradient is a view into one, so that later ones are added where they are reduced from. A
// hook on each parameter says when its gradient is complete; a bucket whose gradients are all there is reduced while
// backward goes on, buckets always in the same order on every rank. The hook of the last gradient waits for all: when backward
// returns, the gradients are the means over ranks (or what a CommHook makes of them), on a device as its current stream finds them. After the first step buckets follow the order in which gradients arrived on rank 0.
// A compiled step has these reductions as calls of its own, in their places. Where the module's forward alone is compiled, hooks run as ever.
class Reducer : NoCopy {
 public:
  using Named = std::vector<std::pair<std::string, Tensor>>;
  /// RuntimeError names the first parameter or buffer that ranks have differently; then all take rank 0's values.
  Reducer(const Named& parameters, const Named& buffers, const ProcessGroup& group, const DdpOptions& options);
  ~Reducer();
  /// RuntimeError names parameters that the last backward did not reach.
  void before_forward();
  void after_forward(const std::vector<Tensor>& outputs);
  /// Gradients stay this rank's own until each of these has its end.
  void begin_no_sync();
  void end_no_sync();
  std::vector<std::string> differing_parameters() const;
  /// `adopted` reduces from now on. ValueError while gradients are on their way.
  void set_hook(CommHook* adopted);
  /// ValueError for a module with SyncBatchNorm.
  void begin_join(nn::Module& module);
  /// Takes part in the steps of ranks that still have inputs, with gradients of 0; then all take the weights of one that was there last.
  void end_join();
  void leave_join();
  /// Bytes of each bucket, in the order of reduction.
  std::vector<int64_t> bucket_bytes() const;

 private:
  tapir::detail::Handle<ReducerState> state_;  // programs have one too
};

/// While it lives, backward adds up gradients of this rank alone.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(Reducer& reducer) : reducer_(reducer) { reducer.begin_no_sync(); }
  ~NoSync() { reducer_.end_no_sync(); }
  NoSync(const NoSync&) = delete;

 private:
  Reducer& reducer_;
};

/// Trains copies of a module on all ranks of a group as one: every rank feeds its part of the batch, and each backward ends with the mean of
/// the gradients on all of them.
///     Net net;
///     distributed::DistributedDataParallel ddp(net);
///     optim::AdamW opt(net.parameters());
///     cross_entropy(ddp(images), labels).backward();
/// All ranks get the same bits. The module must outlive it, and is saved and loaded by itself.
template <class M> class DistributedDataParallel {
 public:
  explicit DistributedDataParallel(M& module, const DdpOptions& options = {},
                                   const ProcessGroup& group = default_group())
      : module_(module), reducer_(module.named_parameters(), module.named_buffers(), group, options) {}
  template <class... A> auto operator()(A&&... a) {
    reducer_.before_forward();
    auto y = module_(std::forward<A>(a)...);
    reducer_.after_forward(nn::detail::tensors_of(y));
    return y;
  }
  M& module() { return module_; }
  /// auto guard = ddp.no_sync(); forward and backward in its scope accumulate without talking.
  NoSync no_sync() { return NoSync(reducer_); }
  /// Names of parameters whose bits are not the same on all ranks; every rank calls it.
  std::vector<std::string> differing_parameters() const { return reducer_.differing_parameters(); }
  /// Reduces in place of the mean, e.g. PowerSgdHook: distributed/comm_hooks.h. Every rank registers the same.
  template <class H> void register_comm_hook(H hook) { reducer_.set_hook(new H(std::move(hook))); }
  /// f() is a loop over this rank's batches, of which ranks may have different numbers: who is done shadows the others. Gradients are means over
  /// all ranks, those without a batch with 0. Who is done ends with the others' weights, but takes no steps of an optimizer: its momentum and
  /// step count, and a GradScaler's scale, stay behind. Where they go on, every rank loads the state_dict() of one that was there last, or
  /// each begins with new ones. Every rank calls it.
  template <class F> void join(F&& f) {
    reducer_.begin_join(module_);
    try {
      f();
    } catch (...) {
      reducer_.leave_join();
      throw;
    }
    reducer_.end_join();
  }
  Reducer& reducer() { return reducer_; }

 private:
  M& module_;
  Reducer reducer_;
};

}  // namespace tapir::inline v0::distributed
