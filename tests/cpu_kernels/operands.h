#pragma once
// What the kernel tests share: arrays of any dtype and layout, read and written as doubles, without the tensors above.
#include <tapir/core/backend.h>
#include <tapir/core/parallel.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "../catch.h"

namespace kernel_tests {
using namespace tapir;

inline constexpr DType kAllDTypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64,
                                       kInt32,   kInt16,   kInt8,    kUInt8,    kBool};
inline constexpr DType kFloats[] = {kFloat32, kFloat64, kFloat16, kBFloat16};
inline constexpr DType kIntegers[] = {kInt64, kInt32, kInt16, kInt8, kUInt8};
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

/// Dense, dimensions in reverse order, every second element of rows with gaps, every dimension of stride 0.
enum class Layout { Dense, Reversed, Gaps, Repeated };
inline constexpr Layout kLayouts[] = {Layout::Dense, Layout::Reversed, Layout::Gaps};

inline const BackendTable& cpu() { return backend(kCPU); }
inline Context& ctx() { return context(kCPU); }

inline double load(DType t, const void* p, int64_t i) {
  switch (t) {
    case kFloat32: return static_cast<const float*>(p)[i];
    case kFloat64: return static_cast<const double*>(p)[i];
    case kFloat16: return float(static_cast<const Half*>(p)[i]);
    case kBFloat16: return float(static_cast<const BFloat16*>(p)[i]);
    case kInt64: return double(static_cast<const int64_t*>(p)[i]);
    case kInt32: return static_cast<const int32_t*>(p)[i];
    case kInt16: return static_cast<const int16_t*>(p)[i];
    case kInt8: return static_cast<const int8_t*>(p)[i];
    case kUInt8: return static_cast<const uint8_t*>(p)[i];
    case kBool: return static_cast<const uint8_t*>(p)[i];
  }
  return 0;
}
inline void write(DType t, void* p, int64_t i, double v) {
  switch (t) {
    case kFloat32: static_cast<float*>(p)[i] = float(v); break;
    case kFloat64: static_cast<double*>(p)[i] = v; break;
    case kFloat16: static_cast<Half*>(p)[i] = Half(float(v)); break;
    case kBFloat16: static_cast<BFloat16*>(p)[i] = BFloat16(float(v)); break;
    case kInt64: static_cast<int64_t*>(p)[i] = int64_t(v); break;
    case kInt32: static_cast<int32_t*>(p)[i] = int32_t(v); break;
    case kInt16: static_cast<int16_t*>(p)[i] = int16_t(v); break;
    case kInt8: static_cast<int8_t*>(p)[i] = int8_t(v); break;
    case kUInt8: static_cast<uint8_t*>(p)[i] = uint8_t(v); break;
    case kBool: static_cast<uint8_t*>(p)[i] = v != 0; break;
  }
}
/// v as that dtype holds it.
inline double rounded(DType t, double v) {
  alignas(8) char cell[8] = {};
  write(t, cell, 0, v);
  return load(t, cell, 0);
}
/// The relative rounding error of the dtype.
inline double epsilon(DType t) {
  return t == kFloat32 ? 0x1p-24 : t == kFloat64 ? 0x1p-53 : t == kFloat16 ? 0x1p-11 : t == kBFloat16 ? 0x1p-8 : 0;
}

/// A deterministic stream of small numbers.
struct Numbers {
  uint64_t state = 12345;
  uint32_t next() { return uint32_t((state = state * 6364136223846793005u + 1442695040888963407u) >> 33); }
  /// Multiples of 1/8 in [-4, 4] for floats, small integers, 0 or 1: exact in every dtype.
  double value(DType t) {
    if (is_floating(t)) return (double(next() % 65) - 32) / 8;
    if (t == kBool) return next() & 1;
    return t == kUInt8 ? next() % 10 : double(next() % 15) - 7;
  }
};

struct Array {
  TensorView view;
  std::vector<uint64_t> memory;

  Array(DType dtype, const Shape& shape, Layout layout = Layout::Dense) {
    view.dtype = dtype, view.rank = shape.size();
    int64_t step = layout == Layout::Gaps ? 2 : 1;
    for (int64_t k = 0; k < view.rank; ++k) {
      const int64_t d = layout == Layout::Reversed ? k : view.rank - 1 - k;
      view.sizes[d] = shape[d], view.strides[d] = layout == Layout::Repeated ? 0 : step;
      step = step * (shape[d] > 0 ? shape[d] : 1) + (layout == Layout::Gaps ? 3 : 0);
    }
    memory.assign(size_t(step * size_of(dtype)) / 8 + 2, 0);
    view.data = memory.data();
  }
  Array(const Array& o) : view(o.view), memory(o.memory) { view.data = memory.data(); }
  int64_t numel() const { return view.numel(); }
  int64_t place(int64_t flat) const {
    int64_t at = 0;
    for (int64_t d = view.rank; d-- > 0; flat /= view.sizes[d]) at += flat % view.sizes[d] * view.strides[d];
    return at;
  }
  double get(int64_t flat) const { return load(view.dtype, view.data, place(flat)); }
  void set(int64_t flat, double v) { write(view.dtype, view.data, place(flat), v); }
  Array& fill(Numbers& numbers) {
    for (int64_t i = 0; i < numel(); ++i) set(i, numbers.value(view.dtype));
    return *this;
  }
  Array& fill(const std::vector<double>& values) {
    for (int64_t i = 0; i < numel(); ++i) set(i, values[size_t(i) % values.size()]);
    return *this;
  }
  std::vector<double> values() const {
    std::vector<double> v;
    for (int64_t i = 0; i < numel(); ++i) v.push_back(get(i));
    return v;
  }
};

inline bool same(double a, double b) { return a == b || (a != a && b != b); }
/// Equal, or within `ulps` roundings of the dtype.
inline bool near(DType t, double a, double b, double ulps) {
  return same(a, b) || std::abs(a - b) <= ulps * 2 * epsilon(t) * std::max(std::abs(b), epsilon(t) * 0x1p-10);
}
/// One assertion for a whole array: where it first differs from what was expected, or "".
inline std::string difference(const Array& got, const std::function<double(int64_t)>& expected, double ulps = 0) {
  const DType t = got.view.dtype;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double want = expected(i), have = got.get(i);
    if (!near(t, have, rounded(t, want), ulps))
      return tapir::format("{} {} at {}: expected {}, got {}", std::string(name_of(t)), got.view.shape(), i, want,
                           have);
  }
  return "";
}
template <class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const ValueError& e) {
    return e.what();
  }
  return "";
}
/// The values that f leaves in an array must not depend on the number of threads.
template <class F> void check_threads(F&& f) {
  const int before = get_num_threads();
  set_num_threads(1);
  const std::vector<uint64_t> one = f();
  for (const int threads : {2, 3, 5}) {
    set_num_threads(threads);
    CHECK(f() == one);
  }
  set_num_threads(before);
}

}  // namespace kernel_tests
