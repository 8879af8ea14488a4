#include "sample.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "../../autograd/engine.h"
#include "../../autograd/function.h"
#include "../../autograd/meta.h"
#include "../../autograd/record.h"
#include "../../core/recorder.h"
#include "aliases.h"

namespace tapir::inline v0::ir {

bool has_live_graph(const Tensor& y, uint64_t first) {
  if (!y.defined() || !y.requires_grad() || y.is_leaf()) return false;
  std::vector<const Node*> stack;
  std::unordered_set<const Node*> seen;
  const Edge root = edge_of(y);
  const auto visit = [&](const Node* n) {
    if (n && n->sequence >= first && seen.insert(n).second) stack.push_back(n);
  };
  for (visit(root.node()); !stack.empty();) {
    const Node* n = stack.back();
    stack.pop_back();
    if (n->freed) return false;
    for (uint32_t i = 0; i < n->num_edges; ++i) visit(n->edges[i].node());
  }
  return true;
}

void drop_history(std::vector<Tensor>& outputs, std::span<const Tensor> inputs, uint64_t first) {
  for (Tensor& y : outputs) {
    const bool given = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& x) { return x.is_same(y); });
    if (y.defined() && y.requires_grad() && !y.is_leaf() && !given && !has_live_graph(y, first)) y = y.detach();
  }
}

/// The number of the input that it is; kMade: none.
static size_t number_of(const Tensor& y, const std::vector<Tensor>& inputs) {
  const auto at = std::find_if(inputs.begin(), inputs.end(), [&](const Tensor& x) { return x.is_same(y); });
  return y.defined() && at != inputs.end() ? size_t(at - inputs.begin()) : kMade;
}
void describe_results(Sample& s, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                      uint64_t first) {
  for (const Tensor& y : outputs) {
    if (has_live_graph(y, first)) s.with_history.push_back(s.returned.size());
    s.returned.push_back(number_of(y, inputs));
  }
}

bool is_kept(const Recorded& r, const std::vector<Tensor>& outputs) {
  std::map<const TensorImpl*, uint32_t> handles;  // that are known
  std::map<const Storage*, uint32_t> tensors;     // in that memory
  const auto add = [&](const Tensor& x, uint32_t known) {
    const auto [at, fresh] = handles.try_emplace(&x.impl(), 0);
    at->second += known;
    tensors[x.impl().storage.get()] += fresh;
    const TapeMeta* meta = fresh ? TapeMeta::find(x) : nullptr;
    return meta ? meta->base : Tensor();
  };
  const auto add_made = [&](const Tensor& x, const View& v, uint32_t known) {
    const int block = block_of(v);
    if (block < 0 || r.program.blocks[size_t(block)].kind == Block::Kind::Outside) return;
    if (const Tensor base = add(x, known); base.defined()) (void)add(base, 1);
  };
  for (size_t i = 0; i < outputs.size(); ++i) add_made(outputs[i], r.program.outputs[i], 2);
  for (const auto& slot : r.grads) add_made(slot.leaf->grad(), slot.end, 1);
  return std::any_of(handles.begin(), handles.end(), [](const auto& x) { return x.first->refs.load() > x.second; }) ||
         std::any_of(tensors.begin(), tensors.end(), [](const auto& s) { return s.first->refs.load() > s.second; });
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
  bool linear = true;
};
/// Walks the part of a graph that a call made; false: it goes on into another one that is no argument's. Aliases of arguments were made before.
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
    } else if (n && seen.insert(n).second) {
      stack.push_back(n);
      ends.linear &= !n->hooks && !dynamic_cast<const FunctionNode*>(n);
    } else if (e.leaf().defined() && seen.insert(e.leaf().impl_or_null()).second) ends.leaves.push_back(e.leaf());
    return true;
  };
  for (const Tensor& y : outputs)
    if (has_live_graph(y, w.first) && !visit(edge_of(y))) return false;
  while (!stack.empty()) {
    Node* n = stack.back();
    stack.pop_back();
    for (uint32_t i = 0; i < n->num_edges; ++i)
      if (n->edges[i] && !visit(n->edges[i])) return false;
  }
  return true;
}

/// Of each result, which leaves and then arguments.
std::vector<std::vector<bool>> reached_by(const Waiting& w, const std::vector<Tensor>& outputs,
                                          const std::vector<size_t>& results, const Ends& all) {
  std::vector<std::vector<bool>> out;
  for (const size_t i : results) {
    Ends own;
    find_ends(w, {outputs[i]}, own);
    std::vector<bool>& reached = out.emplace_back();
    for (const Tensor& leaf : all.leaves)
      reached.push_back(
          std::any_of(own.leaves.begin(), own.leaves.end(), [&](const Tensor& x) { return x.is_same(leaf); }));
    for (const size_t a : all.arguments)
      reached.push_back(std::find(own.arguments.begin(), own.arguments.end(), a) != own.arguments.end());
  }
  return out;
}

