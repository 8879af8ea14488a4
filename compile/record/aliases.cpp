#include "aliases.h"

#include <algorithm>

#include "../../autograd/engine.h"
#include "../../autograd/meta.h"
#include "../../autograd/record.h"
#include "../../ops/shape.h"

namespace tapir::inline v0::detail {
namespace {

/// A tensor like x in that memory.
Tensor in_storage(const Tensor& x, const StoragePtr& storage, int64_t offset) {
  Tensor t(new TensorImpl);
  const TensorImpl& from = x.impl();
  TensorImpl& to = t.impl();
  to.dtype = from.dtype, to.device = from.device, to.storage = storage, to.sizes = from.sizes, to.offset = offset;
  to.strides = from.strides, to.numel = from.numel, to.contiguous = from.contiguous, to.inference = from.inference;
  return t;
}

/// x as a tensor with a storage of its own in the same memory: what shares memory with an argument is not the argument.
Tensor alias_of(const Tensor& x) {
  const Storage& from = *x.impl().storage;
  const StoragePtr storage = adopt_storage(
      from.data, from.bytes, from.device, [](Storage& s) { delete static_cast<StoragePtr*>(s.context); },
      new StoragePtr(x.impl().storage));
  storage->read_only = from.read_only, storage->version = from.version.load(std::memory_order_relaxed);
  return in_storage(x, storage, x.impl().offset);
}

/// y becomes x's value, with x's history.
void continue_history(const Tensor& y, const Tensor& x) {
  const auto same = [](const Tensor& g) { return Grads{g}; };
  Node* node =
      NodeBuilder::make<OpNode<decltype(same)>>("argument", {x}, same, Save<>{}, std::span<const Tensor>(&y, 1), 1);
  tie_in_place(node, y, {y});
}

/// The arguments as they are recorded: aliased, for the function may have captured the very same tensor.
std::vector<Tensor> recorded_inputs(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> out = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    if (!x.defined() || is_known_leaf(x) || !out[i].is_same(x)) continue;
    const Tensor alias = alias_of(x);
    if (x.requires_grad()) continue_history(alias, x);
    for (size_t j = i; j < inputs.size(); ++j)
      if (inputs[j].is_same(x)) out[j] = alias;
  }
  return out;
}

/// Rises where a tensor in that memory gets another geometry or other hooks.
uint32_t handles_of(const Tensor& x) { return x.defined() ? x.impl().storage->handles.load() : 0; }

}  // namespace

bool share_memory(const std::vector<Tensor>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      const Tensor &x = arguments[i], &y = arguments[k];
      if (x.defined() && y.defined() && !x.is_same(y) && x.numel() > 0 && y.numel() > 0 &&
          root_of(x.impl().storage.get()) == root_of(y.impl().storage.get()))
        return true;
    }
  return false;
}

template <class F> void Aliases::each(F f) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t first = 0;
    while (!tensors[first].is_same(tensors[i])) ++first;
    if (first == i && !tensors[i].is_same(arguments_[i])) f(tensors[i], arguments_[i], i);
  }
}
Aliases::Aliases(const std::vector<Tensor>& arguments) : tensors(recorded_inputs(arguments)), arguments_(arguments) {
  for (const Tensor& x : tensors) {
    versions_.push_back(x.defined() ? x.version() : 0), handles_.push_back(handles_of(x));
    nodes_.push_back(is_known_leaf(x) ? nullptr : edge_of(x).node());
  }
}
Aliases::~Aliases() {
  each([&](const Tensor& alias, const Tensor& x, size_t i) {
    x.impl().storage->version.fetch_add(alias.version() - versions_[i], std::memory_order_relaxed);
  });
}

