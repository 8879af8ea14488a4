#include "sample.h"

#include <algorithm>
#include <unordered_set>

#include "../../autograd/engine.h"
#include "../../autograd/record.h"
#include "../../core/recorder.h"
#include "aliases.h"

namespace tapir::inline v0::ir {

bool has_live_graph(const Tensor& y) {
  if (!y.defined() || !y.requires_grad() || y.is_leaf()) return false;
  std::vector<const Node*> stack;
  std::unordered_set<const Node*> seen;
  const Edge root = edge_of(y);
  const auto visit = [&](const Node* n) {
    if (n && seen.insert(n).second) stack.push_back(n);
  };
  for (visit(root.node()); !stack.empty();) {
    const Node* n = stack.back();
    stack.pop_back();
    if (n->freed) return false;
    for (uint32_t i = 0; i < n->num_edges; ++i) visit(n->edges[i].node());
  }
  return true;
}

View all_of(const Program& program, int block) {
  View v;
  const Block& b = program.blocks[size_t(block)];
  v.kind = View::Kind::Memory, v.dtype = kUInt8, v.device = b.device, v.block = block, v.shape = b.bytes, v.strides = 1;
  return v;
}

std::vector<std::pair<detail::Weak<Storage>, int>> memory_left_by(const Program& program) {
  std::vector<std::pair<detail::Weak<Storage>, int>> out;
  for (size_t i = 0; i < program.blocks.size(); ++i)
    if (const Block& b = program.blocks[i]; b.kind != Block::Kind::Outside && b.death < 0 && b.memory)
      out.emplace_back(detail::Weak(b.memory.get()), int(i));
  return out;
}

namespace {

/// Leaves and arguments that a graph ends in.
struct Ends {
  std::vector<Tensor> leaves;
  std::vector<size_t> arguments;
};
/// Walks the part of a graph that a call made; false: it goes on into another one that is no argument's.
bool find_ends(const Waiting& w, const std::vector<Tensor>& outputs, Ends& ends) {
  std::vector<Edge> origins;
  for (const Tensor& x : w.arguments) origins.push_back(x.defined() && !x.is_leaf() ? edge_of(x) : Edge());
  std::vector<Node*> stack;
  std::unordered_set<const void*> seen;
  const auto visit = [&](const Edge& e) {
    Node* const n = e.node();
    if (n && n->sequence < w.first) {
      const auto at = std::find_if(origins.begin(), origins.end(),
                                   [&](const Edge& o) { return o.node() == n && o.index() == e.index(); });
      if (at == origins.end()) return false;
      const size_t i = size_t(at - origins.begin());
      if (std::find(ends.arguments.begin(), ends.arguments.end(), i) == ends.arguments.end())
        ends.arguments.push_back(i);
    } else if (n && seen.insert(n).second) stack.push_back(n);
    else if (e.leaf().defined() && seen.insert(e.leaf().impl_or_null()).second) ends.leaves.push_back(e.leaf());
    return true;
  };
  for (const Edge& o : origins)
    if (o.node() && o.node()->sequence >= w.first) return false;  // of another thread
  for (const Tensor& y : outputs)
    if (has_live_graph(y) && !visit(edge_of(y))) return false;
  while (!stack.empty()) {
    Node* n = stack.back();
    stack.pop_back();
    for (uint32_t i = 0; i < n->num_edges; ++i)
      if (n->edges[i] && !visit(n->edges[i])) return false;
  }
  return true;
}

/// Why results are not such that a program can make them anew; empty: they are. `with_history`: which of them have one.
std::string strange_results(const Program& p, const std::vector<Tensor>& outputs, std::vector<size_t>& with_history) {
  std::unordered_set<int> blocks;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool live = has_live_graph(outputs[i]);
    if (live) with_history.push_back(i);
    const int block = block_of(p.outputs[i]);
    if (block < 0) continue;
    const bool input =
        std::any_of(p.inputs.begin(), p.inputs.end(), [&](const View& v) { return block_of(v) == block; });
    if (live && !blocks.insert(block).second) return "two differentiable results share memory";
    if (p.blocks[size_t(block)].kind == Block::Kind::Outside && (live || !input))
      return "a differentiable call returns a tensor that lies in an argument's memory or outside: clone() it";
  }
  return "";
}

class WaitingNode final : public Node {
 public:
  WaitingNode(Waiting&& w, std::vector<Tensor>&& roots, std::vector<size_t>&& results, const Ends& ends)
      : w_(std::move(w)), roots_(std::move(roots)), results_(std::move(results)) {
    for (const Tensor& leaf : ends.leaves) leaves_.emplace_back(leaf);
    arguments_ = ends.arguments;
    for (const Tensor& x : w_.arguments) {
      Storage* const s = x.defined() ? root_of(x.impl().storage.get()) : nullptr;
      memory_.push_back(s ? detail::Weak(s) : detail::Weak<Storage>());
      views_.push_back(view_of(x)), aliased_.push_back(s && !x.requires_grad());
    }
    w_.arguments.clear();  // they are the graph's to keep
  }
  ~WaitingNode() override { end(); }

