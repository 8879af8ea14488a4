#pragma once
#include <tapir/core/parallel.h>
#include <cmath>
#include <functional>

#include "arrays.h"

/// Slow and plain: what references of the kernel tests are written with.
namespace tapir_tests {

using Place = std::vector<int64_t>;

/// f(place) for every index of the shape, in row-major order.
template <class F> void for_places(const Shape& shape, F&& f) {
  if (numel_of(shape) == 0) return;
  Place at(size_t(shape.size()), 0);
  for (;;) {
    f(at);
    int64_t d = shape.size() - 1;
    for (; d >= 0 && ++at[size_t(d)] == shape[d]; --d) at[size_t(d)] = 0;
    if (d < 0) return;
  }
}
inline int64_t offset_of(const TensorView& v, const Place& at) {
  int64_t offset = 0;
  for (size_t d = 0; d < at.size(); ++d) offset += at[d] * v.strides[d];
  return offset;
}
inline double get(const TensorView& v, const Place& at) { return read(v.dtype, v.data, offset_of(v, at)); }
inline void put(const TensorView& v, const Place& at, double value) { write(v.dtype, v.data, offset_of(v, at), value); }
inline double get(const Array& a, const Place& at) { return get(a.view, at); }
inline void put(Array& a, const Place& at, double value) { put(a.view, at, value); }
/// The same place with another coordinate in one dimension.
inline Place with(Place at, int64_t dim, int64_t value) {
  if (!at.empty()) at[size_t(dim)] = value;
  return at;
}
inline Place without(Place at, int64_t dim) {
  at.erase(at.begin() + dim);
  return at;
}
/// The elements in row-major order.
inline std::vector<double> values(const TensorView& v) {
  std::vector<double> all;
  for_places(v.shape(), [&](const Place& at) { all.push_back(get(v, at)); });
  return all;
}
inline Array copy_of(const Array& a) {
  Array b;
  b.view = a.view, b.bytes = a.bytes, b.count = a.count;
  b.view.data = b.bytes.data();
  return b;
}
/// Random multiples of 1/8 in [-4, 4]: exact in every float.
inline Array& eighths(Array& a, uint32_t seed) {
  a.random(seed, -32, 32);
  for (int64_t i = 0; i < a.count; ++i) write(a.view.dtype, a.view.data, i, read(a.view.dtype, a.view.data, i) / 8);
  return a;
}
/// The largest difference, NaN being equal to NaN and infinities to themselves; relative above 1.
inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double d = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}
inline double tolerance(DType t) {
  return t == kFloat64 ? 1e-12 : t == kFloat32 ? 2e-5 : t == kFloat16 ? 2e-3 : 1.6e-2;
}

inline const DType float_dtypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16};

/// Sets the number of threads for a scope.
struct Threads {
  int before = get_num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

}  // namespace tapir_tests
