#include "engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory_resource>
#include <mutex>
#include <optional>

#include "../core/backend.h"
#include "../core/layout.h"
#include "../core/recorder.h"
#include "anomaly.h"
#include "arith.h"
#include "final_callback.h"
#include "meta.h"
#include "part.h"
#include "record.h"

namespace tapir::inline v0 {

Tensor GradHookList::run(Tensor grad, uint32_t output) const {
  const std::vector<Item> now = items;
  for (const Item& item : now) {
    if (item.output != output) continue;
    Tensor replaced = item.hook->call(grad);
    if (!replaced.defined()) continue;
    check(replaced.shape() == grad.shape() && replaced.dtype() == grad.dtype() && replaced.device() == grad.device(),
          "[hook] expected a gradient of {}, got {}", grad, replaced);
    grad = std::move(replaced);
  }
  return grad;
}

namespace {

bool nobody_shares(const Tensor& g) {
  return g.impl().refs.load() == 1 && g.impl().storage.unique() && !g.impl().storage->read_only;
}

/// Adds b to a, in a's memory.
void add_in_place(const Tensor& a, const Tensor& b) {
  backend(a).binary(context(a), {a, a, b, {BinaryOp::Add}});
  bump_version(a);
}

constexpr int kMostPasses = 100;               // each takes some KB of the stack
constinit thread_local int passes = 0;         // that run in this thread, one inside another
constinit thread_local bool retained = false;  // is the graph, by the backward pass that runs in this thread

/// returns_part(): which positions of an input's gradient a node returned.
struct Part {
  int64_t dim = 0, start = 0, step = 1;
  /// Does a gradient of shape `part` lie so in one of shape `whole`?
  bool fits(const Shape& part, const Shape& whole) const {
    bool same = part.size() == whole.size();
    for (int64_t d = 0; same && d < part.size(); ++d)
      same = d == dim ? part[d] == 0 || start + (part[d] - 1) * step < whole[d] : part[d] == whole[d];
    return same;
  }
  /// These positions, `count` of them.
  TensorView of(const Tensor& whole, int64_t count) const {
    TensorView v = whole;
    v.data = v.as<char>() + start * v.strides[dim] * size_of(v.dtype);
    v.sizes[dim] = count, v.strides[dim] *= step;
    return v;
  }
};
constinit thread_local std::optional<Part>* returned_part =
    nullptr;  // of the node that runs; null: the pass is recorded, or none runs

// Note [Gradients of parts]
// The gradient of narrow(), split(), select() and the like is zero but for a part. Such parts are written into one tensor, and what no part
// has covered when the gradient is wanted is filled with zeros. A tensor of zeros for each part, and their sum, would take time and memory
// that grow with the square of the parts: chunk(), unbind(), or a loop over x[t]. Passes that are recorded do that still.
/// Which positions along one dimension of a gradient have been written so far.
struct Written {
  int64_t dim = 0;
  std::vector<std::pair<int64_t, int64_t>> ranges;  // sorted, apart
  /// False, and nothing done, where one of the positions has been written before, or where there are many gaps to fill.
  bool add(int64_t begin, int64_t end) {
    constexpr size_t kMost = 32;
    auto next = std::lower_bound(ranges.begin(), ranges.end(), std::pair(begin, begin));
    if ((next != ranges.end() && next->first < end) || (next != ranges.begin() && std::prev(next)->second > begin))
      return false;
    if (ranges.size() >= kMost) return false;
    next = ranges.insert(next, {begin, end});
    if (auto after = std::next(next); after != ranges.end() && after->first == end)
      next->second = after->second, ranges.erase(after);
    if (next != ranges.begin() && std::prev(next)->second == begin)
      std::prev(next)->second = next->second, ranges.erase(next);
    return true;
  }
};

/// One node or leaf in this backward pass.
struct Task {
  Node* node = nullptr;  // null for a leaf
  Tensor leaf;
  int64_t pending = 0;  // edges into it whose gradient is still to come
  bool needed = true;   // wanted, or on the way to what is: gradients flow into it
  bool runs = true;     // one of its inputs is needed
  int64_t wanted = -1;  // the first wanted edge that leads here; Engine::next_wanted_ has the others
  Grads grads;          // of its outputs
  std::unique_ptr<std::vector<std::pair<uint32_t, Written>>> parts;  // of outputs whose gradient is not whole yet
};

/// Tasks by the address of their node or leaf: an open hash table, since it is asked once for each edge.
class TaskMap {
 public:
  explicit TaskMap(std::pmr::memory_resource* memory) : slots_(16, memory), tasks_(memory) { tasks_.reserve(8); }
  Task& operator[](size_t i) { return tasks_[i]; }
  size_t size() const { return tasks_.size(); }
  int64_t find(const void* key) const {
    for (size_t at = hash(key);; ++at) {
      const Slot& s = slots_[at & (slots_.size() - 1)];
      if (s.key == key) return s.task;
      if (!s.key) return -1;
    }
  }
  /// Its position, and whether it is new.
  std::pair<size_t, bool> insert(const void* key) {
    if (2 * tasks_.size() >= slots_.size()) grow();
    for (size_t at = hash(key);; ++at) {
      Slot& s = slots_[at & (slots_.size() - 1)];
      if (s.key == key) return {size_t(s.task), false};
      if (s.key) continue;
      s = {key, int64_t(tasks_.size())};
      tasks_.emplace_back();
      return {tasks_.size() - 1, true};
    }
  }

