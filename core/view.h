#pragma once
#include <cstdint>
#include <span>

#include "device.h"
#include "dims.h"
#include "dtype.h"
#include "scalar.h"
#include "tensor.h"

namespace tapir::inline v0 {

/// What a kernel sees of a tensor: no tape, no ownership. A pointwise operand may instead be a number (`is_scalar`).
struct TensorView {
  void* data = nullptr;
  DType dtype = kFloat32;
  bool is_scalar = false;
  Device device;
  int64_t rank = 0;
  Scalar scalar;
  Storage* storage = nullptr;                  // whose memory it is, for a recorder; kernels look at data alone
  int64_t sizes[kMaxRank], strides[kMaxRank];  // strides in elements; only the first `rank` are set

  TensorView() = default;  // absent: defined() is false
  TensorView(const Tensor& t) {
    if (const TensorImpl* p = t.impl_or_null()) {
      data = p->data(), dtype = p->dtype, device = p->device, rank = p->sizes.size(), storage = p->storage.get();
      for (int64_t i = 0; i < rank; ++i) sizes[i] = p->sizes[i], strides[i] = p->strides[i];
    }
    defined_ = t.defined();
  }
  TensorView(Scalar number, DType dtype) : dtype(dtype), is_scalar(true), scalar(number), defined_(true) {}
  bool defined() const { return defined_; }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
  Shape shape() const { return std::span<const int64_t>(sizes, size_t(rank)); }
  Strides stride_list() const { return std::span<const int64_t>(strides, size_t(rank)); }
  bool is_contiguous() const {
    int64_t step = 1;
    for (int64_t i = rank; i-- > 0;) {
      if (sizes[i] == 0) return true;
      if (sizes[i] != 1 && strides[i] != step) return false;
      step *= sizes[i];
    }
    return true;
  }
  template <class T> T* as() const { return static_cast<T*>(data); }
  /// This view broadcast to `shape` (it must fit): stride 0 along the axes that repeat.
  TensorView expand(const Shape& shape) const {
    TensorView v = *this;
    v.rank = shape.size();
    for (int64_t i = 0; i < v.rank; ++i) {
      const int64_t from = i - (v.rank - rank);
      v.sizes[i] = shape[i];
      v.strides[i] = from < 0 || sizes[from] == 1 ? 0 : strides[from];
    }
    return v;
  }

 private:
  bool defined_ = false;
};

}  // namespace tapir::inline v0
