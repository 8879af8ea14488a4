#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "value.h"

// The pickles inside .pt files. Reading never runs anything: a fixed list of names is understood, every other is
// refused.
namespace tapir::inline v0::io::pickle {

/// A tensor as a pickle tells of it: a geometry over a storage that lies elsewhere.
struct TensorRecord {
  std::string_view storage;   // its name
  int64_t storage_count = 0;  // of elements
  DType dtype = kFloat32;
  bool untyped = false;  // storage_count is in bytes
  int64_t offset = 0;
  Shape sizes;
  Strides strides;
  bool requires_grad = false;
};

/// What reader and writer of pickles leave to the file around them.
struct Tensors {
  virtual ~Tensors() = default;
  virtual Tensor read(const TensorRecord& record) = 0;
  virtual TensorRecord write(const Tensor& tensor) = 0;
};

/// The value of a pickle of protocol 2 to 5 as torch.save writes it. RuntimeErrors begin with `where`.
Value read(std::string_view bytes, const std::string& where, Tensors& tensors);
/// Protocol 2. ValueError for more than 200 levels.
std::string write(const Value& value, Tensors& tensors);

/// What torch calls the storage of a dtype: "FloatStorage".
const char* storage_name(DType dtype);

}  // namespace tapir::inline v0::io::pickle
