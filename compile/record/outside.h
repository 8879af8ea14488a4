#pragma once
// What a program knows of what lies outside of it, by object and version: Note [What a compiled program takes for constant]. It keeps
// nothing alive but while it runs: the memory of a net that is gone is free at once.
#include <string_view>
#include <vector>

#include "../../core/tensor.h"
#include "../../core/versioned.h"
#include "../program/program.h"

namespace tapir::inline v0::ir {

/// A weak handle to a tensor, which reads like one while that is alive.
class WeakTensor {
 public:
  WeakTensor() = default;
  explicit WeakTensor(const Tensor& x) : known_(x.impl_or_null()), borrowed_(known_.get()) {}
  WeakTensor(WeakTensor&& o) noexcept { *this = std::move(o); }
  WeakTensor& operator=(WeakTensor&& o) noexcept {
    known_ = std::move(o.known_);
    new (&borrowed_.tensor) Tensor(known_.get());
    new (&o.borrowed_.tensor) Tensor(o.known_.get());
    return *this;
  }
  bool alive() const { return known_.alive(); }
  bool empty() const { return !known_; }
  /// A counted handle; undefined where the tensor is gone.
  Tensor lock() const { return known_.lock() ? Tensor(known_.get()) : Tensor(); }
  const Tensor& operator*() const { return borrowed_.tensor; }
  const Tensor* operator->() const { return &borrowed_.tensor; }

 private:
  union Borrowed {  // a handle that is not counted
    Tensor tensor;
    explicit Borrowed(TensorImpl* p) : tensor(p) {}
    ~Borrowed() {}
  };
  detail::Weak<TensorImpl> known_;
  Borrowed borrowed_{nullptr};
};

/// Is what lies outside as it was when a program was recorded? OtherStart: not now, but it may be again (flags, gradients that are there).
enum class Fit : uint8_t { Same, OtherStart, Changed };

/// Handles for the time of a call: another thread may let go of the same objects.
struct Held {
  std::vector<StoragePtr> storages;
  std::vector<Tensor> leaves;
  void release() { storages.clear(), leaves.clear(); }
};

struct Outside {
  /// Memory that kernels saw and that stays where it is.
  struct Seen {
    detail::Weak<Storage> storage;
    int block;
    uint32_t raised;           // a call raises its version by so much
    uint32_t handles, leaves;  // of the storage, after the call and before it
  };
  /// A module or an optimizer that was asked.
  struct Object {
    detail::Handle<detail::Stamp> stamp;
    const void* place;
    uint32_t version;
    bool flag;  // before the call
  };
  /// A leaf whose gradient changes.
  struct GradSlot {
    WeakTensor leaf;
    bool relevant, had;  // does the program depend on the gradient at the start? Was there one?
    View start, end;
    WeakTensor outside;  // the gradient at the end, where that is another tensor from outside than at the start
  };
  std::vector<Seen> storages;
  std::vector<Object> objects;
  std::vector<GradSlot> grads;
  std::vector<WeakTensor> asked;  // leaves whose gradients must be there

  /// Of gradients only whether they are there; `why` says what differs. `held`: what must stay alive until the call is over.
  Fit fit(const char*& why, Held& held) const;
  /// Do both begin with the same flags, and the same gradients there?
  bool same_start(const Outside& other) const;
};

}  // namespace tapir::inline v0::ir