  Grads apply(const Grads& g, Needs needs) override {
    std::vector<Edge> roots, wanted;
    std::vector<Tensor> seeds;
    bool all = true;
    for (size_t i = 0; i < roots_.size(); ++i)
      if (g[int64_t(i)].defined()) roots.push_back(edge_of(roots_[i])), seeds.push_back(g[int64_t(i)]);
    for (uint32_t i = 0; i < num_edges; ++i) wanted.push_back(edges[i]), all &= needs[int64_t(i)];
    const BackwardOptions options{detail::graph_is_retained(), modes.grad};
    if (modes.grad) w_.sample->why = "a result is differentiated twice", w_.sample->permanent = true;
    std::vector<Tensor> found = modes.grad || modes.recorder || !all || w_.sample->backward
                                    ? detail::grad_since(w_.first, roots, seeds, wanted, options)
                                    : recorded(g, roots, wanted, options);
    Grads out(int64_t(found.size()));
    for (size_t i = 0; i < found.size(); ++i) out[int64_t(i)] = std::move(found[i]);
    return out;
  }
  void free_saved() override { freed = true, end(); }

 private:
  static View view_of(const Tensor& x) {
    View v;
    if (!x.defined() || x.numel() == 0) return v;
    v.kind = View::Kind::Memory, v.dtype = x.dtype(), v.device = x.device(), v.shape = x.shape(),
    v.strides = x.strides();
    const Storage* const root = root_of(x.impl().storage.get());
    v.offset = (static_cast<const char*>(x.data_ptr()) - static_cast<const char*>(root->data)) / size_of(x.dtype());
    return v;
  }

  std::vector<Tensor> recorded(const Grads& g, std::span<const Edge> roots, std::span<const Edge> wanted,
                               const BackwardOptions& options) {
    std::vector<Tensor> given(g.begin(), g.end()), seeds;
    for (Tensor& x : given)
      if (x.defined() && may_overlap(x.shape(), x.strides())) x = x.contiguous();
    detail::Aliases aliases(given);
    for (const Tensor& x : aliases.tensors)
      if (x.defined()) seeds.push_back(x);
    Recording recording(aliases.tensors, true);
    std::vector<Tensor> found = detail::grad_since(w_.first, roots, seeds, wanted, options);
    Notes notes;
    Program program = recording.finish(found, &notes);
    auto b = std::make_unique<RecordedBackward>();
    find_sources(program, *b);
    w_.sample->notes.unseen += notes.unseen, w_.sample->notes.taken += notes.taken;
    w_.sample->notes.refused += notes.refused, w_.sample->notes.reseeded |= notes.reseeded;
    const bool draws = notes.numbers > 0;
    b->program = keep(std::move(program), std::move(notes));
    const Recorded& f = w_.sample->forward;  // masks are drawn again from forward's numbers
    b->program.seed = f.seed, b->program.offset = f.offset, b->program.numbers = f.numbers;
    if (draws) w_.sample->why = "backward draws random numbers of its own";
    b->results = results_, b->arguments = arguments_;
    for (const WeakTensor& leaf : leaves_) b->leaves.emplace_back(leaf.lock());
    w_.sample->backward = std::move(b);
    for (Tensor& x : found) x = aliases.unaliased(x);
    return found;
  }

  /// Arguments, and what forward left, become inputs of the backward program.
  void find_sources(Program& p, RecordedBackward& b) const {
    const auto add = [&](Source::Kind kind, const detail::Weak<Storage>& memory, size_t index, const View* v) {
      for (size_t i = 0; memory && i < p.blocks.size(); ++i) {
        const Block& block = p.blocks[i];
        if (block.kind != Block::Kind::Outside || block.memory.get() != memory.get()) continue;
        if (std::any_of(p.inputs.begin(), p.inputs.end(), [&](const View& in) { return block_of(in) == int(i); }))
          return;
        b.sources.push_back({kind, index}), p.inputs.push_back(v ? *v : all_of(p, int(i)));
        p.inputs.back().block = int(i);
      }
    };
    for (size_t k = 0; k < memory_.size(); ++k)
      if (views_[k].kind == View::Kind::Memory) add(Source::Argument, memory_[k], k, &views_[k]);
    for (const auto& [memory, made] : w_.made) add(Source::Block, memory, size_t(made), nullptr);
  }

