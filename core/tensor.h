#pragma once
#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "checks.h"
#include "device.h"
#include "dims.h"
#include "dtype.h"
#include "error.h"
#include "modes.h"
#include "options.h"
#include "scalar.h"
#include "source_location.h"
#include "storage.h"

namespace tapir::inline v0 {

class Index;
class Indexed;
class Operand;
struct TensorImpl;

/// What the tape knows of a tensor; defined in autograd/meta.h.
struct AutogradMeta {
  virtual ~AutogradMeta() = default;
};

/// The state behind a Tensor. User code does not touch it; operations do.
struct TensorImpl {
  std::atomic<uint32_t> refs{1};
  std::atomic<uint32_t> known{1};  // Weak handles, and one for all owners
  DType dtype = kFloat32;
  bool requires_grad = false;  // a leaf that wants a gradient, or a result that was recorded
  bool inference = false;      // made under InferenceMode
  bool contiguous = true;      // follows from sizes and strides
  bool view = false;           // has a base: writes to the base may give it another history
  bool marked = false;         // by requires_grad_(), which storage->leaves tells
  Device device;
  int64_t numel = 0;
  int64_t offset = 0;  // in elements
  StoragePtr storage;
  std::atomic<AutogradMeta*> autograd{nullptr};  // owned; only where it is needed; threads may share a leaf
  Shape sizes;
  Strides strides;

  TensorImpl() = default;
  ~TensorImpl() {
    set_marked(false);
    delete autograd.load(std::memory_order_relaxed);
  }
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;
  static void* operator new(size_t bytes);
  static void operator delete(void* p, size_t bytes);
  void* data() const { return static_cast<char*>(storage->data) + offset * size_of(dtype); }
  void set_marked(bool on) {
    if (on == marked) return;
    marked = on;
    const uint64_t hash = (uint64_t(uintptr_t(this)) + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    if (storage) storage->leaves.fetch_xor(uint32_t(hash >> 32), std::memory_order_relaxed);
  }
  /// Other memory for the same tensor.
  void set_storage(const StoragePtr& other) {
    const bool mark = marked;
    set_marked(false);
    storage = other;
    set_marked(mark);
  }
  /// Nobody owns it any more: lets go of what it holds.
  void end() noexcept {
    set_marked(false);
    delete autograd.exchange(nullptr, std::memory_order_relaxed);
    storage = {};
  }
};
inline void forget(TensorImpl* p) noexcept {
  if (p->known.load(std::memory_order_acquire) == 1 || p->known.fetch_sub(1, std::memory_order_acq_rel) == 1) delete p;
}

/// A function that sees, and may replace, a gradient; made by Tensor::register_hook.
struct GradHook {
  virtual ~GradHook() = default;
  /// Undefined: the gradient stays as it is.
  virtual Tensor call(const Tensor& grad) = 0;
};

/// A handle of 8 bytes to a shared, strided, typed array on a device, and to its place on the tape. Copying a Tensor copies
/// the handle. Functions take `const Tensor&`; a default-made one is "undefined" and stands for an absent tensor.
class Tensor {
 public:
  Tensor() : impl_(nullptr) {}
  Tensor(const Tensor& o) : impl_(o.impl_) {
    if (impl_) impl_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& o) noexcept : impl_(std::exchange(o.impl_, nullptr)) {}
  Tensor& operator=(const Tensor& o) { return *this = Tensor(o); }
  Tensor& operator=(Tensor&& o) noexcept {
    std::swap(impl_, o.impl_);
    return *this;
  }
  ~Tensor() { reset(); }
  void reset() {
    if (impl_) drop(std::exchange(impl_, nullptr));  // most that end are undefined by then
  }

  // What it is. Every one but defined() throws ValueError on an undefined tensor.
  bool defined() const { return impl_ != nullptr; }
  int64_t dim() const { return impl().sizes.size(); }
  int64_t numel() const { return impl().numel; }
  const Shape& shape() const { return impl().sizes; }
  const Strides& strides() const { return impl().strides; }
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  DType dtype() const { return impl().dtype; }
  Device device() const { return impl().device; }
  bool is_contiguous() const { return impl().contiguous; }
  bool is_contiguous(MemoryFormat format) const;
  bool is_floating_point() const { return is_floating(dtype()); }
  int64_t storage_offset() const { return impl().offset; }
  /// How often the memory was written in place.
  uint32_t version() const { return impl().storage->version.load(std::memory_order_relaxed); }
  /// True when both are handles to one tensor.
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }
  /// "tensor([[1., 2.], [3., 4.]])", as PyTorch prints.
  std::string str() const;

