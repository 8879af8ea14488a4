#include "saved_hooks.h"

#include <memory>

#include "arith.h"
#include "meta.h"
#include "record.h"

namespace tapir::inline v0 {

struct SavedTensor::Packed {
  std::unique_ptr<PackedTensor> content;
  Edge history;
  Shape shape;
  DType dtype;
  Device device;
};

void SavedTensor::pack(const Tensor& value, SavedTensorHooks& hooks) {
  if (value.requires_grad() && value.is_leaf()) return;
  ScopedMode<SavedTensorHooks*> none(modes.saved_hooks, nullptr);
  NoGrad guard;
  std::unique_ptr<PackedTensor> content(hooks.pack(value.detach()));
  if (!content) return;
  packed_ = new Packed{std::move(content), is_output_ ? Edge() : edge_of(value), value.shape(), value.dtype(),
                       value.device()};
  value_.reset();
}

Tensor SavedTensor::unpack_packed(Node* self) const {
  ScopedMode<SavedTensorHooks*> none(modes.saved_hooks, nullptr);
  Tensor y = packed_->content->unpack();
  check(y.defined() && y.shape() == packed_->shape && y.dtype() == packed_->dtype && y.device() == packed_->device,
        "[saved_tensor_hooks] expected unpack to give {} {} on {}, as saved by {}, got {}", packed_->dtype,
        packed_->shape, packed_->device, self ? self->name : "checkpoint", y);
  y = y.detach();
  if (!modes.grad) return y;
  if (is_output_) set_producer(Edge(self, output_index_), y);
  else if (packed_->history.node()) set_producer(packed_->history, y);
  return y;
}

void SavedTensor::free_packed() { delete std::exchange(packed_, nullptr); }

PackedTensor* SaveOnCpu::pack(const Tensor& x) {
  struct OnHost final : PackedTensor {
    Tensor copy;
    Device device;
    bool pinned;
    OnHost(const Tensor& x, bool pinned)
        : copy(x.to(kCPU, pinned)), device(x.device()), pinned(pinned) {}  // both ways on the same queue
    Tensor unpack() override { return copy.to(device, pinned); }
  };
  if (x.device().is_cpu()) return nullptr;  // it is there already
  return new OnHost(x, pin_memory_);
}

}  // namespace tapir::inline v0
