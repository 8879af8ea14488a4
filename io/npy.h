#pragma once
#include <string>

#include "../core/state_dict.h"

namespace tapir::inline v0::io {

struct NpyOptions {
  bool widen_unsigned = false;  // uint16 as int32, uint32 as int64, which hold the same numbers; else they are refused
};
/// The array of a NumPy .npy file (versions 1 to 3, either byte order, Fortran order as transposed strides). RuntimeError
/// for dtypes that Tapir lacks, object arrays and a header that does not fit the bytes; the header is never evaluated.
Tensor load_npy(const std::string& path, const NpyOptions& options = {});
/// Writes a .npy file atomically; bfloat16, which NumPy lacks, is a ValueError.
void save_npy(const std::string& path, const Tensor& x);

struct NpzOptions {
  bool compress = false;  // deflate, as numpy.savez_compressed
};
struct LoadNpzOptions {
  bool widen_unsigned = false;  // as in NpyOptions
  bool skip_unsupported =
      false;  // leave out arrays of dtypes that Tapir lacks; else the first is an error that names it
};
/// The arrays of a NumPy .npz archive under their names without ".npy", checksums compared.
StateDict load_npz(const std::string& path, const LoadNpzOptions& options = {});
/// Writes what numpy.load reads, atomically.
void save_npz(const std::string& path, const StateDict& arrays, const NpzOptions& options = {});

}  // namespace tapir::inline v0::io
