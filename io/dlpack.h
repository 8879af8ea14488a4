#pragma once
#include "../core/tensor.h"

// The structures of DLPack's C interface (dmlc/dlpack, dlpack.h), which a program that exchanges tensors includes for itself.
struct DLManagedTensor;           // up to DLPack 0.8
struct DLManagedTensorVersioned;  // DLPack 1.x

namespace tapir::inline v0::io {

/// x's memory for another library, not copied: it lives until `deleter` is called on the result, once, from any thread.
/// ValueError for a tensor that requires grad.
[[nodiscard]] DLManagedTensorVersioned* to_dlpack(const Tensor& x);
/// The same for libraries that know no versions. ValueError also for read-only memory, which this form cannot tell of.
[[nodiscard]] DLManagedTensor* to_dlpack_legacy(const Tensor& x);

/// Another library's memory as a tensor, not copied. The capsule is taken over, also where this throws: its deleter is called once,
/// at the end of the last tensor that sees it. Memory flagged read-only refuses writes in place. ValueError for what Tapir has no
/// dtype or device for, negative sizes and strides, misaligned addresses, and another major version.
Tensor from_dlpack(DLManagedTensorVersioned* capsule);
Tensor from_dlpack(DLManagedTensor* capsule);

}  // namespace tapir::inline v0::io
