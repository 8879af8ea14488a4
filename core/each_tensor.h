#pragma once
// Note [Tensors of a value]
// A sample, an argument or a result is a Tensor, or holds some: a tuple, pair, range or optional of such, or an aggregate of at most 8
// fields. An aggregate is opened only where its braces tell how many fields it has: they take as many `{}` as values. They do not tell it
// of one with a base class, with a C array, or with a field that has no default value. Such an aggregate, and a class, may have
// `auto tensors() { return std::tie(output, state); }`, which lists what it holds.
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "spread_fields.h"
#include "tensor.h"

namespace tapir::inline v0 {
namespace detail {

/// Converts to anything.
struct AnyField {
  template <class T> operator T() const;
};
template <class S> struct AnyBase {
  template <class T>
  requires(!std::is_same_v<T, S> && std::is_base_of_v<T, S>) operator T() const;
};
template <class S, size_t... At> constexpr bool takes_values(std::index_sequence<At...>) {
  return requires { S{((void)At, AnyField())...}; };
}
/// How many `{}` the braces of S take, up to 9.
template <class S> constexpr size_t count_braces() {
  if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}, {}}; }) return 9;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}, {}}; }) return 8;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}, {}}; }) return 7;
  else if constexpr (requires { S{{}, {}, {}, {}, {}, {}}; }) return 6;
  else if constexpr (requires { S{{}, {}, {}, {}, {}}; }) return 5;
  else if constexpr (requires { S{{}, {}, {}, {}}; }) return 4;
  else if constexpr (requires { S{{}, {}, {}}; }) return 3;
  else if constexpr (requires { S{{}, {}}; }) return 2;
  else if constexpr (requires { S{{}}; }) return 1;
  else return 0;
}
/// How many fields S has; 0 where it is no aggregate that can be opened.
template <class S> constexpr size_t count_fields() {
  if constexpr (std::is_class_v<S> && std::is_aggregate_v<S>) {
    constexpr size_t n = count_braces<S>();
    if (n <= 8 && takes_values<S>(std::make_index_sequence<n>()) &&
        !takes_values<S>(std::make_index_sequence<n + 1>()) && !requires { S{AnyBase<S>()}; })
      return n;
  }
  return 0;
}

template <class S>
concept TupleLike = requires {
  std::tuple_size<S>::value;
};
template <class S>
concept Openable = TupleLike<S> ||(count_fields<S>() > 0);
/// A vector, a map, ...: not a filesystem::path, whose elements are paths again.
template <class S>
concept Range = requires(S& s) {
  s.end();
  requires std::is_same_v < std::remove_cvref_t<decltype(*s.begin())>,
  typename S::value_type > ;
}
&&!std::is_same_v<S, typename S::value_type>;

/// g(field, field, ...) of a tuple or an aggregate.
template <class S, class G> decltype(auto) with_fields(S& s, const G& g) {
  using Plain = std::remove_const_t<S>;
  if constexpr (TupleLike<Plain>) return std::apply(g, s);
  else return spread_fields<int(count_fields<Plain>())>(s, g);
}

/// Does S hold Tensors alone; or, with `numbers`, Tensors and numbers?
template <class S, bool numbers = false> constexpr bool has_fields();
template <bool numbers> struct AllFields {
  template <class... T> auto operator()(T&...) const { return std::bool_constant<(has_fields<T, numbers>() && ...)>(); }
};
template <class S, bool numbers> constexpr bool has_fields() {
  if constexpr (std::is_same_v<S, Tensor> || std::is_same_v<S, std::vector<Tensor>>) return true;
  else if constexpr (Openable<S>) return decltype(with_fields(std::declval<S&>(), AllFields<numbers>()))::value;
  else return numbers && std::is_arithmetic_v<S>;
}

/// f(leaf) for each Tensor of s and for whatever else cannot be opened, in order.
template <class S, class F> void each_leaf(S& s, F& f) {
  using Plain = std::remove_const_t<S>;
  if constexpr (std::is_base_of_v<Tensor, Plain>) f(s);
  else if constexpr (requires { s.tensors(); }) {
    auto&& listed = s.tensors();
    each_leaf(listed, f);
  } else if constexpr (Openable<Plain>) with_fields(s, [&](auto&... fields) { (each_leaf(fields, f), ...); });
  else if constexpr (Range<Plain>) {
    for (auto& e : s) each_leaf(e, f);
  } else if constexpr (requires { s.has_value(), *s; }) {
    if (s.has_value()) each_leaf(*s, f);
  } else f(s);
}

}  // namespace detail

/// A type that shows all its tensors, and holds nothing else: a Tensor, a tuple, pair, array or aggregate of such, a vector of Tensors.
template <class S>
concept TensorFields = detail::has_fields<S>();

/// f(tensor) for each Tensor of s that f takes (one that writes takes no const ones), in order. See Note [Tensors of a value].
template <class S, class F> void each_tensor(S&& s, F&& f) {
  const auto visit = [&](auto& leaf) {
    using Leaf = std::remove_reference_t<decltype(leaf)>;
    if constexpr (std::is_base_of_v<Tensor, std::remove_const_t<Leaf>> && std::is_invocable_v<F&, Leaf&>) f(leaf);
  };
  detail::each_leaf(s, visit);
}

}  // namespace tapir::inline v0
