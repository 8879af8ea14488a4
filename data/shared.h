#pragma once
#include <atomic>
#include <type_traits>
#include <utility>

#include "../core/error.h"

namespace tapir::inline v0::data {

/// Shared ownership of one T: what loaders, their iterators, worker threads and decorators hold a dataset by. Made from
/// a T, which is moved in, or of a class derived from T.
template <class T> class Shared {
  struct Block {
    std::atomic<int> refs{1};
    virtual ~Block() = default;
  };
  template <class D> struct Holder final : Block {
    template <class... A> explicit Holder(A&&... a) : value(std::forward<A>(a)...) {}
    D value;
  };

 public:
  Shared() = default;
  template <class D>
  requires(std::is_convertible_v<std::remove_cvref_t<D>*, T*>) Shared(D&& value)
      : Shared(std::in_place_type<std::remove_cvref_t<D>>, std::forward<D>(value)) {}
  template <class D, class... A> explicit Shared(std::in_place_type_t<D>, A&&... a) {
    auto* holder = new Holder<D>(std::forward<A>(a)...);
    block_ = holder, value_ = &holder->value;
  }
  Shared(const Shared& o) : block_(o.block_), value_(o.value_) {
    if (block_) block_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Shared(Shared&& o) noexcept : block_(std::exchange(o.block_, nullptr)), value_(std::exchange(o.value_, nullptr)) {}
  Shared& operator=(Shared o) noexcept {
    std::swap(block_, o.block_);
    std::swap(value_, o.value_);
    return *this;
  }
  ~Shared() {
    if (block_ && block_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete block_;
  }
  /// ValueError where there is none: it was moved from, or never made.
  T& operator*() const { return *operator->(); }
  T* operator->() const {
    check(value_, "[Shared] expected an object, got none: it was moved from, or never made");
    return value_;
  }
  T* get() const { return value_; }
  explicit operator bool() const { return value_ != nullptr; }

 private:
  Block* block_ = nullptr;
  T* value_ = nullptr;
};
template <class D> Shared(D) -> Shared<D>;

}  // namespace tapir::inline v0::data
