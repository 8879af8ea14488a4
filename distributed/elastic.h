#pragma once
#include <cstdint>
#include <type_traits>

#include "../core/no_copy.h"
#include "../core/state_dict.h"
#include "process_group.h"

// Note [Elastic training]
// tapir-run with --max-restarts or --min-ranks replaces a rank that is gone, or leaves it out. The others end their group (PeerError), go back to
// their last commit(), and meet again under a new generation with the ranks that there are then; survivors keep their order, and their machine's
// local_rank. A rank may have committed a step that another one did not reach: the newest commit is everybody's, with equal ones that of the lowest
// rank. A rank that does not notice is ended when its time is over. Where nobody is left, all ranks start again, from their checkpoint.
namespace tapir::inline v0::distributed {

struct ElasticState;

/// Training that goes on when ranks are gone, where tapir-run allows it; elsewhere a PeerError leaves run().
///     train::Checkpoint checkpoint("runs/1");
///     checkpoint.add("model", net).add("optimizer", opt);
///     distributed::Elastic elastic(checkpoint);
///     elastic.run([&](const distributed::ProcessGroup& group, int64_t step) {
///       distributed::DistributedDataParallel ddp(net, {}, group);
///       while (step < 1000) {
///         ...
///         elastic.commit(++step);
///       }
///     }, checkpoint.resume().value_or(0));
class Elastic : NoCopy {
 public:
  /// `state` has state_dict() and load_state_dict(), and outlives this: a module, or a train::Checkpoint, which holds all parts of a run. It must
  /// be the same on all ranks: what each keeps a part of (ZeroRedundancyOptimizer, FullyShardedDataParallel) is lost with a rank.
  template <class T> explicit Elastic(T& state, const ProcessGroupOptions& options = {})
      : Elastic({&state, [](void* s) -> StateDict { return static_cast<T*>(s)->state_dict(); },
                 [](void* s, const StateDict& from) { static_cast<T*>(s)->load_state_dict(from); }},
                options) {}
  ~Elastic();

  /// Keeps a copy of the state in the host's memory, and the place in the random numbers; the one before stays until this one is whole. Ranks
  /// need not wait for each other: all commit after the same steps. PeerError where the group has failed, ValueError for a step below 0,
  /// RuntimeError in a process that was forked from the group's.
  void commit(int64_t step);

  /// body(group, step) trains from that step on; the group is the default one too. It is called again, with another group and the step of the
  /// commit that all have taken, after ranks were gone; gradients are then what they were. `step` is that of the state now: the newest on any rank
  /// is everybody's. Errors of body other than PeerError leave run(). When it returns on all ranks, their group goes. RuntimeError for the store and
  /// what init_process_group says; ValueError for a second run() under tapir-run.
  template <class F> void run(F&& body, int64_t step = 0) {
    using Body = std::remove_reference_t<F>;
    run_body({const_cast<void*>(static_cast<const void*>(&body)),
              [](void* f, const ProcessGroup& group, int64_t at) { (*static_cast<Body*>(f))(group, at); }},
             step);
  }

 private:
  struct Source {
    void* object;
    StateDict (*save)(void*);
    void (*load)(void*, const StateDict&);
  };
  struct Body {
    void* object;
    void (*call)(void*, const ProcessGroup&, int64_t);
  };
  friend struct ElasticState;
  Elastic(const Source& source, const ProcessGroupOptions& options);
  void run_body(const Body& body, int64_t step);
  ElasticState* state_;
};

}  // namespace tapir::inline v0::distributed
