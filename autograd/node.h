#pragma once
// Note [The tape]
// An operation that has to be differentiated leaves a Node. The node owns its gradient function, the values it saved, and an
// edge to the producer of each input: another node's output, or a leaf. A tensor owns its producer; a node never owns the
// tensors it produced, so there is no cycle. The engine runs nodes from the latest to the earliest.
#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "../core/modes.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// A short list of tensors, gradients mostly; undefined entries mean "none".
class Grads {
 public:
  Grads() = default;
  explicit Grads(const Tensor& one) { push_back(one); }
  explicit Grads(Tensor&& one) { push_back(std::move(one)); }
  Grads(std::initializer_list<Tensor> list) {
    for (auto& t : list) push_back(t);
  }
  explicit Grads(int64_t count) { resize(count); }
  Grads(Grads&& o) noexcept : size_(o.size_), many_(std::move(o.many_)) {
    for (int64_t i = 0; i < kInline; ++i) few_[i] = std::move(o.few_[i]);
    o.size_ = 0;
  }
  Grads& operator=(Grads&& o) noexcept {
    size_ = std::exchange(o.size_, 0), many_ = std::move(o.many_);
    for (int64_t i = 0; i < kInline; ++i) few_[i] = std::move(o.few_[i]);
    return *this;
  }
  int64_t size() const { return size_; }
  Tensor& operator[](int64_t i) { return data()[i]; }
  const Tensor& operator[](int64_t i) const { return const_cast<Grads*>(this)->data()[i]; }
  Tensor* begin() { return data(); }
  Tensor* end() { return data() + size_; }
  const Tensor* begin() const { return const_cast<Grads*>(this)->data(); }
  const Tensor* end() const { return begin() + size_; }
  void push_back(Tensor t) {
    if (size_ == kInline && many_.empty())
      for (auto& f : few_) many_.push_back(std::move(f));
    if (size_ >= kInline) many_.push_back(std::move(t));
    else few_[size_] = std::move(t);
    ++size_;
  }
  void resize(int64_t count) {
    while (size_ < count) push_back({});
  }

 private:
  static constexpr int64_t kInline = 4;
  Tensor* data() { return size_ > kInline ? many_.data() : few_; }
  int64_t size_ = 0;
  Tensor few_[kInline];
  std::vector<Tensor> many_;
};

/// needs[i]: is the gradient of input i wanted? (All inputs from the 64th on count as wanted.)
class Needs {
 public:
  explicit Needs(uint64_t bits = ~uint64_t(0)) : bits_(bits) {}
  bool operator[](int64_t i) const { return i >= 64 || (bits_ >> i & 1); }

 private:
  uint64_t bits_;
};

class Node;

/// Where a gradient goes: output `index` of a node, or a leaf tensor. Undefined for an input that wants no gradient.
class Edge {
 public:
  Edge() = default;
  Edge(Node* node, uint32_t index);  // shares the node
  explicit Edge(const Tensor& leaf) : leaf_(leaf) {}
  Edge(Edge&& o) noexcept : node_(std::exchange(o.node_, nullptr)), index_(o.index_), leaf_(std::move(o.leaf_)) {}
  Edge& operator=(Edge&& o) noexcept {
    std::swap(node_, o.node_), std::swap(index_, o.index_), std::swap(leaf_, o.leaf_);
    return *this;
  }
  Edge(const Edge& o) : Edge() { *this = o.node_ ? Edge(o.node_, o.index_) : Edge(o.leaf_); }
  ~Edge() { reset(); }
  void reset();
  Node* node() const { return node_; }
  uint32_t index() const { return index_; }
  const Tensor& leaf() const { return leaf_; }
  explicit operator bool() const { return node_ || leaf_.defined(); }

 private:
  Node* node_ = nullptr;
  uint32_t index_ = 0;
  Tensor leaf_;
};

/// The producer of x's gradient history: empty when x wants no gradient.
Edge edge_of(const Tensor& x);

/// Shape, dtype and device of one output; gradients must match them.
struct OutputInfo {
  Shape shape;
  DType dtype = kFloat32;
  Device device;
};

struct GradHookList;  // defined in autograd/meta.h
struct CallSite;      // defined in autograd/anomaly.h
struct PackedTensor;  // defined in autograd/saved_hooks.h

/// One recorded operation. Reference counted; freed without recursion (release()).
class Node {
 public:
  virtual ~Node();
  /// Gradients of the inputs from those of the outputs (undefined: zero).
  virtual Grads apply(const Grads& outputs, Needs needs) = 0;
  /// Lets go of the saved values; a second apply() is then an error that says so.
  virtual void free_saved() = 0;

  const char* name = "";
  uint64_t sequence = 0;
  CallSite* call_site = nullptr;  // anomaly mode: where the forward call came from
  Edge* edges = nullptr;
  uint32_t num_edges = 0;
  uint32_t num_outputs = 1;
  OutputInfo info;                  // of output 0
  OutputInfo* more_info = nullptr;  // of the others, where there are several
  GradHookList* hooks = nullptr;    // of tensors made here
  bool freed = false;

  OutputInfo& output(uint32_t i) { return i == 0 ? info : more_info[i - 1]; }
  void retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs_.load(std::memory_order_acquire) == 1 || refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(this);
  }
  static void destroy(Node* node) noexcept;
  /// Nodes made less nodes destroyed by this thread.
  static int64_t live_nodes();
  /// The number that the next node of this thread has at least.
  static uint64_t next_sequence();

 protected:
  Node();
  std::atomic<uint32_t> refs_{1};
  uint32_t block_bytes_ = 0;  // of the pool block that holds the node and its edges
  Node* next_dead_ = nullptr;
  friend struct NodeBuilder;
};

inline Edge::Edge(Node* node, uint32_t index) : node_(node), index_(index) {
  if (node_) node_->retain();
}
inline void Edge::reset() {
  if (Node* n = std::exchange(node_, nullptr)) n->release();
  leaf_.reset();
}

/// A tensor kept for the gradient function. It checks that the value was not written to meanwhile.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(SavedTensor&& o) noexcept;
  SavedTensor& operator=(SavedTensor&&) = delete;
  ~SavedTensor() { reset(); }
  /// A value that is one of the node's own outputs is kept without its history, so that there is no cycle.
  SavedTensor(const Tensor& value, std::span<const Tensor> outputs);
  /// The value; `self` gives an output its history back. ValueError when it was modified in place.
  Tensor unpack(Node* self) const;
  void reset() {
    value_.reset();
    if (packed_) [[unlikely]]
      free_packed();
  }

 private:
  struct Packed;
  void pack(const Tensor& value, SavedTensorHooks& hooks);
  Tensor unpack_packed(Node* self) const;
  void free_packed();

  Tensor value_;
  Packed* packed_ = nullptr;  // instead of value_, where hooks took it
  uint32_t version_ = 0;
  uint32_t output_index_ = 0;
  bool is_output_ = false;
  const Storage* storage_ = nullptr;
};

}  // namespace tapir::inline v0
