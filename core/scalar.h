#pragma once
#include <cstdint>
#include <type_traits>

#include "dtype.h"

namespace tapir::inline v0 {

/// A number given by the caller: int64, double or bool, kept apart because type promotion asks.
class Scalar {
 public:
  enum class Kind : uint8_t { Int, Float, Bool };
  constexpr Scalar() : int_(0) {}
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Scalar(T v) {
    if constexpr (std::is_same_v<T, bool>) int_ = v, kind_ = Kind::Bool;
    else if constexpr (std::is_floating_point_v<T>) float_ = double(v), kind_ = Kind::Float;
    else int_ = int64_t(v), kind_ = Kind::Int;
  }
  Scalar(Half v) : Scalar(float(v)) {}
  Scalar(BFloat16 v) : Scalar(float(v)) {}
  constexpr Kind kind() const { return kind_; }
  constexpr bool is_float() const { return kind_ == Kind::Float; }
  constexpr bool is_int() const { return kind_ == Kind::Int; }
  constexpr bool is_bool() const { return kind_ == Kind::Bool; }
  constexpr double to_double() const { return is_float() ? float_ : double(int_); }
  constexpr int64_t to_int() const { return is_float() ? int64_t(float_) : int_; }
  constexpr bool to_bool() const { return is_float() ? float_ != 0 : int_ != 0; }
  /// The dtype this number has as a 0-dim tensor: int64, float32 (PyTorch's default), bool.
  constexpr DType dtype() const { return is_float() ? kFloat32 : is_int() ? kInt64 : kBool; }

 private:
  union {
    int64_t int_;
    double float_;
  };
  Kind kind_ = Kind::Int;
};

}  // namespace tapir::inline v0
