#pragma once
// Note [Saved-tensor hooks]
// Between forward and backward a saved tensor is only memory. Hooks may keep something else in its place: a copy on the host
// (SaveOnCpu), or nothing at all but the way to compute it again (functional/checkpoint.h). The history of the value stays
// with the node, so double backward is not affected. Leaves that want gradients are alive anyway and are not asked about.
#include <type_traits>
#include <utility>

#include "../core/modes.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// What stands in for a saved tensor.
struct PackedTensor {
  virtual ~PackedTensor() = default;
  /// A tensor of the same shape, dtype and device; called when the gradient function needs it.
  virtual Tensor unpack() = 0;
};

/// In the scope of such an object, pack() sees every tensor that an operation saves. The innermost scope counts.
struct SavedTensorHooks {
  SavedTensorHooks() : scope_(modes.saved_hooks, this) {}
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  virtual ~SavedTensorHooks() = default;
  /// A new object that the node adopts; null: the tensor is kept as it is. Runs under NoGrad and without hooks.
  virtual PackedTensor* pack(const Tensor& x) = 0;

 private:
  ScopedMode<SavedTensorHooks*> scope_;
};

/// Hooks from two functions: pack(Tensor) -> anything, unpack(anything) -> Tensor.
///     auto guard = saved_tensors_hooks([](const Tensor& x) { return x.to(kFloat16); }, [](const Tensor& x) { return x.to(kFloat32); });
template <class Pack, class Unpack> auto saved_tensors_hooks(Pack pack, Unpack unpack) {
  struct Hooks final : SavedTensorHooks {
    struct Held final : PackedTensor {
      Held(const Hooks& h, const Tensor& x) : value(h.pack_(x)), unpack_(h.unpack_) {}
      Tensor unpack() override { return unpack_(value); }
      std::invoke_result_t<const Pack&, const Tensor&> value;
      Unpack unpack_;
    };
    Hooks(Pack pack, Unpack unpack) : pack_(std::move(pack)), unpack_(std::move(unpack)) {}
    PackedTensor* pack(const Tensor& x) override { return new Held(*this, x); }
    Pack pack_;
    Unpack unpack_;
  };
  return Hooks(std::move(pack), std::move(unpack));
}

/// Keeps what is saved in this scope in host memory, and brings it back when backward needs it. With pin_memory that memory is page-locked,
/// and the host does not wait for the copies.
struct [[nodiscard]] SaveOnCpu final : SavedTensorHooks {
  explicit SaveOnCpu(bool pin_memory = false) : pin_memory_(pin_memory) {}
  PackedTensor* pack(const Tensor& x) override;

 private:
  bool pin_memory_;
};

}  // namespace tapir::inline v0
