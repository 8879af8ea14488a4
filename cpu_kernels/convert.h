#pragma once
#include "../core/convert.h"

namespace tapir::inline v0::cpu {

/// How a loop reads elements: GCC 12 does not vectorise one that reads a bool.
template <class T> using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
template <class T> constexpr T from_stored(Stored<T> x) {
  if constexpr (std::is_same_v<T, bool>) return x != 0;
  else return x;
}

/// n contiguous elements of one dtype to another.
using Converter = void (*)(int64_t n, void* to, const void* from);
Converter converter(DType to, DType from);
/// Writes the number as one element.
void store_scalar(void* to, DType dtype, Scalar value);

}  // namespace tapir::inline v0::cpu
