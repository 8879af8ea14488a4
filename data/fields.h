#pragma once
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::data {

namespace detail {

struct AnyTensor {
  operator Tensor() const;  // never defined: only for counting
};
template <class S, size_t... At> constexpr bool takes(std::index_sequence<At...>) {
  return requires { S{((void)At, AnyTensor())...}; };
}
/// How many Tensors the aggregate S is made of (at most 8), 0 when it is something else.
template <class S, size_t N = 8> constexpr size_t count_fields() {
  if constexpr (N == 0) return 0;
  else if constexpr (takes<S>(std::make_index_sequence<N>())) return N;
  else return count_fields<S, N - 1>();
}
template <class S>
concept TupleLike = requires {
  std::tuple_size<S>::value;
};
template <class S> inline constexpr bool is_tensor_vector = std::is_same_v<S, std::vector<Tensor>>;

template <class S, class F> void visit_aggregate(S& s, F& f) {
  constexpr size_t n = count_fields<std::remove_const_t<S>>();
#define TAPIR_FIELDS_OF(count, ...) \
  if constexpr (n == count) {       \
    auto& [__VA_ARGS__] = s;        \
    visit_all(f, __VA_ARGS__);      \
  }
  const auto visit_all = [](F& g, auto&... fields) { (g(fields), ...); };
  TAPIR_FIELDS_OF(1, a)
  TAPIR_FIELDS_OF(2, a, b)
  TAPIR_FIELDS_OF(3, a, b, c)
  TAPIR_FIELDS_OF(4, a, b, c, d)
  TAPIR_FIELDS_OF(5, a, b, c, d, e)
  TAPIR_FIELDS_OF(6, a, b, c, d, e, g)
  TAPIR_FIELDS_OF(7, a, b, c, d, e, g, h)
  TAPIR_FIELDS_OF(8, a, b, c, d, e, g, h, i)
#undef TAPIR_FIELDS_OF
}

template <class S> constexpr bool has_fields() {
  if constexpr (std::is_same_v<S, Tensor> || is_tensor_vector<S>) return true;
  else if constexpr (TupleLike<S>) {
    return []<size_t... At>(std::index_sequence<At...>) { return (has_fields<std::tuple_element_t<At, S>>() && ...); }
    (std::make_index_sequence<std::tuple_size_v<S>>());
  } else if constexpr (std::is_aggregate_v<S>) return count_fields<S>() > 0;
  else return false;
}

}  // namespace detail

/// What visit_fields can walk: a Tensor, or a tuple, pair, array, vector or aggregate of at most 8 Tensors.
template <class S>
concept TensorFields = detail::has_fields<S>();

/// Calls f(tensor) for each Tensor of a sample or batch, in order. Fields may be samples themselves.
template <class S, class F> void visit_fields(S& s, F&& f) {
  static_assert(TensorFields<std::remove_const_t<S>>,
                "a sample is a Tensor, or a tuple, pair, array, vector or aggregate of at most 8 Tensors");
  using Plain = std::remove_const_t<S>;
  if constexpr (std::is_same_v<Plain, Tensor>) f(s);
  else if constexpr (detail::is_tensor_vector<Plain>) {
    for (auto& t : s) f(t);
  } else if constexpr (detail::TupleLike<Plain>)
    std::apply([&](auto&... fields) { (visit_fields(fields, f), ...); }, s);
  else detail::visit_aggregate(s, f);
}

}  // namespace tapir::inline v0::data
