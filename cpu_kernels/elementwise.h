#pragma once
#include "../core/backend.h"
#include "loops.h"

// Loop kernels from scalar functions. `Make` is a captureless lambda (const Params&) -> function of one element of each
// operand: what it takes from the parameters is computed once a call.
namespace tapir::inline v0::cpu {

template <class R, class A, class Params, class Make> LoopKernel loop1(Make) {
  return [](int64_t n, void* const* data, const void* params) {
    const auto f = Make{}(*static_cast<const Params*>(params));
    R* out = static_cast<R*>(data[0]);
    const A* a = static_cast<const A*>(data[1]);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i]));
  };
}
template <class R, class A, class B, class Params, class Make> LoopKernel loop2(Make) {
  return [](int64_t n, void* const* data, const void* params) {
    const auto f = Make{}(*static_cast<const Params*>(params));
    R* out = static_cast<R*>(data[0]);
    const A* a = static_cast<const A*>(data[1]);
    const B* b = static_cast<const B*>(data[2]);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i], b[i]));
  };
}
template <class R, class A, class B, class C, class Params, class Make> LoopKernel loop3(Make) {
  return [](int64_t n, void* const* data, const void* params) {
    const auto f = Make{}(*static_cast<const Params*>(params));
    R* out = static_cast<R*>(data[0]);
    const A* a = static_cast<const A*>(data[1]);
    const B* b = static_cast<const B*>(data[2]);
    const C* c = static_cast<const C*>(data[3]);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(f(a[i], b[i], c[i]));
  };
}

/// A kernel and what an element costs in additions; null: the operation is none of that file's.
struct Choice {
  LoopKernel kernel = nullptr;
  int64_t cost = 1;
};

Choice unary_arithmetic(UnaryOp op, DType type);            // unary.cpp: results of the operand's type
Choice unary_math(UnaryOp op, DType type, double a);        // unary_math.cpp: float functions
Choice unary_activation(UnaryOp op, DType type, double a);  // unary_activation.cpp
Choice unary_special(UnaryOp op, DType type);               // unary_special.cpp
Choice unary_test(UnaryOp op, DType type);                  // unary.cpp: results are bool

Choice binary_arithmetic(BinaryOp op, DType type);  // binary_arith.cpp
Choice binary_division(BinaryOp op, DType type);    // binary_divide.cpp: and what else is built of a quotient, powers
Choice binary_math(BinaryOp op, DType type);        // binary_math.cpp: float functions
Choice binary_bitwise(BinaryOp op, DType type);     // binary_compare.cpp
Choice binary_compare(BinaryOp op, DType type);     // binary_compare.cpp: results are bool
Choice binary_grad(BinaryOp op, DType type, const BinaryParams&);  // binary_grad.cpp

// Integers wrap, in unsigned arithmetic at least as wide as int; bool: + is or, x is and.
template <class T> using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T> constexpr T wrap_add(T a, T b) {
  if constexpr (std::same_as<T, bool>) return a | b;
  else if constexpr (std::integral<T>) return T(Wide<T>(a) + Wide<T>(b));
  else return a + b;
}
template <class T> constexpr T wrap_sub(T a, T b) {
  if constexpr (std::same_as<T, bool>) return a ^ b;
  else if constexpr (std::integral<T>) return T(Wide<T>(a) - Wide<T>(b));
  else return a - b;
}
template <class T> constexpr T wrap_mul(T a, T b) {
  if constexpr (std::same_as<T, bool>) return a & b;
  else if constexpr (std::integral<T>) return T(Wide<T>(a) * Wide<T>(b));
  else return a * b;
}
/// a^b by squaring; a negative exponent leaves what is an integer: 1, -1, and 0 for the others.
template <class T> constexpr T integer_pow(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b < 0) return a == 1 ? T(1) : a == -1 ? (b & 1 ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (; b; b = T(b >> 1)) {
    if (b & 1) result = wrap_mul(result, a);
    a = wrap_mul(a, a);
  }
  return result;
}

}  // namespace tapir::inline v0::cpu
