#include "backward.h"

#include <algorithm>

#include "../../autograd/engine.h"
#include "../../autograd/record.h"
#include "../../core/recorder.h"
#include "../../ops/ops.h"
#include "../program/uses.h"

namespace tapir::inline v0::ir {

std::vector<Tensor> placeholders(std::span<const View> views) {
  std::vector<Tensor> out;
  for (const View& v : views) out.push_back(v.kind == View::Kind::Memory ? Tensor(new TensorImpl) : Tensor());
  return out;
}

/// What backward reads outside that a graph would have kept: forward had it too, and backward leaves it as it is.
static std::vector<View> kept_outside(const Recorded& backward, const Recorded& forward) {
  std::vector<View> out(backward.storages.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const Recorded::Seen& s = backward.storages[i];
    const bool had = std::any_of(forward.storages.begin(), forward.storages.end(),
                                 [&](const Recorded::Seen& f) { return f.storage.get() == s.storage.get(); });
    if (!had || backward.program.blocks[size_t(s.block)].written) continue;
    for (const Call& call : backward.program.calls)
      each_view(call, [&](const View& v, Access) {
        if (v.block == s.block && out[i].kind == View::Kind::Absent) out[i] = v;
      });
  }
  return out;
}

/// What forward keeps lies in its arena, where backward works.
static std::vector<Lodger> lodgers_of(const RecordedBackward& r, const Replay& forward) {
  std::vector<int> blocks;
  const std::span<const View> inputs(r.program.program.inputs);
  for (const View& v : inputs.subspan(r.results.size() + r.kept_arguments.size(), r.kept_blocks.size()))
    blocks.push_back(block_of(v));
  return forward.lodgers(blocks);
}

Backward::Backward(RecordedBackward recorded, Replay& forward, const CompileOptions& options)
    : Backward(std::move(recorded), placeholders(recorded.program.program.inputs),
               placeholders(recorded.program.program.outputs), lodgers_of(recorded, forward), forward, options) {
  forward.reserve(replay_.schedule().plan().arena);
}
Backward::Backward(RecordedBackward&& recorded, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                   std::vector<Lodger> lodgers, const Replay& forward, const CompileOptions& options)
    : r_(std::move(recorded)), kept_outside_(kept_outside(r_.program, forward.recorded())),
      replay_(std::move(r_.program), inputs, outputs, {}, options,
              {.arguments = r_.results.size() + r_.kept_arguments.size(), .lodgers = std::move(lodgers)}) {}

Fit Backward::fit(const char*& why, Held& held) const {
  for (const WeakTensor& leaf : r_.leaves)
    if (!held.leaves.emplace_back(leaf.lock()).defined()) return why = "a parameter was replaced", Fit::Changed;
  const std::lock_guard lock(mutex_);
  return replay_.fit(why, held);
}
void Backward::refresh(RecordedBackward&& other) {
  const std::lock_guard lock(mutex_);
  replay_.refresh(std::move(other.program));
}
void Backward::release_memory() {
  const std::lock_guard lock(mutex_);
  replay_.release_memory();
}
std::string Backward::refused() const {
  const std::lock_guard lock(mutex_);
  return refused_;
}
void Backward::refuse(const std::string& what) {
  refused_ = what;
  fail(ErrorKind::Value,
       "[compile] {}, other than in the recorded calls: this call was replayed, and there is no program for that. Call "
       "reset() before such a change; the next calls run as they are",
       what);
}

/// The gradients of the results, laid out as they were when this was recorded.
std::vector<Tensor> Backward::seeds_of(const Grads& gradients) {
  std::vector<Tensor> out;
  for (int64_t i = 0; i < gradients.size(); ++i) {
    const View& v = replay_.recorded().program.inputs[size_t(i)];
    Tensor g = gradients[i];
    const bool there = v.kind == View::Kind::Memory;
    if (there != g.defined() && !(there && r_.linear))
      refuse(tapir::format(there ? "result {} has no gradient" : "result {} has a gradient",
                           int64_t(r_.results[size_t(i)])));
    if (there && (!g.defined() || !(g.strides() == v.strides))) {
      const Tensor same = empty_strided(v.shape, v.strides, {.dtype = v.dtype, .device = v.device});
      if (g.defined()) backend(same).copy(context(same), {same, g});
      else backend(same).fill(context(same), {same, 0});
      g = same;
    }
    out.push_back(std::move(g));
  }
  return out;
}

/// A result that nobody differentiated gives no gradients. In the place of its own there were zeros: those of others must be finite, for 0 times
/// infinity is not 0.
void Backward::drop_what_is_missing(const Grads& gradients, std::vector<Tensor>& found) {
  bool missing = false;
  for (int64_t i = 0; i < gradients.size(); ++i)
    missing |= !gradients[i].defined() && replay_.recorded().program.inputs[size_t(i)].kind == View::Kind::Memory;
  if (!missing) return;
  for (size_t k = 0; k < found.size(); ++k) {
    bool reached = false;
    for (int64_t i = 0; i < gradients.size(); ++i) reached |= gradients[i].defined() && r_.reaches[size_t(i)][k];
    if (!reached) found[k] = Tensor();
    if (found[k].defined() && !all(isfinite(found[k])).item<bool>())
      refuse("a result has no gradient, and zeros in its place give NaN");
  }
}

std::vector<Tensor> Backward::run(const Grads& gradients, std::vector<Tensor> kept, StoragePtr arena,
                                  const RandomState& random) {
  const std::lock_guard lock(mutex_);
  if (modes.grad) refuse("a result is differentiated twice (create_graph)");
  std::vector<Tensor> arguments = seeds_of(gradients), found;
  for (Tensor& x : kept) arguments.push_back(std::move(x));
  if (!replay_.apart(arguments)) refuse("a gradient lies in memory that backward writes");
  struct Return {
    Replay* to;
    ~Return() {
      if (to) to->release_memory();
    }
  } back{arena ? &replay_ : nullptr};
  if (arena && !tapir::detail::graph_is_retained()) replay_.lend(std::move(arena));
  replay_.run(arguments, found, &random);
  replay_.let_go_of_results();  // leaves take gradients over that nobody shares
  drop_what_is_missing(gradients, found);
  return found;
}

/// Of the results of a replayed call.
class BackwardNode final : public Node {
 public:
  BackwardNode(std::shared_ptr<Backward> program, std::span<const Tensor> kept, StoragePtr arena,
               const RandomState& random)
      : program_(std::move(program)), arena_(std::move(arena)), random_(random), kept_(kept.size()) {
    const auto& outside = program_->replay().recorded().storages;
    saved_.reserve(kept.size() + outside.size());
    for (const Tensor& x : kept) saved_.emplace_back(x, std::span<const Tensor>());
    for (size_t i = 0; i < outside.size(); ++i) {
      held_.push_back(StoragePtr::share(outside[i].storage.get()));
      const View& v = program_->kept_outside_[i];
      if (v.kind == View::Kind::Absent) continue;
      saved_.emplace_back(tensor_in(v, held_.back(), 0), std::span<const Tensor>());
    }
  }
  Grads apply(const Grads& g, Needs) override {
    if (modes.recorder)
      modes.recorder->host_acts(
          "[compile] expected the graph of a replayed call to be differentiated outside of another "
          "compiled function, or to be made inside of it too");
    std::vector<Tensor> kept;
    for (size_t i = 0; i < saved_.size(); ++i) {
      Tensor x = saved_[i].unpack(this);  // sees that nobody wrote to it
      if (i < kept_) kept.push_back(std::move(x));
    }
    std::vector<Tensor> found;
    try {
      found = program_->run(g, std::move(kept), arena_, random_);
    } catch (...) {
      if (arena_ && !tapir::detail::graph_is_retained()) free_saved();  // what is kept may be overwritten
      throw;
    }
    Grads out(int64_t(found.size()));
    for (size_t i = 0; i < found.size(); ++i) out[int64_t(i)] = std::move(found[i]);
    return out;
  }
  void free_saved() override { saved_.clear(), held_.clear(), arena_ = {}, freed = true; }