 private:
  struct Slot {
    const void* key = nullptr;
    int64_t task = 0;
  };
  static size_t hash(const void* key) { return size_t((uint64_t(uintptr_t(key)) >> 4) * 0x9E3779B97F4A7C15u >> 20); }
  void grow() {
    std::pmr::vector<Slot> old(slots_.size() * 2, slots_.get_allocator());
    old.swap(slots_);
    for (const Slot& s : old) {
      if (!s.key) continue;
      size_t at = hash(s.key);
      while (slots_[at & (slots_.size() - 1)].key) ++at;
      slots_[at & (slots_.size() - 1)] = s;
    }
  }
  std::pmr::vector<Slot> slots_;
  std::pmr::vector<Task> tasks_;
};

const void* key_of(const Edge& e) { return e.node() ? static_cast<const void*>(e.node()) : e.leaf().impl_or_null(); }

/// One run over the graph. With `wanted` edges their gradients are collected, else every leaf accumulates.
class Engine {
 public:
  /// Nodes before number `first` are not entered: edges to them are like leaves.
  Engine(const BackwardOptions& options, std::span<const Edge> wanted, uint64_t first = 0)
      : options_(options), wanted_(wanted), next_wanted_(wanted.size(), -1, &memory_), found_(wanted.size()),
        first_(first) {}

  std::vector<Tensor> run(std::span<const Edge> roots, std::span<Tensor> gradients) {
    check(passes < kMostPasses,
          "[backward] expected at most {} backward passes inside one another, got more: does a hook or a custom "
          "backward begin the pass that it is part of?",
          kMostPasses);
    const ScopedMode<int> inside(passes, passes + 1);
    ScopedMode<AutocastRegion*> off(modes.autocast, nullptr);  // gradients run in the dtypes that the forward recorded
    discover(roots);
    if (!wanted_.empty()) find_needed();
    GradMode mode(options_.create_graph);
    const ScopedMode<bool> kept(retained, options_.retain_graph);
    for (size_t i = 0; i < roots.size(); ++i) {
      add_gradient(tasks_[size_t(tasks_.find(key_of(roots[i])))], roots[i], std::move(gradients[i]));
    }
    for (size_t i = 0; i < tasks_.size(); ++i)
      if (tasks_[i].pending == 0) push(i);
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end());
      const size_t at = ready_.back().second;
      ready_.pop_back();
      if (tasks_[at].node) run_node(tasks_[at]);
      else run_leaf(tasks_[at]);
    }
    return std::move(found_);
  }

 private:
  /// Lists every node and leaf below the roots and counts the edges into each.
  void discover(std::span<const Edge> roots) {
    std::pmr::vector<Node*> stack(&memory_);
    auto visit = [&](const Edge& e) {
      const auto [at, fresh] = tasks_.insert(key_of(e));
      Task& t = tasks_[at];
      if (!fresh) return at;
      if (Node* n = e.node()) {
        t.node = n;
        t.grads.resize(n->num_outputs);
        if (n->sequence >= first_) stack.push_back(n);
      } else {
        t.leaf = e.leaf();
        t.grads.resize(1);
      }
      return at;
    };
    for (const Edge& e : roots) visit(e);
    while (!stack.empty()) {
      Node* n = stack.back();
      stack.pop_back();
      for (uint32_t i = 0; i < n->num_edges; ++i) {
        if (!n->edges[i]) continue;
        const size_t at = visit(n->edges[i]);
        ++tasks_[at].pending;
      }
    }
  }

