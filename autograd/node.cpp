#include "node.h"

#include <algorithm>

#include "anomaly.h"
#include "arith.h"
#include "meta.h"
#include "record.h"

namespace tapir::inline v0 {

namespace {
thread_local int64_t nodes_alive = 0;
thread_local uint64_t last_sequence = 0;
thread_local Node* dead_nodes = nullptr;
thread_local bool draining = false;
}  // namespace

Node::Node() { ++nodes_alive; }
Node::~Node() {
  --nodes_alive;
  for (uint32_t i = 0; i < num_edges; ++i) edges[i].~Edge();
  delete[] more_info;
  delete hooks;
  if (call_site) [[unlikely]]
    free_call_site(call_site);
}
int64_t Node::live_nodes() { return nodes_alive; }
uint64_t Node::next_sequence() { return last_sequence + 1; }

/// What a dying node lets go of may be the last hold on the node before it, and so on for a million: nodes that die meanwhile
/// wait in a list.
void Node::destroy(Node* node) noexcept {
  node->next_dead_ = dead_nodes;
  dead_nodes = node;
  if (draining) return;
  draining = true;
  while (Node* n = dead_nodes) {
    dead_nodes = n->next_dead_;
    NodeBuilder::free_block(n);
  }
  draining = false;
}

void NodeBuilder::free_block(Node* node) noexcept {
  const size_t bytes = node->block_bytes_;
  void* block = dynamic_cast<void*>(node);
  node->~Node();
  pool_release(block, bytes);
}

void NodeBuilder::attach(Node* node, Edge* edges, const Inputs& inputs) {
  node->edges = edges;
  if (modes.anomaly) [[unlikely]]
    node->call_site = make_call_site();
  uint64_t sequence = last_sequence;
  for (int64_t i = 0; i < inputs.size(); ++i) {
    Edge* e = new (&edges[i]) Edge(edge_of(inputs[i]));
    node->num_edges = uint32_t(i + 1);
    if (e->node()) sequence = std::max(sequence, e->node()->sequence);
  }
  node->sequence = last_sequence = sequence + 1;
}

Edge edge_of(const Tensor& x) {
  const TensorImpl* p = x.impl_or_null();
  if (!p || !(p->view ? refresh_view(x) : p->requires_grad)) return {};
  const TapeMeta* meta = TapeMeta::find(x);
  if (meta && meta->grad_fn) return meta->grad_fn;
  return Edge(x);
}

void profile_operation(const char* name, const Inputs& inputs) {
  std::vector<const Shape*> shapes;
  for (int64_t i = 0; i < inputs.size(); ++i) shapes.push_back(inputs[i].defined() ? &inputs[i].shape() : nullptr);
  profiler::detail::operation(name, shapes);
}

static void set_info(OutputInfo& info, const Tensor& y) {
  info.shape = y.shape(), info.dtype = y.dtype(), info.device = y.device();
}

void set_producer(const Edge& producer, const Tensor& y) {
  TapeMeta& meta = TapeMeta::of(y);
  meta.grad_fn = Edge(producer);
  meta.retained.reset();
  y.impl().requires_grad = true;
}

/// Note [Writes to views]
/// Only memory is written in place; the histories are those of values. After y (a view) was written, the base is the old
/// base with y's new value put in, and y is once more a view of the base. Other views notice, by the storage's version, that
/// the base has moved on and become views of the new base when they are next used.
static ViewGeometry geometry_of(const Tensor& view, const Tensor& base) {
  return {base.shape(), base.strides(), view.shape(), view.strides(), view.storage_offset() - base.storage_offset()};
}

static void make_view_of_base(const Tensor& y, TapeMeta& meta) {
  const ViewGeometry view = geometry_of(y, meta.base);
  auto f = [view](const Tensor& g) { return Grads{strided_scatter(g, view)}; };
  Node* node =
      NodeBuilder::make<detail::OpNode<decltype(f)>>("as_strided", {meta.base}, f, Save<>{}, std::span(&y, 1), 1);
  set_info(node->info, y);
  set_producer(Edge(node, 0), y);
  node->release();
  meta.view_version = y.version();
}

bool refresh_view(const Tensor& x) {
  TapeMeta& meta = TapeMeta::of(x);
  if (!meta.no_grad_view && meta.view_version != x.version() && meta.base.requires_grad()) make_view_of_base(x, meta);
  return x.impl().requires_grad;
}

uint64_t wanted_bits(const Inputs& inputs) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < inputs.size() && i < 64; ++i) {
    const TensorImpl* p = inputs[i].impl_or_null();
    if (p && (p->view ? refresh_view(inputs[i]) : p->requires_grad)) bits |= uint64_t(1) << i;
  }
  return bits;
}

void tie_view(const Tensor& y, const Tensor& x) {
  TapeMeta& meta = TapeMeta::of(y);
  const TapeMeta* from = TapeMeta::find(x);
  const bool nested = from && from->base.defined();
  meta.base = nested ? from->base : x;
  meta.no_grad_view = !modes.grad || (nested && from->no_grad_view);
  meta.view_version = y.version();
  y.impl().view = true;
}

