#pragma once
// Pointers that own, for public headers, which do without <memory>. T may be incomplete: release(T*) and retain(T*) are functions beside it.
#include <utility>

namespace tapir::inline v0::detail {

struct Release {
  template <class T> void operator()(T* p) const { release(p); }
};
struct Delete {
  template <class T> void operator()(T* p) const { delete p; }
};

/// The only owner of a T, which Drop ends. Move assignment swaps: the other owner then has what this one had.
template <class T, class Drop = Release> class Owner {
 public:
  Owner() = default;
  explicit Owner(T* adopted) : p_(adopted) {}
  Owner(Owner&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Owner& operator=(Owner&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Owner() {
    if (p_) Drop()(p_);
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }

 private:
  T* p_ = nullptr;
};

/// One of the owners of a T, which counts them: retain() adds one, release() takes one away.
template <class T> class Handle : public Owner<T> {
 public:
  using Owner<T>::Owner;
  Handle() = default;
  Handle(const Handle& o) : Owner<T>(o.get()) {
    if (o) retain(o.get());
  }
  Handle(Handle&&) noexcept = default;
  Handle& operator=(const Handle& o) { return *this = Handle(o); }
  Handle& operator=(Handle&&) noexcept = default;
};

}  // namespace tapir::inline v0::detail
