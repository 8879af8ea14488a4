#pragma once
#include <stdexcept>
#include <string>

#include "../core/state_dict.h"
#include "process_group.h"

namespace tapir::inline v0::distributed {

/// In a catch (...): what() of the error, or a text that says that it has none.
std::string words_of_error();

/// Tells all ranks how rank 0 fared; RuntimeError with its words on the others where it failed.
void share_outcome(const ProcessGroup& group, const std::string& error_of_rank_0);

/// f() on rank 0 alone, for what is written once: checkpoints, logs. Every rank calls it, and goes on when it is done; where it throws, all
/// do: a full disk ends no rank in a wait.
template <class F> void once(const ProcessGroup& group, F&& f) {
  std::exception_ptr mine;
  std::string error;
  if (group.rank() == 0) try {
      f();
    } catch (...) {
      mine = std::current_exception(), error = words_of_error();
    }
  share_outcome(group, error);
  if (mine) std::rethrow_exception(mine);
}

/// The words of each rank's error, for all: RuntimeError where there are some and this rank has none.
void share_errors(const ProcessGroup& group, const std::string& mine);

/// f() on every rank; where it throws on one, all throw: no rank waits for one that has failed.
template <class F> void together(const ProcessGroup& group, F&& f) {
  std::exception_ptr mine;
  std::string error;
  try {
    f();
  } catch (...) {
    mine = std::current_exception(), error = words_of_error();
  }
  share_errors(group, error);
  if (mine) std::rethrow_exception(mine);
}

/// The tensors of src under their names, for every rank: read by one from a disk that the others do not see. The other ranks' `state` is not
/// looked at. Devices are src's kind: what it has on a CUDA device comes to the host.
StateDict broadcast_state_dict(const StateDict& state, const ProcessGroup& group, int64_t src = 0);

}  // namespace tapir::inline v0::distributed