static void put_into_base(const Tensor& y) {
  TapeMeta& meta = TapeMeta::of(y);
  meta.view_version = y.version();  // y's new value comes from `node`, not from the base
  const ViewGeometry view = geometry_of(y, meta.base);
  auto f = [view](Needs needs, const Tensor& g) {
    return Grads{needs[0] ? strided_zero(g, view) : Tensor(), needs[1] ? strided_gather(g, view) : Tensor()};
  };
  Node* put = NodeBuilder::make<detail::OpNode<decltype(f)>>("view_write", {meta.base, y}, f, Save<>{},
                                                             std::span(&meta.base, 1), 3);
  set_info(put->info, meta.base);
  set_producer(Edge(put, 0), meta.base);
  put->release();
  make_view_of_base(y, meta);
}

void tie_output(Node* node, const Tensor& y) {
  set_info(node->info, y);
  set_producer(Edge(node, 0), y);
  node->release();
}
void tie_in_place(Node* node, const Tensor& y, const Inputs& inputs) {
  const bool retained = TapeMeta::of(y).retained != nullptr;
  tie_output(node, y);
  if (y.impl().view) put_into_base(y);
  if (retained) y.retain_grad();  // now of the new value
  // Operands that are views of the same base have just taken its old history, for their edges: the next use takes the new one.
  for (int64_t i = 1; i < inputs.size(); ++i)
    if (const TensorImpl* p = inputs[i].impl_or_null();
        p && p->view && !inputs[i].is_same(y) && p->storage.get() == y.impl().storage.get())
      TapeMeta::of(inputs[i]).view_version = y.version() - 1;
}

void tie_outputs(Node* node, std::span<const Tensor> outputs) {
  node->num_outputs = uint32_t(outputs.size());
  if (outputs.size() > 1) node->more_info = new OutputInfo[outputs.size() - 1];
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) continue;
    set_info(node->output(i), outputs[i]);
    if (outputs[i].is_floating_point()) set_producer(Edge(node, i), outputs[i]);
  }
  node->release();
}

void check_inplace(const char* op, const Tensor& self, bool will_record) {
  const TensorImpl& p = self.impl();
  check_writable(op, self);
  if (may_overlap(p.sizes, p.strides)) {
    fail(ErrorKind::Value,
         "[{}] more than one element of the written-to tensor refers to a single memory location (shape {}, strides "
         "{}). Please clone() it first",
         op, p.sizes, p.strides);
  }
  if (!modes.grad) return;
  const TapeMeta* meta = TapeMeta::find(self);
  if (p.requires_grad && !(meta && meta->grad_fn)) {
    fail(ErrorKind::Value,
         "[{}] a leaf tensor ({}) that requires grad is being used in an in-place operation; write to it under NoGrad, "
         "or clone() it",
         op, self);
  }
  if (meta && meta->base.defined() && !meta->no_grad_view && meta->base.requires_grad() && meta->base.is_leaf()) {
    fail(ErrorKind::Value,
         "[{}] a view of a leaf tensor ({}) that requires grad is being used in an in-place operation; write to it "
         "under NoGrad, or clone() it",
         op, meta->base);
  }
  check(!(meta && meta->no_grad_view) || !(will_record || meta->base.requires_grad()),
        "[{}] expected a tensor with its own history, got a view made under NoGrad; make the view where gradients are "
        "recorded, or write under NoGrad",
        op);
  check(!will_record || !p.inference,
        "[{}] expected a tensor that can be recorded, got one made under InferenceMode; clone() it first", op);
}

/// x with the history it has now, but no base: what is written to that later may be computed from this very value, and the two would
/// hold each other. A leaf stays itself.
static Tensor without_base(const Tensor& x) {
  const Edge history = edge_of(x);
  if (history && !history.node()) return x;
  Tensor y = alias(x, x.shape(), x.strides(), x.storage_offset());
  if (history) set_producer(history, y);
  return y;
}

SavedTensor::SavedTensor(const Tensor& value, std::span<const Tensor> outputs) {
  if (!value.defined()) return;
  check(!value.impl().inference,
        "[autograd] inference tensors cannot be saved for backward ({}); clone() it outside of InferenceMode", value);
  version_ = value.version(), storage_ = value.impl().storage.get();
  value_ = value;
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    if (!value.is_same(outputs[i])) continue;
    is_output_ = true, output_index_ = i;
    value_ = alias(value, value.shape(), value.strides(), value.storage_offset());
  }
  if (!is_output_ && value.impl().view) value_ = without_base(value);
  if (modes.saved_hooks) [[unlikely]]
    pack(value, *modes.saved_hooks);
}

SavedTensor::SavedTensor(SavedTensor&& o) noexcept
    : value_(std::move(o.value_)), packed_(std::exchange(o.packed_, nullptr)), version_(o.version_),
      output_index_(o.output_index_), is_output_(o.is_output_), storage_(o.storage_) {}

Tensor SavedTensor::unpack(Node* self) const {
  if (!value_.defined()) return packed_ ? unpack_packed(self) : Tensor();
  if (value_.version() != version_ || value_.impl().storage.get() != storage_) [[unlikely]] {
    fail(ErrorKind::Value,
         "[{}] one of the variables needed for gradient computation has been modified by an inplace operation: {} "
         "saved by {} is at version {}; expected version {}",
         "backward", value_, self ? self->name : "checkpoint", int64_t(value_.version()), int64_t(version_));
  }
  if (!is_output_ || !modes.grad) return value_;
  Tensor y = alias(value_, value_.shape(), value_.strides(), value_.storage_offset());
  set_producer(Edge(self, output_index_), y);
  return y;
}

}  // namespace tapir::inline v0
