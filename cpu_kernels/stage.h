#pragma once
#include "../core/dispatch.h"
#include "convert.h"
#include "kernels.h"
#include "walk.h"

namespace tapir::inline v0::cpu {

/// `count` elements of a float view, `step` apart from `offset` on, as C (float or double); and back.
template <class C> void load_row(V v, int64_t offset, int64_t step, int64_t count, C* to) {
  const char* const from = v.as<char>() + offset * size_of(v.dtype);
  if (step == 1) return converter(dtype_of<C>, v.dtype)(count, to, from);
  for_any_float("load", v.dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) to[i] = C(reinterpret_cast<const T*>(from)[i * step]);
  });
}
template <class C> void store_row(V v, int64_t offset, int64_t step, int64_t count, const C* from) {
  char* const to = v.as<char>() + offset * size_of(v.dtype);
  if (step == 1) return converter(v.dtype, dtype_of<C>)(count, to, from);
  for_any_float("store", v.dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<T*>(to)[i * step] = T(from[i]);
  });
}

/// A small float operand (weight, statistics) in row-major order as C: the view's own memory where it fits, else scratch.
/// Null when the view is absent.
template <class C> C* staged(Context& ctx, V v, bool read) {
  if (!v.defined()) return nullptr;
  if (v.dtype == dtype_of<C> && v.is_contiguous()) return v.as<C>();
  const Walk<1> walk(v.shape(), {v.strides});
  C* const to = ctx.scratch_of<C>(walk.total);
  if (read)
    walk.run(0, walk.total, [&](int64_t i, int64_t n, const auto& at) { load_row(v, at[0], walk.step(0), n, to + i); });
  return to;
}
/// Brings what was written to a staged operand into the view, where that is another place.
template <class C> void unstage(V v, const C* from) {
  if (!v.defined() || from == v.data) return;
  const Walk<1> walk(v.shape(), {v.strides});
  walk.run(0, walk.total,
           [&](int64_t i, int64_t n, const auto& at) { store_row(v, at[0], walk.step(0), n, from + i); });
}

/// The value of a 0-dim float or integer view, or of a number.
inline double number_of(V v) {
  if (v.is_scalar) return v.scalar.to_double();
  return for_all("item", v.dtype, [&]<class T>() { return double(*v.as<T>()); });
}

}  // namespace tapir::inline v0::cpu