std::vector<std::pair<Weak<Storage>, uint32_t>> Aliases::versions() const {
  std::vector<std::pair<Weak<Storage>, uint32_t>> out;
  for (const Tensor& x : arguments_) {
    if (!x.defined()) {
      out.emplace_back();
      continue;
    }
    uint32_t version = x.version();
    each([&](const Tensor& alias, const Tensor& other, size_t i) {
      if (other.impl().storage.get() == x.impl().storage.get()) version += alias.version() - versions_[i];
    });
    out.emplace_back(Weak(x.impl().storage.get()), version);
  }
  return out;
}

bool Aliases::hand_over() {
  bool changed = false;
  for (size_t i = 0; i < tensors.size(); ++i)  // of leaves, which have no alias
    changed |= tensors[i].is_same(arguments_[i]) && handles_of(tensors[i]) != handles_[i];
  each([&](const Tensor& alias, const Tensor& x, size_t i) {
    const TensorImpl& from = alias.impl();
    TensorImpl& to = x.impl();
    const TapeMeta* meta = TapeMeta::find(alias);
    const bool same_history = from.requires_grad ? edge_of(alias).node() == nodes_[i] && nodes_[i] : !nodes_[i];
    if (meta && meta->retained) x.retain_grad();
    if (same_history && nodes_[i] && nodes_[i]->hooks) {  // x's, whatever else reads it; and of this call alone
      changed = true;
      const Edge own = edge_of(x);
      if (!own.node()->hooks) own.node()->hooks = new GradHookList;
      for (GradHookList::Item& hook : std::exchange(nodes_[i]->hooks->items, {}))
        own.node()->hooks->items.push_back({hook.id, own.index(), std::move(hook.hook)});
    }
    if (from.sizes == to.sizes && from.strides == to.strides && from.offset == to.offset && same_history) return;
    changed = true;
    to.sizes = from.sizes, to.strides = from.strides, to.offset = from.offset;
    to.numel = from.numel, to.contiguous = from.contiguous;
    if (!from.requires_grad || same_history) return;
    if (alias.is_leaf()) {
      Tensor(x).requires_grad_(), x.set_grad(alias.grad());
      alias.register_post_accumulate_grad_hook([x](const Tensor& leaf) {
        accumulate_grad(x, leaf.grad(), false);
        leaf.set_grad({});
      });
    } else if (nodes_[i] || to.autograd.load()) continue_history(x, alias);
    else to.autograd = alias.impl().autograd.exchange(nullptr), to.requires_grad = true;
  });
  return changed;
}

Tensor Aliases::unaliased(Tensor& y) const {
  if (!y.defined()) return y;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_same(arguments_[i])) continue;
    if (tensors[i].is_same(y)) return arguments_[i];
    if (tensors[i].impl().storage.get() != y.impl().storage.get()) continue;
    if (y.requires_grad()) {  // a view of it, as far as writes go
      EnableGrad guard;
      return as_strided(arguments_[i], y.shape(), y.strides(), y.storage_offset());
    }
    const Tensor there = in_storage(y, arguments_[i].impl().storage, y.storage_offset());
    y = in_storage(y, y.impl().storage, y.storage_offset());
    return there;
  }
  return y;
}

bool Aliases::are_kept(const std::vector<Tensor>& outputs) const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    if (x.is_same(arguments_[i])) continue;
    uint32_t handles = 0, views = 1;
    for (const Tensor& other : tensors) handles += other.is_same(x) ? 2 : 0;
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Tensor& y = outputs[k];
      const bool first =
          std::none_of(outputs.begin(), outputs.begin() + int64_t(k), [&](auto& z) { return z.is_same(y); });
      const TapeMeta* meta = y.defined() && first ? TapeMeta::find(y) : nullptr;
      handles += y.is_same(x) || (meta && meta->base.is_same(x));  // a view holds what it is a view of
      views += first && y.defined() && !y.is_same(x) && y.impl().storage.get() == x.impl().storage.get();
    }
    if (x.impl().refs.load() > handles || x.impl().storage->refs.load() > views) return true;
  }
  return false;
}

}  // namespace tapir::inline v0::detail