  /// The graph is gone: what is alive of it is kept by somebody else.
  void end() {
    const bool kept =
        std::any_of(roots_.begin(), roots_.end(), [](const Tensor& y) { return y.impl().refs.load() > 1; });
    roots_.clear();
    if (!w_.sample) return;
    std::unique_ptr<Sample> s = std::move(w_.sample);
    if (!s->backward && s->why.empty()) return;
    if (kept && s->why.empty()) s->why = "a result is kept outside too: keep what the call returns";
    Recorded& f = s->forward;
    for (size_t k = 0; k < memory_.size(); ++k)
      if (aliased_[k] && memory_[k].alive() && s->why.empty())
        s->why = "an argument is kept outside: copy_() it into a tensor that exists before";
    for (const auto& [memory, block] : w_.made) {
      if (f.moves[size_t(block)]) continue;
      if (memory.alive() && s->why.empty()) s->why = "a tensor that is made inside is kept outside, but not returned";
    }
    for (size_t i = 0; i < f.program.blocks.size();
         ++i)  // also what no kernel has seen, such as shapes that a node keeps
      if (Block& b = f.program.blocks[i]; b.kind != Block::Kind::Outside && b.death < 0 && !f.moves[i])
        b.death = int(f.program.calls.size());
    auto next = f.program.outputs.begin() + int64_t(s->returned);
    for (size_t k = 0; s->backward && k < s->backward->sources.size(); ++k) {
      const Source& x = s->backward->sources[k];
      if (x.kind != Source::Block) continue;
      f.program.blocks[x.index].death = -1, f.moves[x.index] = true;
      next = f.program.outputs.insert(next, all_of(f.program, int(x.index))) + 1, ++s->kept;
    }
    const std::lock_guard lock(w_.to->mutex);
    w_.to->done.push_back(std::move(s));
  }

  Waiting w_;
  std::vector<Tensor> roots_;    // results with the graph behind them
  std::vector<size_t> results_;  // which ones of the call's
  std::vector<WeakTensor> leaves_;
  std::vector<size_t> arguments_;
  std::vector<detail::Weak<Storage>> memory_;  // of arguments
  std::vector<View> views_;
  std::vector<bool> aliased_;  // nobody but the function has seen it
};

}  // namespace

bool tie_waiting(Waiting&& w, std::vector<Tensor>& outputs, std::string& why) {
  std::vector<size_t> results;
  Ends ends;
  why = strange_results(w.sample->forward.program, outputs, results);
  if (why.empty() && !find_ends(w, outputs, ends))
    why = "a tensor from outside has a history that is not the function's: pass it as an argument";
  if (!why.empty()) return false;
  std::vector<Tensor> roots, inputs = ends.leaves;
  for (const size_t i : results) roots.push_back(outputs[i]), outputs[i] = outputs[i].detach();
  for (const size_t i : ends.arguments) inputs.push_back(w.arguments[i]);
  std::vector<Tensor> tied;
  for (const size_t i : results) tied.push_back(outputs[i]);
  tie_outputs(NodeBuilder::make<WaitingNode>("compiled", std::span<const Tensor>(inputs), std::move(w),
                                             std::move(roots), std::move(results), ends),
              tied);
  return true;
}

std::string difference(const Sample& a, const Sample& b) {
  if (std::string why = difference(a.forward, b.forward); !why.empty()) return why;
  if (bool(a.backward) != bool(b.backward)) return "a result is differentiated, or not";
  if (!a.backward) return "";
  const RecordedBackward &x = *a.backward, &y = *b.backward;
  const auto same_leaf = [](const WeakTensor& l, const WeakTensor& m) { return l->is_same(*m); };
  if (x.results != y.results || x.arguments != y.arguments ||
      !std::equal(x.leaves.begin(), x.leaves.end(), y.leaves.begin(), y.leaves.end(), same_leaf))
    return "other gradients than before";
  if (std::string why = difference(x.program, y.program); !why.empty()) return "backward: " + why;
  return x.sources == y.sources ? "" : "other values are kept for backward than before";
}

}  // namespace tapir::inline v0::ir
