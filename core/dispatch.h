#pragma once
#include <string_view>

#include "error.h"

// From a dtype to a type: for_all("copy", dtype, [&]<class T>() { ... }). Where the list has no such dtype: ValueError.
namespace tapir::inline v0 {

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_dtype(std::string_view op, DType dtype) {
  fail(ErrorKind::Value, "[{}] not implemented for {}", op, name_of(dtype));
}

/// float32, float64: what float operations compute in.
template <class F> decltype(auto) for_floats(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case kFloat32: return f.template operator()<float>();
    case kFloat64: return f.template operator()<double>();
    default: fail_dtype(op, dtype);
  }
}

/// The integers, bool among them.
template <class F> decltype(auto) for_integers(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case kInt64: return f.template operator()<int64_t>();
    case kInt32: return f.template operator()<int32_t>();
    case kInt16: return f.template operator()<int16_t>();
    case kInt8: return f.template operator()<int8_t>();
    case kUInt8: return f.template operator()<uint8_t>();
    case kBool: return f.template operator()<bool>();
    default: fail_dtype(op, dtype);
  }
}

/// All compute types: the 16-bit floats are not among them (compute_type() gives float32 for those).
template <class F> decltype(auto) for_compute(std::string_view op, DType dtype, F&& f) {
  if (is_floating(dtype)) return for_floats(op, dtype, f);
  return for_integers(op, dtype, f);
}

/// All ten dtypes.
template <class F> decltype(auto) for_all(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case kFloat16: return f.template operator()<Half>();
    case kBFloat16: return f.template operator()<BFloat16>();
    default: return for_compute(op, dtype, f);
  }
}

/// The four floats.
template <class F> decltype(auto) for_any_float(std::string_view op, DType dtype, F&& f) {
  switch (dtype) {
    case kFloat16: return f.template operator()<Half>();
    case kBFloat16: return f.template operator()<BFloat16>();
    default: return for_floats(op, dtype, f);
  }
}

/// An integer as wide as the elements: for kernels that only move them.
template <class F> decltype(auto) for_size(DType dtype, F&& f) {
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

}  // namespace tapir::inline v0
