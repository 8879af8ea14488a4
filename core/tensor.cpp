#include "tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "allocator.h"
#include "backend.h"
#include "checks.h"
#include "recorder.h"

namespace tapir::inline v0 {

void* TensorImpl::operator new(size_t bytes) { return pool_allocate(bytes); }
void TensorImpl::operator delete(void* p, size_t bytes) { pool_release(p, bytes); }

void Tensor::host_takes() const { modes.recorder->host_takes(impl_->data()); }
void Tensor::fail_undefined() {
  fail(ErrorKind::Value, "[Tensor] expected a tensor, got an undefined one (made by the default constructor)");
}

int64_t Tensor::size(int64_t d) const { return shape()[wrap_dim("size", d, dim())]; }
int64_t Tensor::stride(int64_t d) const { return strides()[wrap_dim("stride", d, dim())]; }

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format != kChannelsLast) return is_contiguous();
  if (dim() != 4 && dim() != 5) return false;
  const Strides want = channels_last_strides(shape());
  for (int64_t d = 0; d < dim(); ++d)
    if (shape()[d] != 1 && strides()[d] != want[d]) return numel() == 0;
  return true;
}

const Tensor& Operand::tensor_or_undefined() const {
  static const Tensor undefined;
  return tensor_ ? *tensor_ : undefined;
}

