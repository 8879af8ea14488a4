#pragma once
// What the type of a listed field holds: what the walk over fields opens, and what it would pass by in silence.
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "../core/tensor.h"

namespace tapir::inline v0::nn {

class Module;
class AnyModule;
template <class T>
concept TensorField = std::derived_from<T, Tensor>;
template <class T>
concept ModuleField = std::derived_from<T, Module>;

/// True for a type that a field may have although it holds tensors: they are not the module's, and its copy in a clone() shares them.
///     template <> inline constexpr bool tapir::nn::plain_field<Cache> = true;
template <class T> inline constexpr bool plain_field = false;

namespace detail {

template <class T>
concept RangeField = requires(T& t) {
  t.end();
  requires std::is_same_v < std::remove_cvref_t<decltype(*t.begin())>,
  typename T::value_type > ;
}
&&!std::is_same_v<std::remove_const_t<T>, std::string> && !std::is_same_v<T, Dims> &&
    !std::is_same_v<T, typename T::value_type>;
/// A map from what makes a name: a string, or a number.
template <class T>
concept MapField = RangeField<T> && requires {
  typename T::mapped_type;
  requires std::is_same_v<typename T::key_type, std::string> || std::is_integral_v<typename T::key_type>;
};
/// A name and what it stands for: an entry of a map, or of a vector of pairs.
template <class T>
concept NamedField = requires(T& t) {
  t.second;
  requires std::is_same_v<std::remove_cvref_t<decltype(t.first)>, std::string>;
};
/// optional, unique_ptr, shared_ptr, AnyModule
template <class T>
concept HandleField = requires(T& t) {
  *t;
  static_cast<bool>(t);
}
&&!std::is_pointer_v<T> && !TensorField<T> && !ModuleField<T> && !requires(T & t) { +t; };  // a lambda is none
/// One that others may hold too.
template <class T>
concept SharedField = HandleField<T> && requires(T& t) {
  t.use_count();
  T(t, t.get());
};

template <class T, int depth> constexpr bool holds();
/// Converts to anything (-1), to nothing (0), or to what holds a tensor.
template <int depth> struct Value {
  template <class T>
  requires(depth < 0 || holds<T, depth>()) operator T() const;
};
/// Can T{...} take as many values as there are indices, the one at `at` a Value<depth>?
template <class T, int depth, size_t at, size_t... More> constexpr bool takes(std::index_sequence<More...>) {
  return requires { T{Value < More == at ? depth : -1 > {}...}; };
}
template <class T, int depth, size_t... At> constexpr bool takes_any(std::index_sequence<At...> all) {
  return ((takes<T, depth, At>(all) && !takes<T, 0, At>(all)) || ...);  // a std::any takes the Value itself
}
/// Does one of an aggregate's first n fields hold a tensor? How many it has shows in how many values its braces take.
template <class T, int depth, size_t n = 16> constexpr bool aggregate_holds() {
  using All = std::make_index_sequence<n>;
  if constexpr (n == 0) return false;
  else if constexpr (takes<T, -1, 0>(All())) return takes_any<T, depth>(All());
  else return aggregate_holds<T, depth, n - 1>();
}
template <class T, int depth> constexpr bool arguments_hold = false;
template <template <class...> class C, class... A, int depth>
constexpr bool arguments_hold<C<A...>, depth> = (holds<A, depth>() || ...);

/// Does a T hold a tensor or a module, as far as its type shows? The private members of a class do not.
template <class T, int depth> constexpr bool holds() {
  using Of = std::remove_pointer_t<std::remove_cvref_t<T>>;
  if constexpr (!std::is_same_v<Of, T>) return holds<Of, depth>();
  else if constexpr (std::is_array_v<T>) return holds<std::remove_all_extents_t<T>, depth>();
  else if constexpr (depth == 0 || !std::is_class_v<T> || plain_field<T>) return false;
  else if constexpr (!requires { sizeof(T); }) return false;  // declared only
  else if constexpr (TensorField<T> || ModuleField<T> || std::is_same_v<T, AnyModule>) return true;
  else if constexpr (std::is_empty_v<T>) return false;
  else if constexpr (arguments_hold<T, depth - 1>) return true;
  else if constexpr (RangeField<T>) return holds<typename T::value_type, depth - 1>();
  else if constexpr (HandleField<T>) return holds<decltype(*std::declval<T&>()), depth - 1>();
  else if constexpr (std::is_aggregate_v<T>) return aggregate_holds<T, depth - 1>();
  else return false;
}
/// Does a T hold one that the walk over fields does not reach?
template <class T> constexpr bool hides() {
  if constexpr (!requires { sizeof(T); }) return false;
  else if constexpr (TensorField<T> || ModuleField<T> || std::is_same_v<T, AnyModule>) return std::is_const_v<T>;
  else if constexpr (RangeField<T>) {
    using Entry = std::remove_reference_t<decltype(*std::declval<T&>().begin())>;
    if constexpr (MapField<T> || NamedField<Entry>)
      return hides<std::remove_reference_t<decltype((std::declval<Entry&>().second))>>();
    else return hides<Entry>();
  } else if constexpr (HandleField<T>) return hides<std::remove_reference_t<decltype(*std::declval<T&>())>>();
  else return holds<T, 5>();
}

/// References and raw pointers to modules or tensors would be shared by clone() and dangle after a move.
template <class T>
constexpr bool shares = std::is_reference_v<T> ||
                        (std::is_pointer_v<T> && (ModuleField<std::remove_cvref_t<std::remove_pointer_t<T>>> ||
                                                  TensorField<std::remove_cvref_t<std::remove_pointer_t<T>>>));
template <class T> constexpr bool hidden_field = !shares<T> && hides<T>();

}  // namespace detail
}  // namespace tapir::inline v0::nn
