#pragma once
#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/each_tensor.h"

namespace tapir::inline v0::data {

namespace detail {

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
  else if constexpr (TensorFields<S>) return s;
  else if constexpr (requires { tensors_within(s); }) return tensors_within(s);
  else if constexpr (tapir::detail::has_fields<S, true>())
    return tapir::detail::with_fields(s, [](auto&... f) { return std::make_tuple(tensors_of(f)...); });
  else return s;
}

}  // namespace detail

}  // namespace tapir::inline v0::data
