#pragma once
// Note [Formulas]
// The arithmetic of a pointwise operation is one line in unary.h, binary.h or ternary.h beside this file: operation,
// family, cost, expression of one element. All devices compute by it. The CPU makes a vectorised loop of each line and
// type; CUDA a functor of one line (OneFormula) for what is hot, and one of a whole family (AnyFormula), which picks the
// line by a switch: one kernel. Numbers that a call brings are converted once, on the host, by numbers() of each header.
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <utility>

#include "../math.h"

#ifdef __CUDACC__
#define TAPIR_FORMULA __host__ __device__ __forceinline__
#else
#define TAPIR_FORMULA [[gnu::always_inline]] inline
#endif

namespace tapir::inline v0::formulas {

/// What belongs together in a kernel: by the types it takes, the type it gives, and the registers it costs.
enum class Family : uint8_t {
  None,  // no formula
  All,   // integers, bool and floats, of which these are cheap
  Integers,
  Floats,
  Power,     // all types
  Division,  // all types
  Bitwise,   // integers and bool
  Shift,     // integers
  Math,      // floats, as the rest
  Angle,
  Special,
  Activation,
  Gradient,
  Test,     // all types -> bool
  Compare,  // all types, two of them -> bool
  Select,   // all types, the first operand bool
};

/// The formula of an operation: family, cost<T> (of an element of type T, in additions) and at(operands, numbers).
template <auto kOp> struct Formula { static constexpr Family family = Family::None; };

template <class T> inline constexpr bool kReal = std::floating_point<T>;
template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : T(0);
/// The cost of a function that has a vectorised form in float32 alone.
template <class T> inline constexpr int kFast = std::same_as<T, float> ? 4 : 32;

/// What f gives for elements of type T: bool for tests and comparisons.
template <auto kOp, class T> using Result =
    std::conditional_t<Formula<kOp>::family == Family::Test || Formula<kOp>::family == Family::Compare, bool, T>;

inline constexpr size_t kMaxOps = 80;  // of an enum

/// The operations of these families, in the order of their enum.
template <class Op, Family... kFamilies> struct Members {
  static constexpr bool has(Family f) { return ((f == kFamilies) || ...); }
  template <size_t... I> static constexpr auto collect(std::index_sequence<I...>) {
    std::array<Op, (size_t(has(Formula<Op(I)>::family)) + ...)> list{};
    size_t n = 0;
    ((has(Formula<Op(I)>::family) ? void(list[n++] = Op(I)) : void()), ...);
    return list;
  }
  static constexpr auto list = collect(std::make_index_sequence<kMaxOps>());
  using Index = std::make_index_sequence<list.size()>;
};

/// The family of an operation that is known only when the program runs.
template <class Op> constexpr Family family_of(Op op) {
  constexpr auto families = []<size_t... I>(std::index_sequence<I...>) {
    return std::array<Family, kMaxOps>{Formula<Op(I)>::family...};
  }
  (std::make_index_sequence<kMaxOps>());
  return families[size_t(op)];
}

/// A formula as a function object of elements of type T.
template <auto kOp, class T, class Numbers> struct OneFormula {
  using R = Result<kOp, T>;
  Numbers numbers;
  template <class... A> TAPIR_FORMULA R operator()(A... x) const { return R(Formula<kOp>::at(x..., numbers)); }
  template <class Body> TAPIR_FORMULA void visit(Body&& body) const { body(*this); }
};

/// Any formula of these families as a function object.
template <class Op, class T, class Numbers, Family... kFamilies> struct AnyFormula {
  using Group = Members<Op, kFamilies...>;
  using R = Result<Group::list[0], T>;
  Op op;
  Numbers numbers;
  template <class... A> TAPIR_FORMULA R operator()(A... x) const {
    R y{};
    visit([&](const auto& f) { y = f(x...); });
    return y;
  }
  /// Calls body(OneFormula): what is in the body is behind the switch.
  template <class Body> TAPIR_FORMULA void visit(Body&& body) const { pick(typename Group::Index(), body); }

 private:
  template <size_t... I, class Body> TAPIR_FORMULA void pick(std::index_sequence<I...>, Body& body) const {
    static_cast<void>(((op == Group::list[I] && (body(OneFormula<Group::list[I], T, Numbers>{numbers}), true)) || ...));
  }
};

}  // namespace tapir::inline v0::formulas