/// Why results are not such that a program can make them anew; empty: they are.
std::string strange_results(const Program& p, const std::vector<Tensor>& outputs,
                            const std::vector<size_t>& with_history) {
  std::unordered_set<int> blocks;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool live = std::find(with_history.begin(), with_history.end(), i) != with_history.end();
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

/// A tensor by its memory: the root's block holds it.
View view_in_root(const Tensor& x) {
  View v;
  if (!x.defined() || x.numel() == 0) return v;
  v.kind = View::Kind::Memory, v.dtype = x.dtype(), v.device = x.device();
  v.shape = x.shape(), v.strides = x.strides();
  const Storage* const root = root_of(x.impl().storage.get());
  v.offset = (static_cast<const char*>(x.data_ptr()) - static_cast<const char*>(root->data)) / size_of(x.dtype());
  return v;
}

/// Is destroyed after the nodes of a graph, and hands over the sample. Memory of the graph that is still there is held by somebody else.
class LastNode final : public Node {
 public:
  LastNode(Waiting&& w, std::vector<WeakTensor>&& results, std::vector<detail::Weak<Storage>>&& arguments)
      : w_(std::move(w)), results_(std::move(results)), arguments_(std::move(arguments)) {}
  ~LastNode() override {
    Sample& s = *w_.sample;
    if (s.why.empty()) s.why = kept_outside();
    const std::lock_guard lock(w_.to->mutex);
    w_.to->done.push_back(std::move(w_.sample));
  }
  Grads apply(const Grads&, Needs) override { return Grads(0); }
  void free_saved() override {}

 private:
  std::string kept_outside() const {
    for (const WeakTensor& y : results_)
      if (y.alive()) return "a result is kept outside too: keep what the call returns";
    for (const auto& memory : arguments_)
      if (memory.alive()) return "an argument is kept outside: copy_() it into a tensor that exists before";
    for (const auto& [memory, block] : w_.made)
      if (!w_.sample->forward.moves[size_t(block)] && memory.alive())
        return "a tensor that is made inside is kept outside, but not returned";
    return "";
  }
  Waiting w_;
  std::vector<WeakTensor> results_;               // with the graph behind them
  std::vector<detail::Weak<Storage>> arguments_;  // memory of their aliases
};

/// A gradient by itself, laid out as its result, so that what is made of the result does not change the program.
Tensor seed_of(const Tensor& g, const Tensor& y) {
  const Tensor like = empty_like(y);
  if (g.strides() == like.strides()) return g.detach();
  backend(like).copy(context(like), {like, g});
  return like;
}

class WaitingNode final : public Node {
 public:
  WaitingNode(Waiting&& w, std::vector<Tensor>&& roots, std::vector<size_t>&& results, const Ends& ends,
              std::vector<std::vector<bool>>&& reaches)
      : w_(std::move(w)), roots_(std::move(roots)), results_(std::move(results)), arguments_(ends.arguments),
        reaches_(std::move(reaches)), linear_(ends.linear) {
    for (const Tensor& leaf : ends.leaves) leaves_.emplace_back(leaf);
    for (const Tensor& x : w_.arguments) {
      views_.push_back(view_in_root(x));
      const bool there = views_.back().kind == View::Kind::Memory;
      memory_.push_back(there ? detail::Weak(root_of(x.impl().storage.get())) : detail::Weak<Storage>());
    }
    w_.arguments.clear();  // they are the graph's to keep
  }
  ~WaitingNode() override { end(true); }

  Grads apply(const Grads& g, Needs needs) override {
    std::vector<Edge> roots, wanted;
    std::vector<Tensor> seeds;
    bool all = true;
    for (size_t i = 0; i < roots_.size(); ++i)
      if (g[int64_t(i)].defined()) roots.push_back(edge_of(roots_[i])), seeds.push_back(g[int64_t(i)]);
    for (uint32_t i = 0; i < num_edges; ++i) wanted.push_back(edges[i]), all &= needs[int64_t(i)];
    check_arguments();
    if (modes.grad) twice_ = true, give_up("a result is differentiated twice");
    const BackwardOptions options{detail::graph_is_retained() || twice_, modes.grad};  // that other graph leads in here
    std::vector<bool> defined;
    for (const Tensor& x : g) defined.push_back(x.defined());
    if (!defined_.empty() && defined != defined_) give_up("results are differentiated one after the other");
    defined_ = defined;
    std::vector<Tensor> found = modes.grad || modes.recorder || !all || !w_.sample || w_.sample->backward
                                    ? detail::grad_since(w_.first, roots, seeds, wanted, options)
                                    : recorded(g, roots, wanted, options);
    Grads out(int64_t(found.size()));
    for (size_t i = 0; i < found.size(); ++i) out[int64_t(i)] = std::move(found[i]);
    return out;
  }
  /// Other results may have graphs of their own; those know what is freed of them.
  void free_saved() override {
    if (std::find(defined_.begin(), defined_.end(), false) == defined_.end()) freed = true, end(false);
  }

 private:
  void give_up(const char* why) {
    if (w_.sample) w_.sample->why = why, w_.sample->permanent = true;
  }

  /// Of what the graph keeps of them, nobody has written to it.
  void check_arguments() const {
    for (size_t k = 0; k < memory_.size(); ++k)
      if (const auto& [storage, before] = w_.versions[k]; memory_[k].alive() && storage.alive())
        check(storage->version.load() == before,
              "[backward] one of the variables needed for gradient computation has been modified by an inplace "
              "operation: {} {}, an argument of a compiled function, is at version {}; expected version {}",
              views_[k].dtype, views_[k].shape, int64_t(storage->version.load()), int64_t(before));
  }
  std::vector<Tensor> recorded(const Grads& g, std::span<const Edge> roots, std::span<const Edge> wanted,
                               const BackwardOptions& options) {
    Sample& s = *w_.sample;
    std::vector<Tensor> given(g.begin(), g.end()), seeds;
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i].defined()) given[i] = seed_of(given[i], roots_[i]);
    detail::Aliases aliases(given);
    for (const Tensor& x : aliases.tensors)
      if (x.defined()) seeds.push_back(x);
    auto b = std::make_unique<RecordedBackward>();
    Recording recording(inputs_of_backward(aliases.tensors, *b), true);
    std::vector<Tensor> found = detail::grad_since(w_.first, roots, seeds, wanted, options);
    Notes notes;
    Program program = recording.finish(found, &notes);
    find_kept_blocks(program, *b);
    const bool draws = notes.numbers > 0;
    const auto also = [](Reason& to, Reason& from) {
      if (to.empty()) to = std::move(from);
    };
    also(s.notes.unseen, notes.unseen), also(s.notes.taken, notes.taken), also(s.notes.refused, notes.refused);
    s.notes.reseeded |= notes.reseeded;
    b->program = keep(std::move(program), std::move(notes));
    const Recorded& f = s.forward;  // masks are drawn again from forward's numbers
    b->program.seed = f.seed, b->program.offset = f.offset, b->program.numbers = f.numbers;
    b->results = results_, b->arguments = arguments_, b->reaches = reaches_, b->linear = linear_;
    for (const WeakTensor& leaf : leaves_) b->leaves.emplace_back(leaf.lock());
    seeds = aliases.tensors;  // two handles each, as are_kept() expects
    if (draws) s.why = "backward draws random numbers of its own";
    else if (aliases.are_kept(found)) s.why = "a gradient of a result is kept outside, by a hook";
    else if (gives_outside(*b)) s.why = "backward gives a tensor from outside as a gradient: clone() it";
    s.backward = std::move(b);
    for (Tensor& x : found) x = aliases.unaliased(x);
    return found;
  }

  static bool gives_outside(const RecordedBackward& b) {
    const Program& p = b.program.program;
    return std::any_of(p.outputs.begin(), p.outputs.end(), [&](const View& v) {
      const int block = block_of(v);
      return block >= 0 && p.blocks[size_t(block)].kind == Block::Kind::Outside && !b.program.moves[size_t(block)];
    });
  }

  /// Gradients of the results, and the arguments that the graph keeps: two of them may lie in the same memory.
  std::vector<Tensor> inputs_of_backward(const std::vector<Tensor>& seeds, RecordedBackward& b) const {
    std::vector<Tensor> inputs = seeds;
    for (size_t k = 0; k < memory_.size(); ++k) {
      if (!memory_[k].lock()) continue;
      b.kept_arguments.push_back(k);
      const View& v = views_[k];
      inputs.push_back(tensor_in(v, StoragePtr(memory_[k].get()), v.offset));
    }
    return inputs;
  }
  /// What forward left becomes inputs too.
  void find_kept_blocks(Program& p, RecordedBackward& b) const {
    for (const auto& [memory, made] : w_.made)
      for (size_t i = 0; i < p.blocks.size(); ++i)
        if (p.blocks[i].kind == Block::Kind::Outside && p.blocks[i].memory.get() == memory.get())
          b.kept_blocks.push_back(made), p.inputs.push_back(all_of(p, int(i)));
  }

  void end(bool dying) {
    Node* last = nullptr;
    if (w_.sample && (w_.sample->backward || !w_.sample->why.empty())) {
      std::vector<WeakTensor> results;
      for (const Tensor& y : roots_) results.emplace_back(y);
      last = NodeBuilder::make<LastNode>("compiled", {}, std::move(w_), std::move(results), std::move(memory_));
    }
    if (last && dying) last->release();  // of nodes that die, those that were let go of last are the first
    roots_.clear();
    if (last && !dying) last->release();
  }

  Waiting w_;
  std::vector<Tensor> roots_;    // results with the graph behind them
  std::vector<size_t> results_;  // which ones of the call's
  std::vector<WeakTensor> leaves_;
  std::vector<size_t> arguments_;
  std::vector<std::vector<bool>> reaches_;
  bool linear_;
  std::vector<detail::Weak<Storage>> memory_;  // of arguments' aliases
  std::vector<View> views_;
  std::vector<bool> defined_;  // gradients, in the last backward
  bool twice_ = false;         // there is a graph of this one's gradients
};