  /// A node runs when an edge of it leads to a wanted input, directly or not. Producers have smaller sequence numbers.
  void find_needed() {
    std::pmr::vector<std::pair<uint64_t, size_t>> order(&memory_);
    order.reserve(tasks_.size());
    for (size_t i = 0; i < tasks_.size(); ++i) {
      tasks_[i].needed = tasks_[i].runs = false;
      order.emplace_back(tasks_[i].node ? tasks_[i].node->sequence : 0, i);
    }
    for (size_t w = 0; w < wanted_.size(); ++w)
      if (const int64_t at = tasks_.find(key_of(wanted_[w])); at >= 0) {
        tasks_[size_t(at)].needed = true;
        next_wanted_[w] = std::exchange(tasks_[size_t(at)].wanted, int64_t(w));
      }
    std::sort(order.begin(), order.end());
    for (auto [sequence, i] : order) {
      Task& t = tasks_[i];
      if (t.node && t.node->sequence < first_) continue;
      for (uint32_t k = 0; t.node && !t.runs && k < t.node->num_edges; ++k)
        if (t.node->edges[k]) t.runs = tasks_[size_t(tasks_.find(key_of(t.node->edges[k])))].needed;
      t.needed |= t.runs;
    }
  }

  void push(size_t at) {
    const Task& t = tasks_[at];
    ready_.emplace_back(t.node ? t.node->sequence : UINT64_MAX,
                        at);  // a leaf is finished at once: its reduction may start
    std::push_heap(ready_.begin(), ready_.end());
  }

  void run_node(Task& task) {
    Node* node = task.node;
    if (task.parts) complete(task);
    Grads grads = std::move(task.grads);
    if (node->sequence < first_) return collect(task, grads);
    bool any = false;
    for (int64_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      any = true;
      if (node->hooks) grads[i] = node->hooks->run(std::move(grads[i]), uint32_t(i));
    }
    collect(task, grads);
    Grads inputs;
    if (any && task.runs) inputs = apply(task, grads);
    for (uint32_t i = 0; i < node->num_edges; ++i) {
      const Edge& e = node->edges[i];
      if (!e) continue;
      const size_t at = size_t(tasks_.find(key_of(e)));
      Task& next = tasks_[at];
      if (int64_t(i) < inputs.size() && inputs[i].defined() && next.needed)
        part_ ? add_part(next, e, *part_, std::move(inputs[i])) : add_gradient(next, e, std::move(inputs[i]));
      if (--next.pending == 0) push(at);
    }
    if (!options_.retain_graph && any && task.runs) node->free_saved();
  }

  Grads apply(Task& task, const Grads& grads) {
    Node* node = task.node;
    if (node->freed) {
      fail(ErrorKind::Value,
           "[backward] trying to backward through the graph a second time: the values saved by {} have been freed. "
           "Specify retain_graph=true when calling backward the first time",
           node->name);
    }
    if (modes.recorder && node->sequence < modes.recorder->first_node) modes.recorder->outer_graph();
    uint64_t bits = 0;
    for (uint32_t i = 0; i < node->num_edges && i < 64; ++i) {
      const Edge& e = node->edges[i];
      if (e && (wanted_.empty() || tasks_[size_t(tasks_.find(key_of(e)))].needed)) bits |= uint64_t(1) << i;
    }
    Grads inputs;
    {
      part_.reset();
      const ScopedMode<std::optional<Part>*> part(returned_part, options_.create_graph ? nullptr : &part_);
      const profiler::Range range(profiler::Kind::Backward, node->name);
      inputs = node->apply(grads, Needs(bits));
    }
    if (inputs.size() != int64_t(node->num_edges)) {
      fail(ErrorKind::Internal, "[{}] returned an incorrect number of gradients (expected {}, got {})", node->name,
           int64_t(node->num_edges), inputs.size());
    }
    if (part_ && node->num_edges != 1)
      fail(ErrorKind::Internal, "[{}] returned a part of a gradient, and has {} inputs", node->name,
           int64_t(node->num_edges));
    if (modes.anomaly) check_for_nan(*node, inputs);
    current_ = node->name;
    return inputs;
  }

