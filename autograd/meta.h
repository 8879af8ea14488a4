#pragma once
#include <memory>
#include <vector>

#include "../core/allocator.h"
#include "../core/tensor.h"
#include "node.h"

namespace tapir::inline v0 {

struct GradHookList {
  struct Item {
    int64_t id;
    uint32_t output;
    std::shared_ptr<GradHook> hook;
  };
  std::vector<Item> items;
  /// The gradient after the hooks of that output, in the order they were added. A hook may add and remove hooks.
  Tensor run(Tensor grad, uint32_t output) const;
};

/// What the tape knows of one tensor: its producer, or, for a leaf, its gradient; and, for a view, its base.
struct TapeMeta final : AutogradMeta {
  Edge grad_fn;  // to the producing node, never to a leaf
  Tensor grad;
  std::unique_ptr<GradHookList> hooks;       // of a leaf; a result's stand at its node
  std::unique_ptr<GradHookList> post_hooks;  // of a leaf, after accumulation
  std::shared_ptr<Tensor> retained;          // retain_grad() of a result: the hook at the node writes here
  Tensor base;                               // of a view: never a view itself
  uint32_t view_version = 0;                 // of the storage, when grad_fn was last right
  bool no_grad_view = false;                 // made under NoGrad

  static void* operator new(size_t bytes) { return pool_allocate(bytes); }
  static void operator delete(void* p, size_t bytes) { pool_release(p, bytes); }
  static TapeMeta& of(const Tensor& x) {
    if (TapeMeta* known = find(x)) return *known;
    AutogradMeta *none = nullptr, *made = new TapeMeta;
    if (x.impl().autograd.compare_exchange_strong(none, made, std::memory_order_acq_rel))
      return static_cast<TapeMeta&>(*made);
    delete made;  // another thread was first
    return static_cast<TapeMeta&>(*none);
  }
  static TapeMeta* find(const Tensor& x) {
    return static_cast<TapeMeta*>(x.impl().autograd.load(std::memory_order_acquire));
  }
};

/// Adds g to the leaf's gradient: the first is taken over where nobody shares it, later ones are added in place.
void accumulate_grad(const Tensor& leaf, Tensor g, bool create_graph);

}  // namespace tapir::inline v0
