#pragma once
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "device.h"
#include "dims.h"
#include "dtype.h"
#include "scalar.h"

namespace tapir::inline v0 {

/// The caller's argument: shape, dtype, device, index, option, order of calls.
struct ValueError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// The world: files, memory, peers, drivers.
struct RuntimeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct OutOfMemoryError : RuntimeError {
  using RuntimeError::RuntimeError;
};
/// A bug of Tapir's.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

class Tensor;

/// One argument of a message, erased to a few kinds so that formatting is a single cold function.
class FormatArg {
 public:
  enum class Kind : uint8_t { Int, Float, Bool, Text, Dims, DType, Device, Tensor };
  template <std::integral Int> FormatArg(Int v)
      : kind(std::same_as<Int, bool> ? Kind::Bool : Kind::Int), integer(int64_t(v)) {}
  FormatArg(double v) : kind(Kind::Float), number(v) {}
  FormatArg(std::string_view v) : kind(Kind::Text), text(v) {}
  FormatArg(const char* v) : FormatArg(std::string_view(v)) {}
  FormatArg(const std::string& v) : FormatArg(std::string_view(v)) {}
  FormatArg(const tapir::Dims& v) : kind(Kind::Dims), dims(&v) {}
  FormatArg(tapir::DType v) : kind(Kind::DType), integer(int64_t(v)) {}
  FormatArg(tapir::Device v) : kind(Kind::Device), device(v) {}
  FormatArg(Scalar v)
      : FormatArg(v.is_float()  ? FormatArg(v.to_double())
                  : v.is_bool() ? FormatArg(v.to_bool())
                                : FormatArg(v.to_int())) {}
  /// A tensor prints as its dtype and shape: "float32 (2, 3)".
  FormatArg(const tapir::Tensor& v) : kind(Kind::Tensor), tensor(&v) {}

  Kind kind;
  union {
    int64_t integer;
    double number;
    const tapir::Dims* dims;
    const tapir::Tensor* tensor;
    tapir::Device device;
  };
  std::string_view text;
};

/// `format("{} of {}", 1, 2)`: each {} takes the next argument.
std::string format_args(std::string_view text, const FormatArg* args, int count);
template <class... A> std::string format(std::string_view text, const A&... args) {
  const FormatArg list[] = {FormatArg(args)..., FormatArg(0)};
  return format_args(text, list, sizeof...(A));
}

enum class ErrorKind : uint8_t { Value, Runtime, OutOfMemory, Internal };
[[noreturn]] void fail_args(ErrorKind kind, std::string_view text, const FormatArg* args, int count);
template <class... A>
[[noreturn, gnu::noinline, gnu::cold]] void fail(ErrorKind kind, std::string_view text, const A&... args) {
  const FormatArg list[] = {FormatArg(args)..., FormatArg(0)};
  fail_args(kind, text, list, sizeof...(A));
}

/// Throws ValueError unless `ok`: check(k > 0, "[topk] expected k above 0, got {}", k).
template <class... A> inline void check(bool ok, std::string_view text, const A&... args) {
  if (!ok) [[unlikely]]
    fail(ErrorKind::Value, text, args...);
}
/// The same for the world: RuntimeError.
template <class... A> inline void check_runtime(bool ok, std::string_view text, const A&... args) {
  if (!ok) [[unlikely]]
    fail(ErrorKind::Runtime, text, args...);
}
/// The same for what only a bug of ours can break: InternalError.
template <class... A> inline void check_internal(bool ok, std::string_view text, const A&... args) {
  if (!ok) [[unlikely]]
    fail(ErrorKind::Internal, text, args...);
}

/// A dimension of a tensor of that rank, counted from the end when negative; a 0-dim tensor takes 0 and -1.
inline int64_t wrap_dim(std::string_view op, int64_t dim, int64_t rank) {
  const int64_t n = rank > 0 ? rank : 1;
  check(dim >= -n && dim < n, "[{}] dimension out of range (expected to be in range of [{}, {}], but got {})", op, -n,
        n - 1, dim);
  return dim < 0 ? dim + n : dim;
}

}  // namespace tapir::inline v0
