#pragma once
#include <tapir/core/backend.h>

#include <cstring>
#include <functional>
#include <vector>

/// Memory with a view on it, for tests that hand kernels any strides. Values are small integers: sums are exact in every dtype.
namespace tapir_tests {
using namespace tapir;

template <class F> auto with_type(DType t, F&& f) {
  switch (t) {
    case kFloat32: return f(float());
    case kFloat64: return f(double());
    case kFloat16: return f(Half());
    case kBFloat16: return f(BFloat16());
    case kInt64: return f(int64_t());
    case kInt32: return f(int32_t());
    case kInt16: return f(int16_t());
    case kInt8: return f(int8_t());
    case kUInt8: return f(uint8_t());
    default: return f(bool());
  }
}
inline double read(DType t, const void* p, int64_t i) {
  return with_type(t, [&](auto v) {
    std::memcpy(&v, static_cast<const char*>(p) + i * int64_t(sizeof v), sizeof v);
    return double(v);
  });
}
inline void write(DType t, void* p, int64_t i, double value) {
  with_type(t, [&](auto v) {
    using T = decltype(v);
    if constexpr (std::is_same_v<T, bool>) v = value != 0;
    else if constexpr (std::is_integral_v<T>) v = T(int64_t(value));
    else if constexpr (std::is_same_v<T, double>) v = value;
    else v = T(float(value));
    std::memcpy(static_cast<char*>(p) + i * int64_t(sizeof v), &v, sizeof v);
  });
}
/// What a value becomes when stored as t: integers wrap.
inline double as_type(DType t, double value) {
  double slot = 0;
  write(t, &slot, 0, value);
  return read(t, &slot, 0);
}

struct Array {
  TensorView view;
  std::vector<char> bytes;

  Array() = default;
  /// order: dimensions from the outermost in memory to the innermost; repeated: those with stride 0; gap: unused elements in each row.
  Array(DType t, std::vector<int64_t> shape, std::vector<int> order = {}, std::vector<int> repeated = {},
        int64_t gap = 0)
      : view(Scalar(0), t) {
    view.is_scalar = false;
    view.rank = int64_t(shape.size());
    if (order.empty())
      for (size_t d = 0; d < shape.size(); ++d) order.push_back(int(d));
    int64_t step = 1 + gap;
    for (size_t d = 0; d < shape.size(); ++d) view.sizes[d] = shape[d];
    for (size_t i = order.size(); i-- > 0;) {
      const int d = order[i];
      bool repeats = false;
      for (int r : repeated) repeats = repeats || r == d;
      view.strides[d] = repeats ? 0 : step;
      step *= repeats || shape[size_t(d)] == 0 ? 1 : shape[size_t(d)] + gap;
    }
    count = view.numel() == 0 ? 0 : step;
    bytes.resize(size_t(count * size_of(t)));
    view.data = bytes.data();
  }
  Array(const Array&) = delete;
  Array(Array&& o) noexcept { *this = std::move(o); }
  Array& operator=(Array&& o) noexcept {
    view = o.view, bytes = std::move(o.bytes), count = o.count;
    view.data = bytes.data();
    return *this;
  }

  Array& random(uint32_t seed, int low = -3, int high = 3) {
    for (int64_t i = 0; i < count; ++i) {
      seed = seed * 1664525u + 1013904223u;
      write(view.dtype, view.data, i, low + int((seed >> 16) % uint32_t(high - low + 1)));
    }
    return *this;
  }
  Array& fill(double value) {
    for (int64_t i = 0; i < count; ++i) write(view.dtype, view.data, i, value);
    return *this;
  }
  template <class... I> int64_t offset(I... index) const {
    const int64_t at[] = {int64_t(index)...};
    int64_t sum = 0;
    for (size_t d = 0; d < sizeof...(I); ++d) sum += at[d] * view.strides[d];
    return sum;
  }
  template <class... I> double operator()(I... index) const { return read(view.dtype, view.data, offset(index...)); }
  /// All elements in memory: a reference's inner loops read them faster than one by one by dtype.
  std::vector<double> values() const {
    return with_type(view.dtype, [&](auto v) {
      std::vector<double> all(size_t(count), 0.0);
      for (size_t i = 0; i < all.size(); ++i)
        std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v), all[i] = double(v);
      return all;
    });
  }
  template <class... I> void set(double value, I... index) { write(view.dtype, view.data, offset(index...), value); }
  int64_t count = 0;
};

inline const DType all_dtypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64,
                                   kInt32,   kInt16,   kInt8,    kUInt8,    kBool};
inline Context& cpu_context() { return context(kCPU); }
inline const BackendTable& cpu_table() { return backend(kCPU); }

}  // namespace tapir_tests