/// Is there what the graph cannot be cut off from?
std::string strange_graph(const Waiting& w, const std::vector<Tensor>& outputs, const std::vector<size_t>& results,
                          const Ends& ends) {
  for (const size_t i : results)
    if (const TapeMeta* meta = TapeMeta::find(outputs[i]); meta && meta->retained)
      return "retain_grad() of a result: call it on what the function returns";
  for (const Tensor& leaf : ends.leaves)
    for (const auto& [memory, block] : w.made)
      if (memory.get() == root_of(leaf.impl().storage.get())) return "a leaf that is made inside is differentiated";
  return "";
}

}  // namespace

void hand_out_kept(Sample& s) {
  Recorded& f = s.forward;
  for (size_t i = 0; i < f.program.blocks.size(); ++i) {
    Block& b = f.program.blocks[i];
    if (b.kind != Block::Kind::Outside && b.death < 0 && !f.moves[i]) b.death = int(f.program.calls.size());
  }
  auto next = f.program.outputs.begin() + int64_t(s.returned.size());
  for (const int block : s.backward->kept_blocks) {
    f.program.blocks[size_t(block)].death = -1, f.moves[size_t(block)] = true;
    next = f.program.outputs.insert(next, all_of(f.program, block)) + 1;
  }
}

bool tie_waiting(Waiting&& w, std::vector<Tensor>& outputs, std::string& why) {
  std::vector<size_t> results = w.sample->with_history;
  Ends ends;
  why = strange_results(w.sample->forward.program, outputs, results);
  if (why.empty() && !find_ends(w, outputs, ends))
    why = "a tensor from outside has a history that is not the function's: pass it as an argument";
  if (why.empty()) why = strange_graph(w, outputs, results, ends);
  if (!why.empty()) return false;
  auto reaches = reached_by(w, outputs, results, ends);
  std::vector<Tensor> roots, inputs = ends.leaves;
  for (const size_t i : results) roots.push_back(outputs[i]), outputs[i] = outputs[i].detach();
  for (const size_t i : ends.arguments) inputs.push_back(w.arguments[i]);
  std::vector<Tensor> tied;
  for (const size_t i : results) tied.push_back(outputs[i]);
  tie_outputs(NodeBuilder::make<WaitingNode>("compiled", std::span<const Tensor>(inputs), std::move(w),
                                             std::move(roots), std::move(results), ends, std::move(reaches)),
              tied);
  return true;
}

