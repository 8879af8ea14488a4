#pragma once
#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::data {

namespace detail {

// Never defined: only for counting.
struct AnyTensor {
  operator Tensor() const;
};
struct AnyField : AnyTensor {
  template <class T>
  requires std::is_arithmetic_v<T>
  operator T() const;
};
template <class S, class Any, size_t... At> constexpr bool takes(std::index_sequence<At...>) {
  return requires { S{((void)At, Any())...}; };
}
/// How many Tensors (AnyField: or numbers) the aggregate S is made of (at most 8), 0 when it is something else.
template <class S, class Any = AnyTensor, size_t N = 8> constexpr size_t count_fields() {
  if constexpr (N == 0) return 0;
  else if constexpr (takes<S, Any>(std::make_index_sequence<N>())) return N;
  else return count_fields<S, Any, N - 1>();
}
template <class S>
concept TupleLike = requires {
  std::tuple_size<S>::value;
};
template <class S> inline constexpr bool is_tensor_vector = std::is_same_v<S, std::vector<Tensor>>;

/// g(field, field, ...) of an aggregate of Tensors and numbers.
template <class S, class G> auto with_fields(S& s, const G& g) {
  constexpr size_t n = count_fields<std::remove_const_t<S>, AnyField>();
#define TAPIR_FIELDS_OF(count, ...) \
  if constexpr (n == count) {       \
    auto& [__VA_ARGS__] = s;        \
    return g(__VA_ARGS__);          \
  }
  TAPIR_FIELDS_OF(1, a)
  TAPIR_FIELDS_OF(2, a, b)
  TAPIR_FIELDS_OF(3, a, b, c)
  TAPIR_FIELDS_OF(4, a, b, c, d)
  TAPIR_FIELDS_OF(5, a, b, c, d, e)
  TAPIR_FIELDS_OF(6, a, b, c, d, e, h)
  TAPIR_FIELDS_OF(7, a, b, c, d, e, h, i)
  TAPIR_FIELDS_OF(8, a, b, c, d, e, h, i, j)
#undef TAPIR_FIELDS_OF
}

template <class S> constexpr bool has_fields() {
  if constexpr (std::is_same_v<S, Tensor> || is_tensor_vector<S>) return true;
  else if constexpr (TupleLike<S>) {
    return []<size_t... At>(std::index_sequence<At...>) { return (has_fields<std::tuple_element_t<At, S>>() && ...); }
    (std::make_index_sequence<std::tuple_size_v<S>>());
  } else if constexpr (std::is_aggregate_v<S>)
    return count_fields<S>() > 0 && count_fields<S>() == count_fields<S, AnyField>();  // no numbers behind the Tensors
  else return false;
}

/// What a number of a sample becomes: 0-dim, as PyTorch's default_collate has it. Integers give int64, double float64.
template <class T> Tensor field_tensor(T number) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(int64_t))
      check(number <= T(INT64_MAX), "[DataLoader] expected numbers that fit into int64, got 2^63 or more");
    const auto v = int64_t(number);
    return tensor_from_host(&v, kInt64, {}, {});
  } else if constexpr (std::is_same_v<T, long double>) return field_tensor(double(number));
  else return tensor_from_host(&number, dtype_of<T>, {}, {});
}

template <class S> auto tensors_of(const S& s);
template <class A, class B> auto tensors_within(const std::pair<A, B>& s) {
  return std::make_pair(tensors_of(s.first), tensors_of(s.second));
}
template <class... T> auto tensors_within(const std::tuple<T...>& s) {
  return std::apply([](auto&... f) { return std::make_tuple(tensors_of(f)...); }, s);
}
template <class T, size_t N> auto tensors_within(const std::array<T, N>& s) {
  return std::apply(
      [](auto&... f) { return std::array<decltype(tensors_of(std::declval<T&>())), N>{tensors_of(f)...}; }, s);
}
/// A sample with Tensors for its numbers; an aggregate that has some becomes a tuple. Any other type stays what it is.
template <class S> auto tensors_of(const S& s) {
  if constexpr (std::is_arithmetic_v<S>) return field_tensor(s);
  else if constexpr (has_fields<S>()) return s;
  else if constexpr (requires { tensors_within(s); }) return tensors_within(s);
  else if constexpr (std::is_aggregate_v<S> && count_fields<S, AnyField>() > 0)
    return with_fields(s, [](auto&... f) { return std::make_tuple(tensors_of(f)...); });
  else return s;
}

}  // namespace detail

/// What visit_fields can walk: a Tensor, or a tuple, pair, array, vector or aggregate of at most 8 Tensors.
template <class S>
concept TensorFields = detail::has_fields<S>();

/// Calls f(tensor) for each Tensor of a sample or batch, in order. Fields may be samples themselves.
template <class S, class F> void visit_fields(S& s, F&& f) {
  static_assert(TensorFields<std::remove_const_t<S>>,
                "a sample is a Tensor or a number, a tuple, pair, array or aggregate of at most 8 of them, or a "
                "vector of Tensors");
  using Plain = std::remove_const_t<S>;
  if constexpr (std::is_same_v<Plain, Tensor>) f(s);
  else if constexpr (detail::is_tensor_vector<Plain>) {
    for (auto& t : s) f(t);
  } else if constexpr (detail::TupleLike<Plain>)
    std::apply([&](auto&... fields) { (visit_fields(fields, f), ...); }, s);
  else if constexpr (TensorFields<Plain>) detail::with_fields(s, [&](auto&... fields) { (f(fields), ...); });
}

}  // namespace tapir::inline v0::data
