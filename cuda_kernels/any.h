#pragma once
#include "../core/convert.h"
#include "kernel.h"

// Elements of a dtype that is known only when the kernel runs: for what is rare, or small beside the rest.
namespace tapir::inline v0::cuda_kernels {

/// Calls f<T>() with the type of dtype.
template <class F> __device__ __forceinline__ auto for_dtype(DType dtype, F&& f) {
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

/// Element `i` as a C, by the rules of copy().
template <class C> __device__ C load_any(const void* data, int64_t i, DType dtype) {
  return for_dtype(dtype, [&]<class T>() { return cast<C>(widen(static_cast<const T*>(data)[i])); });
}
template <class C> __device__ void store_any(void* data, int64_t i, DType dtype, C value) {
  for_dtype(dtype, [&]<class T>() { static_cast<T*>(data)[i] = narrow<T>(cast<Compute<T>>(value)); });
}

/// The same for floats alone.
template <class C> __device__ __forceinline__ C load_float(const void* data, int64_t i, DType dtype) {
  switch (dtype) {
    case kFloat32: return C(static_cast<const float*>(data)[i]);
    case kFloat64: return C(static_cast<const double*>(data)[i]);
    case kFloat16: return C(widen(static_cast<const Half*>(data)[i]));
    default: return C(widen(static_cast<const BFloat16*>(data)[i]));
  }
}
template <class C> __device__ __forceinline__ void store_float(void* data, int64_t i, DType dtype, C value) {
  switch (dtype) {
    case kFloat32: static_cast<float*>(data)[i] = float(value); break;
    case kFloat64: static_cast<double*>(data)[i] = double(value); break;
    case kFloat16: static_cast<Half*>(data)[i] = narrow<Half>(float(value)); break;
    default: static_cast<BFloat16*>(data)[i] = narrow<BFloat16>(float(value));
  }
}

}  // namespace tapir::inline v0::cuda_kernels