  static void check_for_nan(const Node& node, const Grads& inputs) {
    for (int64_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined() || inputs[i].numel() == 0) continue;
      NoGrad guard;
      const Tensor& g = inputs[i];
      Tensor most = empty(Dims::filled(g.dim(), 1), {.dtype = g.dtype(), .device = g.device()});
      backend(g).reduce(context(g), {most, g, {ReduceOp::Max, uint32_t((1u << g.dim()) - 1)}});  // a NaN wins
      if (std::isnan(most.item()))
        fail(ErrorKind::Runtime, "[anomaly] the gradient of {} returned nan values in its output {}{}", node.name, i,
             describe(node.call_site));
    }
  }

  const Shape& shape_of(const Edge& e) const { return e.node() ? e.node()->output(e.index()).shape : e.leaf().shape(); }
  void check_dtype(const Edge& e, const Tensor& g) const {
    const DType dtype = e.node() ? e.node()->output(e.index()).dtype : e.leaf().dtype();
    if (g.dtype() != dtype)
      fail(ErrorKind::Internal, "[{}] returned a gradient of dtype {} for an input of {}", current_, g.dtype(), dtype);
  }
  bool may_write(const Tensor& held) const {
    return !options_.create_graph && nobody_shares(held) && !may_overlap(held.shape(), held.strides());
  }

  /// Adds g to what flows into `to`, summed to its shape.
  void add_gradient(Task& to, const Edge& e, Tensor g) {
    check_dtype(e, g);
    if (!(g.shape() == shape_of(e))) g = sum_to(g, shape_of(e));
    if (to.parts) complete(to);
    Tensor& held = to.grads[e.index()];
    if (!held.defined()) held = std::move(g);
    else if (may_write(held)) add_in_place(held, g);
    else held = add(held, g);
  }

  /// Adds a gradient that is zero but for g, a part of it: Note [Gradients of parts].
  void add_part(Task& to, const Edge& e, const Part& part, Tensor g) {
    check_dtype(e, g);
    check(part.fits(g.shape(), shape_of(e)),
          "[{}] returned a gradient of shape {} for a part of an input of shape {}, which was changed in place",
          current_, g.shape(), shape_of(e));
    Tensor& held = to.grads[e.index()];
    if (!held.defined()) {
      held = empty(shape_of(e), {.dtype = g.dtype(), .device = g.device()});
      if (!to.parts) to.parts = std::make_unique<typename decltype(to.parts)::element_type>();
      to.parts->emplace_back(e.index(), Written{part.dim, {}});
    }
    const int64_t count = g.size(part.dim);
    if (g.numel() == 0) return;
    if (Written* const written = written_of(to, e.index());
        written && written->dim == part.dim && part.step == 1 && written->add(part.start, part.start + count))
      return backend(g).copy(context(g), {part.of(held, count), g});
    if (to.parts) complete(to);
    if (!may_write(held)) held = clone(held, kContiguous);
    const TensorView place = part.of(held, count);
    backend(g).binary(context(g), {place, place, g, {BinaryOp::Add}});
    bump_version(held);
  }
  static Written* written_of(const Task& task, uint32_t output) {
    if (task.parts)
      for (auto& [which, written] : *task.parts)
        if (which == output) return &written;
    return nullptr;
  }
  /// Fills with zeros what no part has covered.
  static void complete(Task& task) {
    for (auto& [output, written] : *task.parts) {
      const Tensor& g = task.grads[output];
      int64_t at = 0;
      const auto fill_to = [&, dim = written.dim](int64_t begin) {
        if (begin > at && g.numel() > 0) backend(g).fill(context(g), {Part{dim, at, 1}.of(g, begin - at), 0});
      };
      for (auto [begin, end] : written.ranges) fill_to(begin), at = end;
      fill_to(g.size(written.dim));
    }
    task.parts.reset();
  }

  void collect(const Task& task, const Grads& grads) {
    for (int64_t w = task.wanted; w >= 0; w = next_wanted_[size_t(w)])
      found_[size_t(w)] = grads[wanted_[size_t(w)].index()];
  }

  void run_leaf(Task& task) {
    if (task.parts) complete(task);
    Tensor g = std::move(task.grads[0]);
    if (!g.defined()) return;
    TapeMeta& meta = TapeMeta::of(task.leaf);
    if (meta.hooks && !first_) g = meta.hooks->run(std::move(g), 0);
    if (!wanted_.empty()) {
      Grads one(std::move(g));
      return collect(task, one);
    }
    {
      const profiler::Range range(profiler::Kind::User, "AccumulateGrad");
      accumulate_grad(task.leaf, std::move(g), options_.create_graph);
    }
    if (meta.post_hooks) meta.post_hooks->run(task.leaf, 0);
  }

  BackwardOptions options_;
  std::span<const Edge> wanted_;
  // Small graphs need no memory but this. It is small, for a hook may run another pass inside of this one.
  alignas(std::max_align_t) std::byte buffer_[2048];
  std::pmr::monotonic_buffer_resource memory_{buffer_, sizeof(buffer_)};
  std::pmr::vector<int64_t> next_wanted_;  // of the same node or leaf; -1: none
  std::vector<Tensor> found_;
  TaskMap tasks_{&memory_};
  std::pmr::vector<std::pair<uint64_t, size_t>> ready_{&memory_};
  const char* current_ = "backward";
  std::optional<Part> part_;  // which the node that ran last returned; none: the whole
  uint64_t first_;
};

