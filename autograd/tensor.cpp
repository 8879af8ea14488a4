// The part of Tensor that knows the tape.
#include "../core/tensor.h"

#include <algorithm>

#include "../core/recorder.h"
#include "arith.h"
#include "engine.h"
#include "meta.h"
#include "record.h"

namespace tapir::inline v0 {

static bool has_producer(const Tensor& x) {
  if (x.impl().view) refresh_view(x);
  const TapeMeta* meta = TapeMeta::find(x);
  return meta && meta->grad_fn;
}

Tensor& Tensor::requires_grad_(bool on) const {
  TensorImpl& p = impl();
  if (on) {
    check(is_floating(p.dtype), "[requires_grad_] only tensors of floating point dtype can require gradients, got {}",
          p.dtype);
    check(!p.inference, "[requires_grad_] expected a tensor that can be recorded, got one made under InferenceMode");
  } else
    check(!has_producer(*this),
          "[requires_grad_] you can only change requires_grad flags of leaf variables; use detach()");
  const bool produced = has_producer(*this);
  if (modes.recorder) modes.recorder->leaf_changes(*p.storage);
  p.requires_grad = on || produced;
  p.set_marked(on && !produced);
  return const_cast<Tensor&>(*this);
}

bool Tensor::view_requires_grad() const { return refresh_view(*this); }

bool Tensor::is_leaf() const { return !has_producer(*this); }

const Tensor& Tensor::grad() const {
  static const Tensor none;
  const TapeMeta* meta = TapeMeta::find(*this);
  if (modes.recorder) modes.recorder->gradient_asked(*this, meta ? meta->grad : none);
  if (!meta) return none;
  return meta->retained ? *meta->retained : meta->grad;
}

void Tensor::set_grad(const Tensor& g) const {
  if (modes.recorder) modes.recorder->gradient_changes(*this, true);
  if (g.defined()) {
    check(g.shape() == shape() && g.dtype() == dtype() && g.device() == device(),
          "[set_grad] expected a gradient like the tensor, {}, got {}", *this, g);
    check(!may_overlap(g.shape(), g.strides()),
          "[set_grad] expected a gradient whose elements have places of their own, got strides {} for shape {} (an "
          "expanded tensor: clone() it)",
          g.strides(), g.shape());
    check(!g.is_same(*this), "[set_grad] expected another tensor as the gradient, got {} itself: detach() it", g);
  } else if (!TapeMeta::find(*this)) return;
  TapeMeta& meta = TapeMeta::of(*this);
  (meta.retained ? *meta.retained : meta.grad) = g;
}

std::string_view Tensor::grad_fn() const {
  return has_producer(*this) ? TapeMeta::find(*this)->grad_fn.node()->name : "";
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  tapir::backward({this, 1}, {&gradient, 1}, {retain_graph, create_graph});
}

Tensor Tensor::detach() const { return alias(*this, shape(), strides(), storage_offset()); }

Tensor& Tensor::detach_() const {
  TensorImpl& p = impl();
  check(!p.view, "[detach_] can't detach views in place; use detach()");
  if (TapeMeta* meta = TapeMeta::find(*this)) meta->grad_fn.reset();
  if (modes.recorder) modes.recorder->leaf_changes(*p.storage);
  p.requires_grad = false;
  p.set_marked(false);
  return const_cast<Tensor&>(*this);
}

/// A program that was recorded before knows nothing of a leaf's hooks as they are now.
static void hooks_changed(const Tensor& x) { x.impl().storage->handles.fetch_add(1, std::memory_order_relaxed); }

static GradHookList& hooks_of(const Tensor& x, uint32_t& output) {
  TapeMeta& meta = TapeMeta::of(x);
  output = meta.grad_fn.index();
  if (Node* n = meta.grad_fn.node()) {
    if (!n->hooks) n->hooks = new GradHookList;
    return *n->hooks;
  }
  if (!meta.hooks) meta.hooks = std::make_unique<GradHookList>();
  return *meta.hooks;
}

int64_t Tensor::add_hook(GradHook* adopted, bool post_accumulate) const {
  static std::atomic<int64_t> last_id{0};
  std::shared_ptr<GradHook> hook(adopted);
  const bool produced = has_producer(*this);
  check(requires_grad(), "[register_hook] cannot register a hook on a tensor that doesn't require gradient");
  check(!post_accumulate || !produced, "[register_post_accumulate_grad_hook] expected a leaf, got the result of {}",
        grad_fn());
  const int64_t id = ++last_id;
  if (!produced) hooks_changed(*this);
  if (post_accumulate) {
    TapeMeta& meta = TapeMeta::of(*this);
    if (!meta.post_hooks) meta.post_hooks = std::make_unique<GradHookList>();
    meta.post_hooks->items.push_back({id, 0, std::move(hook)});
    return id;
  }
  uint32_t output = 0;
  GradHookList& list = hooks_of(*this, output);
  list.items.push_back({id, output, std::move(hook)});
  return id;
}

void Tensor::remove_hook(int64_t id) const {
  TapeMeta* meta = TapeMeta::find(*this);
  if (!meta) return;
  const auto remove = [id](GradHookList* list) {
    if (list) std::erase_if(list->items, [id](auto& item) { return item.id == id; });
  };
  if (meta->hooks || meta->post_hooks) hooks_changed(*this);
  remove(meta->hooks.get());
  remove(meta->post_hooks.get());
  if (Node* n = meta->grad_fn.node()) remove(n->hooks);
}

void Tensor::retain_grad() const {
  check(requires_grad(), "[retain_grad] can't retain_grad on a tensor that has requires_grad=false");
  if (!has_producer(*this)) return;
  TapeMeta& meta = TapeMeta::of(*this);
  if (meta.retained) return;
  auto slot = meta.retained = std::make_shared<Tensor>();
  register_hook([slot](const Tensor& g) { *slot = slot->defined() ? tapir::add(*slot, g) : g; });
}

}  // namespace tapir::inline v0
