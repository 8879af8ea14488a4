#pragma once
#include <string>

#include "value.h"

namespace tapir::inline v0::io {

struct PtOptions {
  Device device = kCPU;  // where tensors go, whatever device they were saved from
};

/// What torch.save wrote to a .pt or .pth file. Tensors that shared a storage share it again, with their strides.
/// Nothing in the file is ever run: a fixed list of names is understood. RuntimeError for what is not such a file, for
/// damage (every checksum is compared), and for what is not plain data (a pickled module).
Value load_pt(const std::string& path, const PtOptions& options = {});

/// Writes what torch.load(path, weights_only=True) reads, atomically (io/file.h). Tensors that share memory share it in
/// the file, the others are written as their logical elements, whatever the strides and device. ValueError for more
/// than 200 levels.
void save_pt(const std::string& path, const Value& value);

}  // namespace tapir::inline v0::io