bool misses_gradients(const Sample& a, const Sample& b) {
  if (!a.backward || !b.backward || !a.backward->linear || a.with_history != b.with_history ||
      !difference(a.forward, b.forward).empty())
    return false;
  bool missing = false, more = false;
  for (size_t i = 0; i < a.with_history.size(); ++i) {
    const bool before = a.backward->program.program.inputs[i].kind == View::Kind::Memory,
               now = b.backward->program.program.inputs[i].kind == View::Kind::Memory;
    missing |= before && !now, more |= now && !before;
  }
  return missing && !more;
}

Reason difference(const Sample& a, const Sample& b) {
  if (Reason why = difference(a.forward, b.forward); !why.empty()) return why;
  if (a.with_history != b.with_history) return "other results have a history than before";
  if (!a.backward || !b.backward) return "";
  const RecordedBackward &x = *a.backward, &y = *b.backward;
  const auto same_leaf = [](const WeakTensor& l, const WeakTensor& m) { return l->is_same(*m); };
  if (x.results != y.results || x.arguments != y.arguments ||
      !std::equal(x.leaves.begin(), x.leaves.end(), y.leaves.begin(), y.leaves.end(), same_leaf))
    return "other gradients than before";
  if (Reason why = difference(x.program, y.program); !why.empty()) return "backward: " + why;
  const bool same = x.kept_arguments == y.kept_arguments && x.kept_blocks == y.kept_blocks;
  return same ? "" : "other values are kept for backward than before";
}

}  // namespace tapir::inline v0::ir