namespace {

/// Bytes of a new tensor; ValueError for negative sizes and for counts that do not fit in 63 bits (zero sizes count as one,
/// so that strides fit too).
int64_t checked_bytes(const char* op, const Shape& shape, DType dtype) {
  int64_t bytes = size_of(dtype);
  bool empty = false;
  for (int64_t d = 0; d < shape.size(); ++d) {
    check(shape[d] >= 0, "[{}] expected sizes of at least 0, got {} at dimension {} of shape {}", op, shape[d], d,
          shape);
    empty |= shape[d] == 0;
    const bool overflow = __builtin_mul_overflow(bytes, std::max<int64_t>(shape[d], 1), &bytes);
    check(!overflow, "[{}] storage size calculation overflowed: shape {} of {}", op, shape, dtype);
  }
  return empty ? 0 : bytes;
}

/// The number of elements of a view: other than new memory it may be anything.
int64_t checked_numel(const Shape& shape) {
  int64_t n = 1;
  bool overflow = false;
  for (int64_t s : shape) {
    if (s == 0) return 0;
    overflow |= __builtin_mul_overflow(n, s, &n);
  }
  check(!overflow, "[view] the number of elements of shape {} overflows", shape);
  return n;
}

Tensor make(const Shape& shape, const Strides& strides, DType dtype, Device device, StoragePtr storage,
            bool requires_grad) {
  Tensor t(new TensorImpl);
  TensorImpl& p = t.impl();
  p.dtype = dtype, p.device = device, p.storage = std::move(storage), p.inference = modes.inference;
  p.sizes = shape, p.strides = strides, p.numel = checked_numel(shape);
  p.contiguous = p.numel == 0 || is_contiguous(shape, strides);
  if (requires_grad) t.requires_grad_();
  return t;
}

/// Strides for `shape` whose order is that of a dense layout (ties and extents of 1 by position).
Strides strides_like(const Shape& shape, const Strides& strides) {
  Dims order;
  for (int64_t d = shape.size(); d-- > 0;) order.push_back(d);  // innermost first
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  Strides out = Dims::filled(shape.size(), 1);
  int64_t step = 1;
  for (int64_t d : order) out[d] = step, step *= std::max<int64_t>(shape[d], 1);
  return out;
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& o) { return empty("empty", shape, o); }
Tensor empty(const char* op, const Shape& shape, const TensorOptions& o) {
  const DType dtype = o.dtype.value_or(kFloat32);
  const int64_t bytes = checked_bytes(op, shape, dtype);
  try {
    return make(shape, contiguous_strides(shape), dtype, o.device, allocate_storage(bytes, o.device), o.requires_grad);
  } catch (const OutOfMemoryError& e) {
    throw OutOfMemoryError(tapir::format("[{}] {} {}: {}", op, dtype, shape, e.what()));
  }
}

Tensor empty_strided(const Shape& shape, const Strides& strides, const TensorOptions& o) {
  const DType dtype = o.dtype.value_or(kFloat32);
  checked_bytes("empty_strided", shape, dtype);
  check(shape.size() == strides.size(), "[empty_strided] expected as many strides as sizes, got {} and {}", shape,
        strides);
  for (int64_t s : strides) check(s >= 0, "[empty_strided] expected strides of at least 0, got {}", strides);
  int64_t bytes;
  const bool overflow =
      __builtin_mul_overflow(extent_of(shape, strides, "empty_strided").second, size_of(dtype), &bytes);
  check(!overflow, "[empty_strided] storage size calculation overflowed: shape {} and strides {}", shape, strides);
  return make(shape, strides, dtype, o.device, allocate_storage(bytes, o.device), o.requires_grad);
}

Tensor empty_like(const Tensor& x, const LikeOptions& o) {
  const Shape& shape = x.shape();
  const TensorOptions options{o.dtype.value_or(x.dtype()), o.device.value_or(x.device()), o.requires_grad};
  if (o.memory_format == kChannelsLast) return empty_strided(shape, channels_last_strides(shape), options);
  if (o.memory_format == kContiguous || x.is_contiguous() || may_overlap(shape, x.strides()))
    return empty(shape, options);
  return empty_strided(shape, strides_like(shape, x.strides()), options);
}

void Tensor::drop(TensorImpl* p) {
  if (p->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (p->known.load(std::memory_order_acquire) != 1) p->end();
  forget(p);
}

Tensor alias(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
  Tensor t = make(shape, strides, x.dtype(), x.device(), x.impl().storage, false);
  t.impl().offset = offset;
  t.impl().inference = x.impl().inference;
  return t;
}

Tensor from_blob(void* data, const Shape& shape, const TensorOptions& o) {
  return from_blob("from_blob", data, shape, nullptr, o, nullptr, nullptr);
}
Tensor from_blob(void* data, const Shape& shape, const Strides& strides, const TensorOptions& o) {
  return from_blob("from_blob", data, shape, &strides, o, nullptr, nullptr);
}
Tensor from_blob(const char* op, void* data, const Shape& shape, const Strides* given, const TensorOptions& o,
                 void (*release)(Storage&), void* context) {
  const DType dtype = o.dtype.value_or(kFloat32);
  const int64_t bytes = checked_bytes(op, shape, dtype);
  const Strides strides = given ? *given : contiguous_strides(shape);
  check(data != nullptr || bytes == 0, "[{}] expected an address, got null for shape {}", op, shape);
  check(shape.size() == strides.size(), "[{}] expected as many strides as sizes, got {} and {}", op, shape, strides);
  for (int64_t s : strides) check(s >= 0, "[{}] expected strides of at least 0, got {}", op, strides);
  check(uintptr_t(data) % uintptr_t(size_of(dtype)) == 0, "[{}] expected an address aligned for {}", op, dtype);
  int64_t extent;
  const bool overflow = __builtin_mul_overflow(extent_of(shape, strides, op).second, size_of(dtype), &extent);
  check(!overflow, "[{}] storage size calculation overflowed: shape {} and strides {}", op, shape, strides);
  Tensor t =
      make(shape, strides, dtype, o.device, adopt_storage(data, extent, o.device, nullptr, nullptr), o.requires_grad);
  Storage& storage = *t.impl().storage;  // the memory is ours from here on, where nothing throws any more
  storage.release = release, storage.context = context;
  return t;
}

Strides channels_last_strides(const Shape& shape) {
  const int64_t rank = shape.size();
  check(rank == 4 || rank == 5, "[channels_last] expected a tensor of rank 4 or 5, got shape {}", shape);
  Strides s = Dims::filled(rank, 1);
  // Wraps for sizes that no memory holds: who allocates refuses them.
  uint64_t step = uint64_t(std::max<int64_t>(shape[1], 1));
  for (int64_t d = rank - 1; d >= 2; --d) s[d] = int64_t(step), step *= uint64_t(std::max<int64_t>(shape[d], 1));
  s[0] = int64_t(step);
  return s;
}

MemoryFormat suggest_memory_format(const Tensor& x) {
  const int64_t rank = x.dim();
  if (rank != 4 && rank != 5) return kContiguous;
  int64_t least = 0;  // strides must not fall along the order channels, last axis, ..., first axis, batch
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t d = i == 0 ? 1 : i == rank - 1 ? 0 : rank - i;
    if (x.strides()[d] < least || (d == 0 && least == x.strides()[1])) return kContiguous;
    least = x.strides()[d] * std::max<int64_t>(x.shape()[d], 1);
  }
  return kChannelsLast;
}

std::pair<int64_t, int64_t> extent_of(const Shape& shape, const Strides& strides, const char* op) {
  int64_t low = 0, high = 1;
  for (int64_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return {0, 0};
    int64_t reach;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
      fail(ErrorKind::Value, "[{}] expected strides that stay within 63 bits, got shape {} and strides {}", op, shape,
           strides);
  }
  return {low, high};
}

namespace {
/// Extents above 1 with their strides, the smallest stride first.
std::pair<Dims, Dims> sorted_axes(const Shape& shape, const Strides& strides) {
  Dims n, s;
  for (int64_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    int64_t at = n.size();
    while (at > 0 && s[at - 1] > strides[d]) --at;
    n.insert(at, shape[d]), s.insert(at, strides[d]);
  }
  return {n, s};
}
}  // namespace

bool is_dense(const Shape& shape, const Strides& strides) {
  if (numel_of(shape) == 0) return true;
  const auto [n, s] = sorted_axes(shape, strides);
  int64_t step = 1;
  for (int64_t i = 0; i < n.size(); ++i) {
    if (s[i] != step) return false;
    step *= n[i];
  }
  return true;
}

bool may_overlap(const Shape& shape, const Strides& strides) {
  if (numel_of(shape) == 0) return false;
  const auto [n, s] = sorted_axes(shape, strides);
  int64_t reach = 0;  // of the axes so far: a stride beyond it cannot meet them
  for (int64_t i = 0; i < n.size(); ++i) {
    if (s[i] <= reach) return true;
    reach += s[i] * (n[i] - 1);
  }
  return false;
}

// ---- reading and making values

NestedList::NestedList(std::initializer_list<NestedList> items) {
  shape.push_back(int64_t(items.size()));
  if (items.size() == 0) kind = Scalar::Kind::Float;
  int64_t at = 0;
  for (const NestedList& item : items) {
    if (at == 0) shape.insert(shape.end(), item.shape.begin(), item.shape.end());
    const bool same = std::equal(item.shape.begin(), item.shape.end(), shape.begin() + 1, shape.end());
    check(same, "[tensor] expected a sequence of shape {} at position {}, got {}",
          Dims(std::span<const int64_t>(shape).subspan(1)), at, Dims(item.shape));
    floats.insert(floats.end(), item.floats.begin(), item.floats.end());
    integers.insert(integers.end(), item.integers.begin(), item.integers.end());
    const auto rank = [](Scalar::Kind k) { return k == Scalar::Kind::Float ? 2 : k == Scalar::Kind::Int ? 1 : 0; };
    if (rank(item.kind) > rank(kind)) kind = item.kind;
    ++at;
  }
}

Tensor tensor(const NestedList& values, const TensorOptions& o) {
  const bool floats = values.kind == Scalar::Kind::Float;
  TensorOptions options = o;
  if (!o.dtype) options.dtype = floats ? kFloat32 : values.kind == Scalar::Kind::Int ? kInt64 : kBool;
  const void* data = floats ? static_cast<const void*>(values.floats.data()) : values.integers.data();
  return tensor_from_host(data, floats ? kFloat64 : kInt64, values.shape, options);
}

/// Of an integer dtype: the least number, and the one above the greatest.
static std::pair<double, double> range_of(DType dtype) {
  const double half = std::ldexp(1, int(size_of(dtype)) * 8 - 1);
  return dtype == kUInt8 ? std::pair(0.0, 256.0) : std::pair(-half, half);
}
bool fits(Scalar v, DType dtype) {
  if (dtype == kBool || (dtype == kInt64 && !v.is_float())) return true;
  const double d = v.to_double();
  if (is_floating(dtype)) {
    const double above = dtype == kFloat64    ? INFINITY
                         : dtype == kFloat16  ? 65520
                         : dtype == kBFloat16 ? 0x1.ffp127
                                              : 0x1.ffffffp127;
    return !(std::abs(d) >= above) || std::isinf(d);
  }
  const auto [least, above] = range_of(dtype);
  return std::trunc(d) >= least && d < above;
}
void check_fits(const char* op, Scalar v, DType dtype) {
  if (fits(v, dtype)) return;
  std::string range;
  if (!is_floating(dtype))
    range = tapir::format(" (range {} to {})", int64_t(range_of(dtype).first),
                          int64_t(uint64_t(range_of(dtype).second) - 1));
  fail(ErrorKind::Value, "[{}] value {} cannot be converted to type {} without overflow{}", op, v, dtype, range);
}

/// Numbers that become integers must fit; those that become floats round, to infinity too.
static void check_all_fit(const Tensor& host, DType want) {
  ScopedMode known(modes.recorder, {});  // numbers that the caller gave
  if (is_floating(want) || want == kBool || host.dtype() == want || host.dtype() == kBool) return;
  if (is_floating(host.dtype()))
    for (const double v : host.to_vector<double>()) check_fits("tensor", v, want);
  else
    for (const int64_t v : host.to_vector<int64_t>()) check_fits("tensor", v, want);
}

Tensor tensor_from_host(const void* values, DType dtype, const Shape& shape, const TensorOptions& o) {
  const DType want = o.dtype.value_or(dtype);
  Tensor host = empty(shape, {.dtype = dtype});
  if (host.numel()) std::memcpy(host.data_ptr(), values, size_t(host.numel() * size_of(dtype)));
  if (modes.recorder && host.numel()) modes.recorder->host_writes(host.data_ptr());
  Tensor out = host;
  if (want != dtype) {
    check_all_fit(host, want);
    out = empty(shape, {.dtype = want});
    built_in_backend(DeviceType::CPU)->copy(context(kCPU), {out, host});  // a recorder sees numbers of the host alone
    if (modes.recorder && out.numel()) modes.recorder->host_writes(out.data_ptr());
  }
  if (!o.device.is_cpu()) {
    Tensor there = empty(shape, {.dtype = want, .device = o.device});
    backend(o.device).copy_bytes(there.data_ptr(), o.device, out.data_ptr(), kCPU, out.numel() * size_of(want),
                                 current_stream(o.device));
    out = there;
  }
  if (o.requires_grad) out.requires_grad_();
  return out;
}

static void host_reads(const char* op, SourceLocation where) {
  if (modes.recorder) [[unlikely]]
    modes.recorder->host_reads(op, where.file_name(), unsigned(where.line()));
}

void Tensor::copy_to_host(void* to, DType dtype, SourceLocation where) const {
  const TensorImpl& p = impl();
  host_reads("to_vector", where);
  if (p.numel == 0) return;
  Tensor host = *this;
  if (!p.device.is_cpu()) {
    Tensor dense = empty(p.sizes, {.dtype = p.dtype, .device = p.device});
    backend(p.device).copy(context(p.device), {dense, *this});
    host = empty(p.sizes, {.dtype = p.dtype});
    void* const stream = current_stream(p.device);
    backend(p.device).copy_bytes(host.data_ptr(), kCPU, dense.data_ptr(), p.device, p.numel * size_of(p.dtype), stream);
    backend(p.device).synchronize(p.device, stream);
  }
  Tensor target = from_blob(to, p.sizes, {.dtype = dtype});
  backend(kCPU).copy(context(kCPU), {target, host});
}

Scalar Tensor::item_scalar(SourceLocation where) const {
  check(numel() == 1, "[item] a Tensor with {} elements cannot be converted to Scalar", numel());
  host_reads("item", where);
  if (is_floating(dtype())) {
    double v;
    return copy_to_host(&v, kFloat64, where), Scalar(v);
  }
  int64_t v;
  copy_to_host(&v, kInt64, where);
  return dtype() == kBool ? Scalar(v != 0) : Scalar(v);
}

int64_t Tensor::item_int(int64_t low, uint64_t high, SourceLocation where) const {
  const Scalar v = item_scalar(where);
  const double d = v.to_double(),
               end = double(high) + 1;  // of 63 and 64 bits the 1 is lost: double(high) is already one more
  const int64_t i = v.to_int();
  const bool fits = v.is_float() ? d >= double(low) && d < end : i >= low && (i < 0 || uint64_t(i) <= high);
  check(fits, "[item] expected a value from {} to {}, got {}", low, std::to_string(high), v);
  return v.is_float() && d >= 0x1p63 ? int64_t(uint64_t(d)) : i;
}

}  // namespace tapir::inline v0
