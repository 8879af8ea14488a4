#pragma once
// Note [Recording]
// The last line of an operation is
//     return record("softmax", y, {x}, save(y), [dim](const Tensor& g, const Tensor& y) { return Grads{...}; });
// - The inputs are those whose gradients the closure returns, in that order; numbers and absent tensors are allowed.
// - save(...) is the only way for a tensor into the closure: what the closure captures must be trivially destructible.
// - A value that only some inputs' gradients need is saved under that condition, save(needed_by(1, x), needed_by(0, w)): where those
//   inputs want none it is not kept, and the closure, which asks `needs` before it uses a value, gets an undefined one.
// - The closure may take `Needs needs` first. It takes `const Tensor& g` for one output, `const Grads& g` for several, then
//   the saved values. It never un-broadcasts: the engine sums gradients to the shape of the input.
// - An operation in place records with y being its first input itself. What is saved of it, or of another operand in its memory, is the
//   value after the write; where the gradient needs the old one, save what old_value() (ops/front.h) gave before.
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../core/allocator.h"
#include "../core/modes.h"
#include "../core/profiler.h"
#include "../core/tensor.h"
#include "node.h"

namespace tapir::inline v0 {

/// The inputs of an operation, by reference: {x, w, bias} or a span of tensors.
class Inputs {
 public:
  struct Ref {
    const Tensor* tensor;
    Ref(const Tensor& t) : tensor(&t) {}
    Ref(const Operand& o) : tensor(&o.tensor_or_undefined()) {}
  };
  Inputs(std::initializer_list<Ref> list) : size_(int64_t(list.size())) { refs_ = list.begin(); }
  Inputs(std::span<const Tensor> list) : size_(int64_t(list.size())) { tensors_ = list.data(); }
  int64_t size() const { return size_; }
  const Tensor& operator[](int64_t i) const { return refs_ ? *refs_[i].tensor : tensors_[i]; }