/// Where a pass begins, and what it looks for; a few of each need no other memory.
struct Ends {
  alignas(std::max_align_t) std::byte buffer[256];
  std::pmr::monotonic_buffer_resource memory{buffer, sizeof(buffer)};
  std::pmr::vector<Edge> roots{&memory}, wanted{&memory};
  std::pmr::vector<Tensor> seeds{&memory};
  /// Checks what was handed to backward() or grad(), and fills in the ones.
  Ends(const char* op, std::span<const Tensor> outputs, std::span<const Tensor> gradients);
};
Ends::Ends(const char* op, std::span<const Tensor> outputs, std::span<const Tensor> gradients) {
  check(!outputs.empty(), "[{}] expected at least one output, got none", op);
  check(gradients.empty() || gradients.size() == outputs.size(),
        "[{}] expected {} gradients, one for each output, got {}", op, int64_t(outputs.size()),
        int64_t(gradients.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    Edge e = edge_of(y);
    check(bool(e), "[{}] element {} of tensors does not require grad and does not have a grad_fn{}", op, int64_t(i),
          modes.grad ? "" : " (recording is off here: was it made under NoGrad?)");
    Tensor g = gradients.empty() ? Tensor() : gradients[i];
    if (!g.defined()) {
      check(y.numel() == 1, "[{}] grad can be implicitly created only for scalar outputs, got shape {}", op, y.shape());
      g = empty(y.shape(), {.dtype = y.dtype(), .device = y.device()});
      backend(y).fill(context(y), {g, 1});
    }
    check(g.shape() == y.shape() && g.dtype() == y.dtype() && g.device() == y.device(),
          "[{}] invalid gradient at index {} - got {} but expected {}", op, int64_t(i), g, y);
    roots.push_back(std::move(e));
    seeds.push_back(std::move(g));
  }
}

/// Leaves may be shared by threads that run backward on graphs of their own.
std::mutex& mutex_of(const Tensor& leaf) {
  static std::mutex mutexes[64];
  return mutexes[(uintptr_t(leaf.impl_or_null()) >> 6) % 64];
}

}  // namespace

/// A gradient with a history leads back to its leaf, by edges and saved values, and the leaf holds the gradient.
static void warn_of_cycle(const Tensor& gradient) {
  if (!gradient.requires_grad() || detail::warned_of_cycles.exchange(true)) return;
  std::fputs(
      "tapir: warning: [backward] create_graph leaves a gradient in a leaf whose history leads back to that leaf: "
      "neither is freed before "
      "the gradient is dropped (zero_grad(), set_grad({})). grad() returns such gradients and leaves none behind\n",
      stderr);
}

void accumulate_grad(const Tensor& leaf, Tensor g, bool create_graph) {
  std::lock_guard lock(mutex_of(leaf));
  if (modes.recorder) modes.recorder->gradient_changes(leaf, false);
  Tensor& held = TapeMeta::of(leaf).grad;
  if (held.defined()) {
    if (create_graph) return warn_of_cycle(held = add(held, g));
    check_writable("backward", held);
    add_in_place(held, g);
    return;
  }
  // Taken over where nobody shares it and it lies like the leaf, so that an optimizer can walk both in one loop.
  const bool fits = g.strides() == leaf.strides() || (g.is_contiguous() && leaf.is_contiguous());
  if (create_graph) return warn_of_cycle(held = clone(g));
  if (fits && nobody_shares(g) && !g.requires_grad()) {
    held = std::move(g);
    return;
  }
  if (!fits && leaf.dim() > 3) count_layout_conversion();
  held = empty_like(leaf);
  backend(leaf).copy(context(leaf), {held, g});
}

