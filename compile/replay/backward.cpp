#include "backward.h"

#include <algorithm>

#include "../../autograd/record.h"
#include "../../core/recorder.h"

namespace tapir::inline v0::ir {

std::vector<Tensor> placeholders(std::span<const View> views) {
  std::vector<Tensor> out;
  for (const View& v : views) out.push_back(v.kind == View::Kind::Memory ? Tensor(new TensorImpl) : Tensor());
  return out;
}

/// They stand first.
static size_t arguments_among(const std::vector<Source>& sources) {
  return size_t(
      std::count_if(sources.begin(), sources.end(), [](const Source& s) { return s.kind == Source::Argument; }));
}

Backward::Backward(RecordedBackward recorded, const CompileOptions& options)
    : Backward(std::move(recorded), placeholders(recorded.program.program.inputs),
               placeholders(recorded.program.program.outputs), options) {}
Backward::Backward(RecordedBackward&& recorded, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                   const CompileOptions& options)
    : r_(std::move(recorded)), replay_(std::move(r_.program), inputs, outputs, {}, options,
                                       {.arguments = r_.results.size() + arguments_among(r_.sources)}) {}

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
       "[compile] {}, which the recorded calls did not: this call was replayed and has no program for that. The next "
       "calls "
       "run as they are",
       what);
}

/// The gradients of the results, laid out as they were when this was recorded.
std::vector<Tensor> Backward::seeds_of(const Grads& gradients) {
  std::vector<Tensor> out;
  for (int64_t i = 0; i < gradients.size(); ++i) {
    const View& v = replay_.recorded().program.inputs[size_t(i)];
    Tensor g = gradients[i];
    if (v.kind != View::Kind::Memory) {
      if (g.defined()) refuse("a gradient flows into result " + std::to_string(r_.results[size_t(i)]));
    } else if (!g.defined() || !(g.strides() == v.strides)) {
      Tensor same = empty_strided(v.shape, v.strides, {.dtype = v.dtype, .device = v.device});
      if (g.defined()) backend(same).copy(context(same), {same, g});
      else backend(same).fill(context(same), {same, 0});
      g = same;
    }
    out.push_back(std::move(g));
  }
  return out;
}

std::vector<Tensor> Backward::run(const Grads& gradients, std::vector<Tensor> kept, const RandomState& random) {
  const std::lock_guard lock(mutex_);
  if (modes.grad) refuse("a result is differentiated twice (create_graph)");
  std::vector<Tensor> arguments = seeds_of(gradients), found;
  for (Tensor& x : kept) arguments.push_back(std::move(x));
  if (!replay_.apart(arguments)) refuse("a gradient lies in memory that backward writes");
  replay_.run(arguments, found, &random);
  return found;
}

/// Of the results of a replayed call.
class BackwardNode final : public Node {
 public:
  BackwardNode(std::shared_ptr<Backward> program, std::span<const Tensor> kept, const RandomState& random)
      : program_(std::move(program)), random_(random) {
    const auto& outside = program_->replay().recorded().storages;
    saved_.reserve(kept.size() + outside.size());
    kept_ = kept.size();
    for (const Tensor& x : kept) saved_.emplace_back(x, std::span<const Tensor>());
    for (const Recorded::Seen& s : outside) {
      Tensor t(new TensorImpl);
      TensorImpl& p = t.impl();
      p.storage = StoragePtr::share(s.storage.get());
      p.dtype = kUInt8, p.device = p.storage->device, p.sizes = p.storage->bytes, p.strides = 1;
      p.numel = p.storage->bytes;
      saved_.emplace_back(t, std::span<const Tensor>());
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
    std::vector<Tensor> found = program_->run(g, std::move(kept), random_);
    Grads out(int64_t(found.size()));
    for (size_t i = 0; i < found.size(); ++i) out[int64_t(i)] = std::move(found[i]);
    return out;
  }
  void free_saved() override { saved_.clear(), freed = true; }

 private:
  std::shared_ptr<Backward> program_;
  std::vector<SavedTensor> saved_;  // what is kept, then what it reads outside
  size_t kept_ = 0;
  RandomState random_;
};

void Backward::tie(const std::shared_ptr<Backward>& program, std::span<const Tensor> arguments,
                   const RandomState& random, std::vector<Tensor>& results) {
  const RecordedBackward& r = program->r_;
  std::vector<Tensor> inputs, tied, kept;
  for (const WeakTensor& leaf : r.leaves) inputs.push_back(leaf.lock());
  for (const size_t i : r.arguments) inputs.push_back(arguments[i]);
  for (const size_t i : r.results) tied.push_back(results[i]);
  const auto blocks =
      std::count_if(r.sources.begin(), r.sources.end(), [](auto& s) { return s.kind == Source::Block; });
  auto next = results.end() - blocks;
  for (const Source& s : r.sources) kept.push_back(s.kind == Source::Block ? *next++ : arguments[s.index]);
  results.resize(results.size() - blocks);
  tie_outputs(NodeBuilder::make<BackwardNode>("compiled", std::span<const Tensor>(inputs), program,
                                              std::span<const Tensor>(kept), random),
              tied);
}

}  // namespace tapir::inline v0::ir
