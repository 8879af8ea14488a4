#pragma once
#include "../core/convert.h"

namespace tapir::inline v0::cpu {

/// n contiguous elements of one dtype to another.
using Converter = void (*)(int64_t n, void* to, const void* from);
Converter converter(DType to, DType from);
/// Writes the number as one element.
void store_scalar(void* to, DType dtype, Scalar value);

}  // namespace tapir::inline v0::cpu