/// What is to be called at the end of the backward() that runs in this thread; null in grad().
static constinit thread_local std::vector<std::pair<void (*)(void*), void*>>* final_callbacks = nullptr;

bool call_after_backward(void (*f)(void*), void* data) {
  if (!final_callbacks) return false;
  const std::pair one(f, data);
  if (std::find(final_callbacks->begin(), final_callbacks->end(), one) == final_callbacks->end())
    final_callbacks->push_back(one);
  return true;
}

void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients, const BackwardOptions& options) {
  const profiler::Range range(profiler::Kind::User, "backward");
  Ends ends("backward", outputs, gradients);
  BackwardOptions o = options;
  o.retain_graph |= o.create_graph;
  std::vector<std::pair<void (*)(void*), void*>> callbacks;
  ScopedMode scope(final_callbacks, &callbacks);
  Engine(o, {}).run(ends.roots, ends.seeds);
  for (size_t i = 0; i < callbacks.size(); ++i) callbacks[i].first(callbacks[i].second);
}

/// A backward pass for each row of the gradients.
static std::vector<Tensor> batched_grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                                        const std::vector<Tensor>& gradients, GradOptions options) {
  check(!gradients.empty() && gradients.size() == outputs.size(),
        "[grad] expected a batch of gradients for each of {} outputs, got {}", int64_t(outputs.size()),
        int64_t(gradients.size()));
  options.is_grads_batched = false;
  const bool retain = options.retain_graph;
  std::vector<std::vector<Tensor>> columns(inputs.size());
  const int64_t rows = gradients[0].defined() && gradients[0].dim() > 0 ? gradients[0].size(0) : 0;
  check(rows > 0, "[grad] expected batched gradients with at least one row, got {}", gradients[0]);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<Tensor> one;
    for (const Tensor& g : gradients) {
      check(g.defined() && g.dim() > 0 && g.size(0) == rows, "[grad] expected batched gradients with {} rows, got {}",
            rows, g);
      one.push_back(select(g, 0, r));
    }
    options.retain_graph = retain || r + 1 < rows;
    auto found = grad(outputs, inputs, one, options);
    for (size_t i = 0; i < found.size(); ++i) columns[i].push_back(std::move(found[i]));
  }
  GradMode mode(options.create_graph);
  std::vector<Tensor> result;
  for (auto& c : columns) result.push_back(c[0].defined() ? stack(std::span<const Tensor>(c), 0) : Tensor());
  return result;
}

std::vector<Tensor> detail::grad_since(uint64_t first, std::span<const Edge> roots, std::span<Tensor> seeds,
                                       std::span<const Edge> wanted, const BackwardOptions& options) {
  return Engine(options, wanted, first).run(roots, seeds);
}
bool detail::graph_is_retained() { return retained; }
bool returns_part(int64_t dim, int64_t start, int64_t step) {
  if (!returned_part) return false;
  *returned_part = Part{dim, start, step};
  return true;
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients, const GradOptions& options) {
  if (options.is_grads_batched) return batched_grad(outputs, inputs, gradients, options);
  const profiler::Range range(profiler::Kind::User, "grad");
  Ends ends("grad", outputs, gradients);
  check(!inputs.empty(), "[grad] expected at least one input, got none");
  for (size_t i = 0; i < inputs.size(); ++i) {
    ends.wanted.push_back(edge_of(inputs[i]));
    check(bool(ends.wanted.back()), "[grad] expected inputs that require grad, input {} ({}) does not", int64_t(i),
          inputs[i]);
  }
  ScopedMode<decltype(final_callbacks)> scope(final_callbacks, nullptr);
  auto found = Engine({options.retain_graph || options.create_graph, options.create_graph}, ends.wanted)
                   .run(ends.roots, ends.seeds);
  for (size_t i = 0; i < found.size(); ++i) {
    check(found[i].defined() || options.allow_unused,
          "[grad] input {} ({}) appears to not have been used in the graph. Set allow_unused if this is desired",
          int64_t(i), inputs[i]);
  }
  return found;
}

}  // namespace tapir::inline v0
