#pragma once
// The fields of an aggregate as the arguments of a function. How many it has says the caller.
namespace tapir::inline v0::detail {

/// f(fields...) of an aggregate of `count` fields, in the order of their declaration.
template <int count, class S, class F> constexpr decltype(auto) spread_fields(S& s, F&& f) {
  static_assert(count <= 12 || count == 17, "an aggregate of so many fields needs another line here");
  // clang-format off
#define X(n, ...) if constexpr (count == n) { auto& [__VA_ARGS__] = s; return f(__VA_ARGS__); }
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

}  // namespace tapir::inline v0::detail
