#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

#include "../core/backend.h"
#include "../core/convert.h"

// Elements whose dtype is known when the kernel runs: where memory, not the choice, takes the time, one kernel serves all dtypes.
namespace tapir::inline v0::cuda_kernels {

/// f.operator()<T>() for the type of `dtype`; within a warp all take the same branch.
template <class F> __device__ inline void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case kFloat32: return f.template operator()<float>();
    case kFloat64: return f.template operator()<double>();
    case kFloat16: return f.template operator()<Half>();
    case kBFloat16: return f.template operator()<BFloat16>();
    case kInt64: return f.template operator()<int64_t>();
    case kInt32: return f.template operator()<int32_t>();
    case kInt16: return f.template operator()<int16_t>();
    case kInt8: return f.template operator()<int8_t>();
    case kUInt8: return f.template operator()<uint8_t>();
    default: return f.template operator()<bool>();
  }
}

/// Element `i` of an array of `dtype`, as C.
template <class C> __device__ inline C load_as(const void* data, DType dtype, int64_t i) {
  C value{};
  with_type(dtype, [&]<class T>() { value = cast<C>(static_cast<const T*>(data)[i]); });
  return value;
}
template <class C> __device__ inline void store_as(void* data, DType dtype, int64_t i, C value) {
  with_type(dtype, [&]<class T>() { static_cast<T*>(data)[i] = cast<T>(value); });
}

/// Sixteen bytes that are moved as one.
struct alignas(16) Bytes16 {
  uint64_t low, high;
};
/// f.operator()<T>() for a type of `bytes` bytes that is only moved.
template <class F> void for_width(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    case 8: return f.template operator()<uint64_t>();
    default: return f.template operator()<Bytes16>();
  }
}

/// The highest bit that is set in `n`, counted from 1: how many bits of a key count.
inline int bits_of(uint64_t n) { return 64 - std::countl_zero(n); }

}  // namespace tapir::inline v0::cuda_kernels
