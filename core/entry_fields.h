#pragma once
// What the declarations of core/entries.h say, at compile time: the fields of an entry and the number of an operand. Not for public headers.
#include <array>
#include <string_view>
#include <type_traits>

#include "entries.h"

namespace tapir::inline v0::entry {
namespace detail {

/// Becomes whatever an aggregate's field is initialised from.
struct Anything {
  template <class T>
  requires(!std::is_base_of_v<Tensor, T>) operator T() const;
};
template <class E, class... A> consteval int count_fields() {
  if constexpr (requires { E{A{}..., Anything{}}; }) return count_fields<E, A..., Anything>();
  else return int(sizeof...(A));
}

}  // namespace detail

template <class T>
concept OneOperand = std::derived_from<T, TensorView>;
template <class T>
concept ManyOperands = std::derived_from<T, std::span<const TensorView>>;

/// function(fields...), in the order of their declaration.
template <class E, class F> constexpr decltype(auto) with_fields(E& value, F&& function) {
  constexpr int count = detail::count_fields<std::remove_const_t<E>>();
  static_assert(count <= 12 || count == 17, "an entry of so many fields needs another line here");
  // clang-format off
#define X(n, ...) if constexpr (count == n) { auto& [__VA_ARGS__] = value; return function(__VA_ARGS__); }
  X(1, f0)
  X(2, f0, f1)
  X(3, f0, f1, f2)
  X(4, f0, f1, f2, f3)
  X(5, f0, f1, f2, f3, f4)
  X(6, f0, f1, f2, f3, f4, f5)
  X(7, f0, f1, f2, f3, f4, f5, f6)
  X(8, f0, f1, f2, f3, f4, f5, f6, f7)
  X(9, f0, f1, f2, f3, f4, f5, f6, f7, f8)
  X(10, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9)
  X(11, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10)
  X(12, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11)
  X(17, f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16)
#undef X
  // clang-format on
}
/// f(field) for each.
template <class E, class F> constexpr void each_field(E& e, F&& f) {
  with_fields(e, [&](auto&... fields) { (f(fields), ...); });
}

/// f.operator()<E>() for the entry of that id; nothing for copy_bytes.
template <class F> void with_entry(Id id, F&& f) {
  switch (id) {
#define X(name, E) \
  case Id::name: return f.template operator()<E>();
    TAPIR_ENTRIES(X)
#undef X
    case Id::copy_bytes: return;
  }
}

/// The number of an operand among the fields of its entry.
template <class E, class T> size_t index_of(T E::*member) {
  static const E any{};
  size_t at = 0, found = 0;
  each_field(any, [&](const auto& field) {
    if (static_cast<const void*>(&field) == static_cast<const void*>(&(any.*member))) found = at;
    ++at;
  });
  return found;
}

}  // namespace tapir::inline v0::entry
