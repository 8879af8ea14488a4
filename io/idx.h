#pragma once
#include <string>

#include "../core/tensor.h"

namespace tapir::inline v0::io {

/// Reads an IDX file (http://yann.lecun.com/exdb/mnist), gzip-compressed or not: bytes 0, 0, type, rank, then
/// big-endian extents and elements. Types 08 uint8, 09 int8, 0B int16, 0C int32, 0D float32, 0E float64. RuntimeError
/// where the sizes do not fit.
Tensor read_idx(const std::string& path);
/// Writes one of those dtypes, atomically; compressed when the path ends in ".gz". ValueError for other dtypes and for
/// rank 0.
void write_idx(const std::string& path, const Tensor& x);

}  // namespace tapir::inline v0::io