 private:
  std::shared_ptr<Backward> program_;
  StoragePtr arena_;
  RandomState random_;
  size_t kept_;
  std::vector<SavedTensor> saved_;  // what is kept, then what backward reads outside as it was
  std::vector<StoragePtr> held_;    // all that it reads outside
};

void Backward::tie(const std::shared_ptr<Backward>& program, std::span<const Tensor> arguments, StoragePtr arena,
                   const RandomState& random, std::vector<Tensor>& results) {
  const RecordedBackward& r = program->r_;
  std::vector<Tensor> inputs, tied, kept;
  for (const WeakTensor& leaf : r.leaves) inputs.push_back(leaf.lock());
  for (const size_t i : r.arguments) inputs.push_back(arguments[i]);
  for (const size_t i : r.results) tied.push_back(results[i]);
  for (const size_t i : r.kept_arguments) kept.push_back(arguments[i]);
  const auto blocks = results.end() - int64_t(r.kept_blocks.size());
  kept.insert(kept.end(), blocks, results.end());
  results.erase(blocks, results.end());
  tie_outputs(NodeBuilder::make<BackwardNode>("compiled", std::span<const Tensor>(inputs), program,
                                              std::span<const Tensor>(kept), std::move(arena), random),
              tied);
}

}  // namespace tapir::inline v0::ir
