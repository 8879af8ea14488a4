#pragma once
// What the declarations of core/entries.h say, at compile time: the fields of an entry and the number of an operand. Not for public headers.
#include <array>
#include <string_view>
#include <type_traits>

#include "entries.h"
#include "spread_fields.h"

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
  return tapir::detail::spread_fields<detail::count_fields<std::remove_const_t<E>>()>(value, function);
}
/// f(field) for each.
template <class E, class F> constexpr void each_field(E& e, F&& f) {
  with_fields(e, [&](auto&... fields) { (f(fields), ...); });
}

/// f.operator()<E>() for the entry of that id; nothing for those beside them.
template <class F> void with_entry(Id id, F&& f) {
  switch (id) {
#define X(name, E) \
  case Id::name: return f.template operator()<E>();
    TAPIR_ENTRIES(X)
#undef X
    default: return;
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
