#include "dlpack.h"

#include <limits>
#include <span>

#include "../autograd/record.h"
#include "../core/backend.h"
#include "dlpack_abi.h"

namespace tapir::inline v0::io {

namespace {

constexpr uint32_t kMajor = 1, kMinor = 0;

/// Row i is DType i's.
constexpr DLDataType kTypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 64, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},
                                 {kDLInt, 64, 1},   {kDLInt, 32, 1},   {kDLInt, 16, 1},   {kDLInt, 8, 1},
                                 {kDLUInt, 8, 1},   {kDLBool, 8, 1}};
static_assert(std::size(kTypes) == kNumDTypes && int(kFloat16) == 2 && int(kInt64) == 4 && int(kBool) == 9);

/// Calls the capsule's deleter, unless the capsule was passed on.
template <class Managed> struct Guard {
  Managed* capsule;
  ~Guard() {
    if (capsule && capsule->deleter) capsule->deleter(capsule);
  }
};

DType dtype_of_capsule(const DLDataType& t) {
  check(t.lanes == 1, "[from_dlpack] expected lanes of 1, got {}", int(t.lanes));
  for (int i = 0; i < kNumDTypes; ++i)
    if (kTypes[i].code == t.code && kTypes[i].bits == t.bits) return DType(i);
  fail(ErrorKind::Value, "[from_dlpack] expected a dtype that Tapir has, got dtype code {} with {} bits", int(t.code),
       int(t.bits));
}

Device device_of_capsule(const DLDevice& d) {
  if (d.device_type == kDLCPU || d.device_type == kDLCUDAHost) return kCPU;
  check(d.device_type == kDLCUDA, "[from_dlpack] expected a CPU or CUDA device, got device type {}",
        int(d.device_type));
  check(d.device_id >= 0 && d.device_id <= std::numeric_limits<int8_t>::max(),
        "[from_dlpack] expected a device index from 0 to 127, got {}", d.device_id);
  const Device device(DeviceType::CUDA, int8_t(d.device_id));
  check(built_in_backend(DeviceType::CUDA) != nullptr,
        "[from_dlpack] expected a device that this program can use, got {}", device);
  return device;
}

Tensor imported(const DLTensor& t, void (*release)(Storage&), void* context) {
  check(t.ndim >= 0 && t.ndim <= kMaxRank, "[from_dlpack] expected ndim from 0 to {}, got {}", kMaxRank, t.ndim);
  check(t.ndim == 0 || t.shape, "[from_dlpack] expected a shape of {} sizes, got a null pointer", t.ndim);
  const TensorOptions options{.dtype = dtype_of_capsule(t.dtype), .device = device_of_capsule(t.device)};
  const auto rank = size_t(t.ndim);
  const Shape shape = std::span<const int64_t>(t.shape, rank);
  const Strides strides = t.strides ? Strides(std::span<const int64_t>(t.strides, rank)) : Strides();
  const auto address = uintptr_t(t.data);
  check(t.byte_offset <= std::numeric_limits<uintptr_t>::max() - address &&
            t.byte_offset % uint64_t(size_of(*options.dtype)) == 0,
        "[from_dlpack] expected a byte_offset in steps of {} bytes, got {}", size_of(*options.dtype),
        int64_t(t.byte_offset));
  void* const data = t.data ? reinterpret_cast<void*>(address + t.byte_offset) : nullptr;
  return from_blob("from_dlpack", data, shape, t.strides ? &strides : nullptr, options, release, context);
}

template <class Managed> Tensor adopted(Guard<Managed>& guard) {
  const Tensor x = imported(
      guard.capsule->dl_tensor, [](Storage& s) { const Guard<Managed> last{static_cast<Managed*>(s.context)}; },
      guard.capsule);
  guard.capsule = nullptr;  // now the storage's
  return x;
}

/// A capsule and the tensor that keeps its memory, shape and strides.
template <class Managed> Managed* exported(const char* op, const Tensor& x) {
  check(x.defined(), "[{}] expected a tensor, got an undefined one", op);
  check(!x.requires_grad(), "[{}] can't export tensors that require gradient, got {}; export x.detach()", op, x);
  struct Owned {
    Managed capsule{};
    Tensor kept;
  };
  auto* owned = new Owned{{}, alias(x, x.shape(), x.strides(), x.storage_offset())};
  TensorImpl& p = owned->kept.impl();
  owned->capsule.dl_tensor = {.data = p.data(),
                              .device = {p.device.is_cuda() ? kDLCUDA : kDLCPU, p.device.index},
                              .ndim = int32_t(p.sizes.size()),
                              .dtype = kTypes[int(p.dtype)],
                              .shape = p.sizes.data(),
                              .strides = p.strides.data(),
                              .byte_offset = 0};
  owned->capsule.manager_ctx = owned;
  owned->capsule.deleter = [](Managed* m) { delete static_cast<Owned*>(m->manager_ctx); };
  return &owned->capsule;
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& x) {
  auto* m = exported<DLManagedTensorVersioned>("to_dlpack", x);
  m->version = {kMajor, kMinor};
  m->flags = x.impl().storage->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return m;
}
DLManagedTensor* to_dlpack_legacy(const Tensor& x) {
  if (x.defined()) check_writable("to_dlpack_legacy", x);
  return exported<DLManagedTensor>("to_dlpack_legacy", x);
}

Tensor from_dlpack(DLManagedTensorVersioned* capsule) {
  check(capsule, "[from_dlpack] expected a capsule, got a null pointer");
  Guard<DLManagedTensorVersioned> guard{capsule};
  // Of another major version nothing but the deleter may be touched.
  check(capsule->version.major == kMajor, "[from_dlpack] expected DLPack of major version {}, got {}.{}", kMajor,
        capsule->version.major, capsule->version.minor);
  const bool read_only = capsule->flags & DLPACK_FLAG_BITMASK_READ_ONLY;
  const Tensor x = adopted(guard);
  x.impl().storage->read_only = read_only;
  return x;
}
Tensor from_dlpack(DLManagedTensor* capsule) {
  check(capsule, "[from_dlpack] expected a capsule, got a null pointer");
  Guard<DLManagedTensor> guard{capsule};
  return adopted(guard);
}

}  // namespace tapir::inline v0::io