 private:
  const Ref* refs_ = nullptr;
  const Tensor* tensors_ = nullptr;
  int64_t size_;
};

/// A view takes over the history of its base where that was written in place. Does it want a gradient now?
bool refresh_view(const Tensor& x);

/// Will an operation of these inputs be recorded now?
inline bool wants_grad(const Inputs& inputs) {
  if (!modes.grad) return false;
  for (int64_t i = 0; i < inputs.size(); ++i)
    if (const TensorImpl* p = inputs[i].impl_or_null(); p && (p->requires_grad || (p->view && refresh_view(inputs[i]))))
      return true;
  return false;
}

/// Bit i: input i wants a gradient (of the first 64). For inputs of which wants_grad() is true.
uint64_t wanted_bits(const Inputs& inputs);

/// A value that the gradients of some inputs need: of input `i`, or of two.
template <class T> struct NeededBy {
  uint64_t inputs;
  const T& value;
};
template <class T> NeededBy<T> needed_by(int64_t i, const T& value) { return {uint64_t(1) << i, value}; }
template <class T> NeededBy<T> needed_by(int64_t i, int64_t j, const T& value) {
  return {uint64_t(1) << i | uint64_t(1) << j, value};
}

/// References to what a gradient needs: tensors, operands that may be numbers, or such under a condition.
template <class... S> struct Save { std::tuple<const S&...> values; };
template <class... S> Save<S...> save(const S&... values) { return {{values...}}; }

namespace detail {

template <class T> struct SavedSlot;  // how one argument of save() is kept
template <> struct SavedSlot<Tensor> {
  SavedTensor held;
  SavedSlot(const Tensor& t, std::span<const Tensor> outputs, uint64_t) : held(t, outputs) {}
  SavedSlot() = default;
  Tensor unpack(Node* self) const { return held.unpack(self); }
  void reset() { held.reset(); }
};
struct UnpackedOperand {
  Tensor tensor;
  Scalar scalar;
  operator Operand() const { return tensor.defined() ? Operand(tensor) : Operand(scalar); }
};
template <> struct SavedSlot<Operand> {
  SavedTensor held;
  Scalar scalar;
  SavedSlot(const Operand& o, std::span<const Tensor> outputs, uint64_t)
      : held(o.tensor_or_undefined(), outputs), scalar(o.scalar()) {}
  SavedSlot() = default;
  UnpackedOperand unpack(Node* self) const { return {held.unpack(self), scalar}; }
  void reset() { held.reset(); }
};
template <class T> struct SavedSlot<NeededBy<T>> : SavedSlot<T> {
  SavedSlot(const NeededBy<T>& v, std::span<const Tensor> outputs, uint64_t wanted)
      : SavedSlot<T>(v.inputs & wanted ? SavedSlot<T>(v.value, outputs, wanted) : SavedSlot<T>()) {}
};

template <class F, class... S> class OpNode final : public Node {
 public:
  OpNode(const F& f, const Save<S...>& saved, std::span<const Tensor> outputs, uint64_t wanted)
      : f_(f),
        saved_(std::apply([&](auto&... v) { return std::tuple<SavedSlot<S>...>{SavedSlot<S>(v, outputs, wanted)...}; },
                          saved.values)) {}
  Grads apply(const Grads& g, Needs needs) override {
    return std::apply(
        [&](const SavedSlot<S>&... s) -> Grads {
          auto values = std::tuple{s.unpack(this)...};
          return std::apply([&](auto&... v) -> Grads { return call(g, needs, v...); }, values);
        },
        saved_);
  }
  void free_saved() override {
    std::apply([](auto&... s) { (s.reset(), ...); }, saved_);
    if constexpr (sizeof...(S) > 0) freed = true;
  }

 private:
  template <class... A> Grads call(const Grads& g, Needs needs, const A&... a) {
    if constexpr (std::is_invocable_v<F&, Needs, const Grads&, const A&...> &&
                  !std::is_invocable_v<F&, Needs, const Tensor&, const A&...>)
      return f_(needs, g, a...);
    else if constexpr (std::is_invocable_v<F&, const Grads&, const A&...> &&
                       !std::is_invocable_v<F&, const Tensor&, const A&...>)
      return f_(g, a...);
    else if constexpr (std::is_invocable_v<F&, Needs, const Tensor&, const A&...>) return f_(needs, g[0], a...);
    else return f_(g[0], a...);
  }
  F f_;
  std::tuple<SavedSlot<S>...> saved_;
};

}  // namespace detail

/// An operation that a profiler's recording writes down.
void profile_operation(const char* name, const Inputs& inputs);
inline void note_operation(const char* name, const Inputs& inputs) {
  if (profiler::is_on()) [[unlikely]]
    profile_operation(name, inputs);
}

/// Makes a node with its edges in one block and ties outputs to it.
struct NodeBuilder {
  template <class N, class... A> static N* make(const char* name, const Inputs& inputs, A&&... args) {
    const size_t at = (sizeof(N) + alignof(Edge) - 1) / alignof(Edge) * alignof(Edge);
    const size_t bytes = at + sizeof(Edge) * size_t(inputs.size());
    void* block = pool_allocate(bytes);
    N* node;
    try {
      node = new (block) N(std::forward<A>(args)...);
    } catch (...) {
      pool_release(block, bytes);
      throw;
    }
    node->block_bytes_ = uint32_t(bytes);
    node->name = name;
    attach(node, reinterpret_cast<Edge*>(static_cast<char*>(block) + at), inputs);
    return node;
  }
  static void free_block(Node* node) noexcept;
  static void attach(Node* node, Edge* edges, const Inputs& inputs);
};

/// y is what `producer` made.
void set_producer(const Edge& producer, const Tensor& y);
/// y becomes output 0 of node (adopted).
void tie_output(Node* node, const Tensor& y);
/// The same of an operation in place: y, its first input, gets another history, as does the base whose view y is.
void tie_in_place(Node* node, const Tensor& y, const Inputs& inputs);
void tie_outputs(Node* node, std::span<const Tensor> outputs);
/// y, a view of x, remembers where it came from.
void tie_view(const Tensor& y, const Tensor& x);
/// Counts one write to y's memory.
inline void bump_version(const Tensor& y) { y.impl().storage->version.fetch_add(1, std::memory_order_relaxed); }

/// ValueError where x's memory may only be read (it was imported so).
inline void check_writable(const char* op, const Tensor& x) {
  check(!x.impl().storage->read_only, "[{}] expected memory that may be written, got read-only memory ({}); clone() it",
        op, x);
}

/// Before an operation writes to `self` in place: ValueError for read-only memory, leaves that want gradients, overlapping memory, and views
/// that may not be written. `op`: "add_".
void check_inplace(const char* op, const Tensor& self, bool will_record);

/// Records y = op(inputs), unless y is of an integer dtype: it has no gradient. See Note [Recording].
template <class F, class... S>
Tensor record(const char* name, Tensor y, const Inputs& inputs, const Save<S...>& saved, const F& f) {
  static_assert(std::is_trivially_destructible_v<F>,
                "a gradient closure captures plain values only: tensors go through save(...)");
  note_operation(name, inputs);
  const bool in_place = inputs.size() > 0 && inputs[0].is_same(y);
  if (in_place) bump_version(y);
  if (!wants_grad(inputs) || !is_floating(y.dtype())) return y;
  Node* node =
      NodeBuilder::make<detail::OpNode<F, S...>>(name, inputs, f, saved, std::span(&y, 1), wanted_bits(inputs));
  if (in_place) tie_in_place(node, y, inputs);
  else tie_output(node, y);
  return y;
}
template <class F> Tensor record(const char* name, Tensor y, const Inputs& inputs, const F& f) {
  return record(name, std::move(y), inputs, Save<>{}, f);
}
/// Several outputs at once; the closure takes `const Grads& g`. Outputs of integer dtype get no gradient.
/// Saving an output: pass the same handle that stands in `outputs`.
template <class F, class... S> void record_outputs(const char* name, std::span<const Tensor> outputs,
                                                   const Inputs& inputs, const Save<S...>& saved, const F& f) {
  static_assert(std::is_trivially_destructible_v<F>,
                "a gradient closure captures plain values only: tensors go through save(...)");
  note_operation(name, inputs);
  if (!wants_grad(inputs)) return;
  tie_outputs(NodeBuilder::make<detail::OpNode<F, S...>>(name, inputs, f, saved, outputs, wanted_bits(inputs)),
              outputs);
}
/// Records y = alias(x, ...), a view of x: writes to either in place are seen by both histories.
template <class F> Tensor record_view(const char* name, Tensor y, const Tensor& x, const F& f) {
  static_assert(std::is_trivially_destructible_v<F>, "a gradient closure captures plain values only");
  note_operation(name, {x});
  if (modes.inference) return y;
  tie_view(y, x);
  if (!wants_grad({x})) return y;
  tie_output(NodeBuilder::make<detail::OpNode<F>>(name, {x}, f, Save<>{}, std::span(&y, 1), 1), y);
  return y;
}

}  // namespace tapir::inline v0