  // Reading values. They wait for the device; while compile() records, they are an error that names the caller's line.
  /// The only element, converted; ValueError when there are more, or when T cannot hold it.
  template <class T = double>
  requires std::is_arithmetic_v<T> T item(SourceLocation where = SourceLocation::current())
  const {
    if constexpr (std::is_same_v<T, bool>) return item_scalar(where).to_bool();
    else if constexpr (std::is_floating_point_v<T>) return T(item_scalar(where).to_double());
    else return T(item_int(int64_t(std::numeric_limits<T>::min()), uint64_t(std::numeric_limits<T>::max()), where));
  }
  Scalar item_scalar(SourceLocation where = SourceLocation::current()) const;
  /// The elements in row-major order, converted to T where the dtype differs.
  template <Element T> std::vector<T> to_vector(SourceLocation where = SourceLocation::current()) const {
    if constexpr (std::is_same_v<T, bool>) {
      auto bytes = host_vector<uint8_t>("to_vector", numel());
      copy_to_host(bytes.data(), kBool, where);
      return {bytes.begin(), bytes.end()};
    } else {
      auto out = host_vector<T>("to_vector", numel());
      copy_to_host(out.data(), dtype_of<T>, where);
      return out;
    }
  }
  /// The first element's address, of a tensor of exactly this dtype. Strides and device are the caller's business.
  template <Element T> T* data() const {
    check(impl().dtype == dtype_of<T>, "[data] expected scalar type {} but found {}", dtype_of<T>, impl().dtype);
    if (modes.recorder) [[unlikely]]
      host_takes();
    return static_cast<T*>(impl_->data());
  }
  void* data_ptr() const { return impl().data(); }

  // The tape (autograd/tensor.cpp).
  bool requires_grad() const { return impl().view ? view_requires_grad() : impl_->requires_grad; }
  /// Makes a leaf take part in backward(); ValueError for integer dtypes and for results of operations.
  Tensor& requires_grad_(bool on = true) const;
  bool is_leaf() const;
  /// The gradient that backward() left here, or an undefined tensor.
  const Tensor& grad() const;
  void set_grad(const Tensor& grad) const;
  /// Name of the operation that made this tensor, empty for a leaf.
  std::string_view grad_fn() const;
  /// Gradients of every leaf below, added to what the leaves hold. `gradient` may be left out for one element.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, bool create_graph = false) const;
  /// The same memory without history.
  Tensor detach() const;
  Tensor& detach_() const;
  /// Keep the gradient of a result of an operation too.
  void retain_grad() const;
  /// `hook(grad)` sees this tensor's gradient; what it returns (if not void) replaces it. Returns a number for remove_hook.
  template <class F> int64_t register_hook(F hook) const {
    struct Hook final : GradHook {
      explicit Hook(F f) : f(std::move(f)) {}
      Tensor call(const Tensor& g) override {
        if constexpr (std::is_void_v<decltype(f(g))>) return f(g), Tensor();
        else return f(g);
      }
      F f;
    };
    return add_hook(new Hook(std::move(hook)), false);
  }
  /// `hook(leaf)` runs once per backward, after this leaf's gradient is complete.
  template <class F> int64_t register_post_accumulate_grad_hook(F hook) const {
    struct Hook final : GradHook {
      explicit Hook(F f) : f(std::move(f)) {}
      Tensor call(const Tensor& leaf) override { return f(leaf), Tensor(); }
      F f;
    };
    return add_hook(new Hook(std::move(hook)), true);
  }
  void remove_hook(int64_t id) const;

  // Indexing: x[0], x[{1, Slice(2, 8), None, Ellipsis, mask}] (core/index.h).
  Indexed operator[](const Index& index) const;
  Indexed operator[](std::initializer_list<Index> indices) const;

