#pragma once
// Note [Recording a program]
// While a Recording lives, this thread's kernel tables are its own: each entry runs the real one, so results are right at once, and
// writes the call down. Births and deaths of memory pass through the table too. What the host would have to look at cannot be replayed
// and ends in a ValueError: item(), to_vector(), operations whose result's shape depends on values.
// Fresh memory that is read before a kernel wrote it was filled by the host (tensor({1, 2})): its bytes become a Constant.
// Memory of an input is known by its storage, everything else by its address: what shares memory with an input, but was not reached
// through it, is not the input.
#include <memory>
#include <span>

#include "../../core/modes.h"
#include "../../core/tensor.h"
#include "../../core/versioned.h"
#include "../../ops/autocast.h"
#include "../program/program.h"
#include "reason.h"

namespace tapir::inline v0::ir {

struct ProgramRecorder;  // record.cpp

/// What a recorded function did beside calling kernels.
struct Notes {
  /// A storage from outside that kernels saw, held as the thread's tensors hold it, not by its root.
  struct Seen {
    StoragePtr storage;
    int block = -1;
    uint32_t version = 0, leaves = 0;  // at the beginning
    uint32_t raised = 0;               // its version, by so much
  };
  /// A module or an optimizer that host code asked.
  struct Object {
    detail::Handle<detail::Stamp> stamp;
    bool flag;  // at the beginning
  };
  /// A leaf from outside whose gradient changed.
  struct GradSlot {
    Tensor leaf;
    bool relevant = false;      // does the program depend on the gradient that was there?
    bool had = false;           // was there one? `start`: where, if relevant
    View start = {}, end = {};  // end: Absent where there is none afterwards
    int64_t holders = 0;        // of a gradient that was there, and is, beside the leaf and the results
  };
  std::vector<Seen> storages;
  std::vector<Object> objects;
  std::vector<GradSlot> grads;
  std::vector<Tensor> asked;      // leaves of whose gradients somebody asked only whether they are there, and they are
  uint64_t seed = 0, offset = 0;  // of the generator at the beginning
  uint64_t numbers = 0;           // that its offset moved on
  bool reseeded = false;
  bool outer_graph = false;  // backward() went on into what was there before
  Reason unseen = {};        // the call that read memory which neither a kernel nor tensor() wrote
  Reason taken = {};         // where data<T>() gave the host what kernels or the world outside wrote
  Reason refused = {};       // what else no program can hold; only in a lenient recording
};

/// Writes down what this thread computes until finish() or the end of the scope. ValueError where one is alive already.
class Recording {
 public:
  /// The inputs need no mark to be read; they are those that a replay may exchange. Where the host does what no program can hold, a
  /// ValueError says so; `lenient`: the notes do.
  /// `like`: an earlier recording of the same function. Calls as in it are taken to be at the same place of the user's code.
  explicit Recording(std::span<const Tensor> inputs = {}, bool lenient = false, const Program* like = nullptr);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  /// The program so far; recording ends.
  Program finish(std::span<const Tensor> outputs = {}, Notes* notes = nullptr);

 private:
  void stop() noexcept;
  ProgramRecorder* recorder_;
};

/// f(): casts of weights that a surrounding autocast region keeps are not the program's to read, so f has a region of its own.
template <class F> void in_own_region(F&& f) {
  if (!modes.autocast) return f();
  AutocastRegion region = *modes.autocast;
  const std::unique_ptr<CastCache, decltype(&delete_cast_cache)> cache(region.cache ? new_cast_cache() : nullptr,
                                                                       &delete_cast_cache);
  region.cache = cache.get();
  const ScopedMode<AutocastRegion*> mode(modes.autocast, &region);
  f();
}

}  // namespace tapir::inline v0::ir
