#pragma once
// Note [Differentiable calls]
// A call whose results can still be differentiated becomes two programs. While it is recorded, its results are cut off from the graph that it
// made and tied to one node instead. When backward() comes to that node, the graph behind it is differentiated and recorded as well: the second
// program. What the graph kept from forward to backward are blocks that the first program makes and the second one reads: results of the
// first beside those that the function returns, and arguments of the second beside the gradients of the results.
// A replay runs the first program and ties its results to a node that has what is kept, and that runs the second program. Accumulation, hooks
// of leaves, several calls before one backward and retain_graph are the engine's as in eager code. What one node for all results changes:
// - Which results have gradients is part of the program. Where one is missing, as that of a cell's last state, it is zeros, and what no other
//   result reaches has no gradient. A replayed call that has more, or that is differentiated twice, is refused; the next ones run as they are.
//   So does a function whose results are differentiated one after the other.
// - What backward reads is checked for writes where forward had it too and backward does not write it: there a graph keeps values.
#include <memory>
#include <mutex>

#include "../../autograd/node.h"
#include "../compile.h"
#include "recorded.h"

namespace tapir::inline v0::ir {

struct RecordedBackward {
  Recorded program;                    // its inputs: gradients of `results`, then what is kept: arguments, then blocks
  std::vector<size_t> results;         // of the call, those with a history
  std::vector<size_t> kept_arguments;  // of the call, which backward reads
  std::vector<int> kept_blocks;        // that the forward program makes and backward reads
  std::vector<WeakTensor> leaves;      // its outputs: their gradients, then those of `arguments`
  std::vector<size_t> arguments;
  std::vector<std::vector<bool>> reaches;  // of each result, which of the outputs
  bool linear = true;  // nothing of the user's own is in the graph: a gradient of zeros does nothing
};

/// A recorded call.
struct Sample {
  Recorded forward;
  std::unique_ptr<RecordedBackward> backward = {};  // of a differentiable call, once that was differentiated
  std::unique_ptr<detail::CompileCall::Frame> frame = {};
  size_t arguments = 0;                   // tensors
  std::vector<size_t> returned = {};      // results, as numbers of the arguments that they are; kMade for others
  bool checked = false;                   // there was a program when it was made
  std::vector<size_t> with_history = {};  // results
  bool differentiable = false;            // its graph keeps memory
  Notes notes = {};                       // what keep() does not take
  Reason why = {};                        // it cannot be replayed
  bool permanent = false;                 // nor can another of the same signature
  int passed = 0;                         // recordings with fewer gradients that came since
};
constexpr size_t kMade = ~size_t(0);
/// The forward program gives what backward reads too, behind the call's results; the rest of what the graph kept ends in it.
void hand_out_kept(Sample& sample);
/// What two recorded calls do differently, in words; empty: nothing.
Reason difference(const Sample& before, const Sample& after);
/// Do they differ in nothing but gradients of results that are missing now?
bool misses_gradients(const Sample& before, const Sample& after);

/// Recorded calls that were differentiated.
struct Samples {
  std::mutex mutex;
  std::vector<std::unique_ptr<Sample>> done;
};

/// A call that was recorded, between its forward and its backward.
struct Waiting {
  uint64_t first = 0;                   // number of the first node that it made
  std::unique_ptr<Sample> sample = {};  // null: nobody is interested any more
  std::vector<Tensor> arguments = {};   // as the function got them
  // What arguments are aliases of, and its version after the call; memory that the forward program leaves, and its block.
  std::vector<std::pair<detail::Weak<Storage>, uint32_t>> versions = {};
  std::vector<std::pair<detail::Weak<Storage>, int>> made = {};
  std::shared_ptr<Samples> to = {};
};
/// Memory of the program that is alive at its end; before keep().
std::vector<std::pair<detail::Weak<Storage>, int>> memory_left_by(const Program& program);
/// Cuts those `outputs` off their graph that can be differentiated, and ties them to a node that records the backward pass and then hands the
/// sample over. False: that cannot be, `why` says why, and the outputs are as they were.
bool tie_waiting(Waiting&& waiting, std::vector<Tensor>& outputs, std::string& why);

/// Does somebody hold a result or a gradient that the call made, or its memory, beside the caller and the leaf? A result has two handles there.
bool is_kept(const Recorded& r, const std::vector<Tensor>& outputs);
/// Could somebody differentiate y again? Of the graph, nodes before number `first` are not looked at.
bool has_live_graph(const Tensor& y, uint64_t first);
/// What has been differentiated is returned without its history, as replays return it: its nodes would hold leaves that were made inside.
void drop_history(std::vector<Tensor>& outputs, std::span<const Tensor> inputs, uint64_t first);
/// Which outputs have a history, and which are inputs.
void describe_results(Sample& s, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs, uint64_t first);
/// Bytes of a block, all of it.
View all_of(const Program& program, int block);

}  // namespace tapir::inline v0::ir
