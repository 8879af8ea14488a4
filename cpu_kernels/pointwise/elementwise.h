#pragma once
#include "../../core/dispatch.h"
#include "../../core/formulas/binary.h"
#include "../../core/formulas/ternary.h"
#include "../../core/formulas/unary.h"
#include "../loops.h"

// Loop kernels from the formulas of core/formulas.
namespace tapir::inline v0::cpu {
using formulas::Family;
using formulas::Formula;

template <auto kOp, class R, class T> void loop1(int64_t n, void* const* data, const void* params) {
  const auto numbers = formulas::numbers<T>(kOp, *static_cast<const UnaryParams*>(params));
  R* out = static_cast<R*>(data[0]);
  const Stored<T>* x = static_cast<const Stored<T>*>(data[1]);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<R>(Formula<kOp>::at(from_stored<T>(x[i]), numbers));
}
template <auto kOp, class R, class T> void loop2(int64_t n, void* const* data, const void* params) {
  const auto numbers = formulas::numbers<T>(kOp, *static_cast<const BinaryParams*>(params));
  R* out = static_cast<R*>(data[0]);
  const Stored<T>* a = static_cast<const Stored<T>*>(data[1]);
  const Stored<T>* b = static_cast<const Stored<T>*>(data[2]);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<R>(Formula<kOp>::at(from_stored<T>(a[i]), from_stored<T>(b[i]), numbers));
}
template <auto kOp, class A, class T> void loop3(int64_t n, void* const* data, const void* params) {
  const auto numbers = formulas::numbers<T>(kOp, *static_cast<const TernaryParams*>(params));
  T* out = static_cast<T*>(data[0]);
  const Stored<A>* a = static_cast<const Stored<A>*>(data[1]);
  const Stored<T>* b = static_cast<const Stored<T>*>(data[2]);
  const Stored<T>* c = static_cast<const Stored<T>*>(data[3]);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const T x = from_stored<T>(b[i]), y = from_stored<T>(c[i]);
    out[i] = Formula<kOp>::at(from_stored<A>(a[i]), x, y, numbers);
  }
}

/// A kernel and what an element costs in additions; null: the operation is none of that file's.
struct Choice {
  LoopKernel kernel = nullptr;
  int64_t cost = 1;
};
template <auto kOp, class T> constexpr Choice choice_of() {
  using Op = decltype(kOp);
  using R = formulas::Result<kOp, T>;
  constexpr int64_t cost = Formula<kOp>::template cost<T>;
  if constexpr (std::same_as<Op, UnaryOp>) return {loop1<kOp, R, T>, cost};
  else if constexpr (std::same_as<Op, BinaryOp>) return {loop2<kOp, R, T>, cost};
  else if constexpr (Formula<kOp>::family == Family::Select) return {loop3<kOp, bool, T>, cost};
  else return {loop3<kOp, T, T>, cost};
}
/// By operation: its kernel for elements of type T, where it is of these families.
template <class Op, class T, Family... kFamilies> inline constexpr auto kChoices = [] {
  using Group = formulas::Members<Op, kFamilies...>;
  std::array<Choice, formulas::kMaxOps> table{};
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((table[size_t(Group::list[I])] = choice_of<Group::list[I], T>()), ...);
  }
  (typename Group::Index());
  return table;
}();
template <class T, Family... kFamilies, class Op> Choice choose(Op op) {
  return kChoices<Op, T, kFamilies...>[size_t(op)];
}
/// What the first of these functions that knows the operation says.
template <class Op, class... F> Choice first_choice(const char* name, Op op, DType type, F*... choices) {
  Choice found;
  static_cast<void>((... || (found = choices(op, type)).kernel));
  if (!found.kernel) fail_dtype(name, type);
  return found;
}

// What computes such a call on elements of a compute type; the kernel's result has type result_of().
Choice choice_for(const UnaryParams& p, DType type);    // unary.cpp
Choice choice_for(const BinaryParams& p, DType type);   // binary.cpp
Choice choice_for(const TernaryParams& p, DType type);  // ternary.cpp
/// bool for tests and comparisons.
template <class Op> DType result_of(Op op, DType type) {
  const Family family = formulas::family_of(op);
  return family == Family::Test || family == Family::Compare ? kBool : type;
}

Choice unary_arithmetic(UnaryOp op, DType type);  // unary.cpp: results of the operand's type
Choice unary_math(UnaryOp op, DType type);        // unary_math.cpp: float functions
Choice unary_activation(UnaryOp op, DType type);  // unary_activation.cpp
Choice unary_special(UnaryOp op, DType type);     // unary_special.cpp
Choice unary_test(UnaryOp op, DType type);        // unary.cpp: results are bool

Choice binary_arithmetic(BinaryOp op, DType type);  // binary_arith.cpp
Choice binary_division(BinaryOp op, DType type);    // binary_divide.cpp: and what else is built of a quotient, powers
Choice binary_math(BinaryOp op, DType type);        // binary_math.cpp: float functions
Choice binary_bitwise(BinaryOp op, DType type);     // binary_compare.cpp
Choice binary_compare(BinaryOp op, DType type);     // binary_compare.cpp: results are bool
Choice binary_grad(BinaryOp op, DType type);        // binary_grad.cpp

}  // namespace tapir::inline v0::cpu