  // One-line forwards to the functions of the same name (ops/methods.cpp).
  Tensor to(DType dtype) const;
  Tensor to(Device device, bool non_blocking = false) const;  // to("cuda:1") too
  Tensor to(Device device, DType dtype, bool non_blocking = false) const;
  Tensor to(MemoryFormat format) const;
  Tensor cpu() const;
  Tensor cuda() const;
  Tensor pin_memory() const;
  bool is_pinned() const;
  Tensor contiguous(MemoryFormat format = kContiguous) const;
  Tensor clone() const;
  Tensor view(const Shape& shape) const;
  Tensor reshape(const Shape& shape) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor permute(const Dims& dims) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const;
  Tensor squeeze() const;
  Tensor squeeze(const Dims& dims) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor expand(const Shape& shape) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor slice(int64_t dim, std::optional<int64_t> start = {}, std::optional<int64_t> end = {}, int64_t step = 1) const;
  std::vector<Tensor> split(int64_t size, int64_t dim = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor add(const Operand& other) const;
  Tensor sub(const Operand& other) const;
  Tensor mul(const Operand& other) const;
  Tensor div(const Operand& other) const;
  Tensor pow(const Operand& exponent) const;
  Tensor neg() const;
  Tensor abs() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor sigmoid() const;
  Tensor tanh() const;
  Tensor relu() const;
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;
  Tensor eq(const Operand& other) const;
  Tensor ne(const Operand& other) const;
  Tensor lt(const Operand& other) const;
  Tensor le(const Operand& other) const;
  Tensor gt(const Operand& other) const;
  Tensor ge(const Operand& other) const;
  Tensor sum(const Dims& dims = {}, const ReduceOptions& options = {}) const;
  Tensor mean(const Dims& dims = {}, const ReduceOptions& options = {}) const;
  Tensor var(const Dims& dims = {}, const VarOptions& options = {}) const;
  Tensor std(const Dims& dims = {}, const VarOptions& options = {}) const;
  Tensor max() const;
  Tensor min() const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor any() const;
  Tensor all() const;
  Tensor norm() const;
  Tensor softmax(int64_t dim) const;
  Tensor log_softmax(int64_t dim) const;
  Tensor matmul(const Tensor& other) const;
  Tensor mm(const Tensor& other) const;
  Tensor bmm(const Tensor& other) const;

  // In place: they write this tensor's memory and return it. A const handle will do, as in LibTorch: it is the handle that is const.
  Tensor& add_(const Operand& other, Scalar alpha = 1) const;
  Tensor& sub_(const Operand& other, Scalar alpha = 1) const;
  Tensor& mul_(const Operand& other) const;
  Tensor& div_(const Operand& other) const;
  Tensor& copy_(const Tensor& source) const;
  Tensor& fill_(Scalar value) const;
  Tensor& zero_() const;
  Tensor& clamp_(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;
  Tensor& relu_() const;
  Tensor& masked_fill_(const Tensor& mask, Scalar value) const;
  Tensor& uniform_(double from = 0, double to = 1) const;
  Tensor& normal_(double mean = 0, double std = 1) const;

  // For operations and devices.
  explicit Tensor(TensorImpl* adopted) : impl_(adopted) {}
  TensorImpl& impl() const {
    if (!impl_) [[unlikely]]
      fail_undefined();
    return *impl_;
  }
  TensorImpl* impl_or_null() const { return impl_; }

 private:
  static void drop(TensorImpl* p);
  void host_takes() const;
  [[noreturn]] static void fail_undefined();
  bool view_requires_grad() const;
  int64_t item_int(int64_t low, uint64_t high, SourceLocation where) const;
  void copy_to_host(void* to, DType dtype, SourceLocation where) const;
  int64_t add_hook(GradHook* adopted, bool post_accumulate) const;

  TensorImpl* impl_;
};
static_assert(sizeof(Tensor) == 8);

/// Either a tensor or a number: what pointwise functions take. It refers to the tensor, so it is for arguments only.
class Operand {
 public:
  Operand(const Tensor& t) : tensor_(&t) {}
  Operand(const Indexed& x);
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T number) : scalar_(number) {}
  Operand(Scalar number) : scalar_(number) {}
  bool is_tensor() const { return tensor_ != nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  Scalar scalar() const { return scalar_; }
  /// The tensor, or an undefined one for a number.
  const Tensor& tensor_or_undefined() const;

 private:
  const Tensor* tensor_ = nullptr;
  Tensor held_;  // of an Indexed
  Scalar scalar_;

 public:
  Operand(const Operand& o) : tensor_(o.tensor_ == &o.held_ ? &held_ : o.tensor_), held_(o.held_), scalar_(o.scalar_) {}
  Operand& operator=(const Operand&) = delete;
};

// Making tensors without an operation (core/tensor.cpp).
/// Memory that is not initialised, row-major.
Tensor empty(const Shape& shape, const TensorOptions& options = {});
/// The same; errors name `op`.
Tensor empty(const char* op, const Shape& shape, const TensorOptions& options);
/// The same with given strides: non-overlapping, as those of another tensor.
Tensor empty_strided(const Shape& shape, const Strides& strides, const TensorOptions& options = {});
/// Not initialised; shape, dtype, device and (where dense) the order of strides are those of `x`.
Tensor empty_like(const Tensor& x, const LikeOptions& options = {});
/// Another geometry over x's storage, without history. For operations: they check that it stays inside.
Tensor alias(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset);
/// Elements that lie in memory of the caller's, which must outlive every tensor that sees it. Where from_blob throws, it stays the caller's.
Tensor from_blob(void* data, const Shape& shape, const TensorOptions& options = {});
Tensor from_blob(void* data, const Shape& shape, const Strides& strides, const TensorOptions& options = {});
/// For operations: errors name `op`, no strides mean row-major, and `release(storage)` is called once, at the end.
Tensor from_blob(const char* op, void* data, const Shape& shape, const Strides* strides, const TensorOptions& options,
                 void (*release)(Storage&), void* context);
/// The same, and `deleter(data)` is called when no tensor sees it any more.
template <class F>
requires std::invocable<F&, void*> Tensor from_blob(void* data, const Shape& shape, F deleter,
                                                    const TensorOptions& options = {}) {
  auto* held = new F(std::move(deleter));
  const auto release = [](Storage& s) {
    auto* f = static_cast<F*>(s.context);
    (*f)(s.data);
    delete f;
  };
  try {
    return from_blob("from_blob", data, shape, nullptr, options, release, held);
  } catch (...) {
    delete held;
    throw;
  }
}
/// PyTorch's strides for that format.
Strides channels_last_strides(const Shape& shape);
/// The format that x's strides tell of, extents of 1 included: kChannelsLast for rank 4 or 5 laid out so, else kContiguous.
MemoryFormat suggest_memory_format(const Tensor& x);
/// Smallest and one past the largest element offset that sizes and strides reach; {0, 0} when empty.
std::pair<int64_t, int64_t> extent_of(const Shape& shape, const Strides& strides, const char* op = "strides");
/// No two elements share memory and there are no gaps: a permutation of a contiguous layout.
bool is_dense(const Shape& shape, const Strides& strides);
/// Two different indices may name one place (an expanded tensor).
bool may_overlap(const Shape& shape, const Strides& strides);

/// A nested list of numbers: tensor({{1., 2.}, {3., 4.}}). Integers give int64, floats float32, bools bool, unless options say.
struct NestedList {
  std::vector<int64_t> shape;
  std::vector<double> floats;
  std::vector<int64_t> integers;
  Scalar::Kind kind = Scalar::Kind::Bool;
  template <class T>
  requires std::is_arithmetic_v<T> NestedList(T v) : kind(Scalar(v).kind()) {
    floats.push_back(double(v));
    integers.push_back(Scalar(v).to_int());
  }
  NestedList(std::initializer_list<NestedList> items);
};
Tensor tensor(const NestedList& values, const TensorOptions& options = {});
/// One dimension, or `shape` row-major; the values are copied.
template <Element T> Tensor tensor(const std::vector<T>& values, const TensorOptions& options = {});
/// ValueError where a number does not fit into an integer dtype, or overflows a float one.
void check_fits(const char* op, Scalar v, DType dtype);
Tensor tensor_from_host(const void* values, DType dtype, const Shape& shape, const TensorOptions& options);
template <Element T> Tensor tensor(const std::vector<T>& values, const TensorOptions& options) {
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    return tensor_from_host(bytes.data(), kBool, int64_t(values.size()), options);
  } else return tensor_from_host(values.data(), dtype_of<T>, int64_t(values.size()), options);
}
template <Element T> Tensor tensor(std::span<const T> values, const Shape& shape, const TensorOptions& options = {}) {
  check(int64_t(values.size()) == numel_of(shape), "[tensor] expected {} values for shape {}, got {}", numel_of(shape),
        shape, int64_t(values.size()));
  return tensor_from_host(values.data(), dtype_of<T>, shape, options);
}

}  // namespace tapir::inline v0

#include "index.h"
