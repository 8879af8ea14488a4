// What tests of operations share: numbers that differ from place to place, comparison, and errors by their words.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include <tapir/functional/gradcheck.h>
#include <tapir/tapir.h>

#include "catch.h"

namespace tapir_tests {
using namespace tapir;

/// float64 between -1 and 1, the same at every call.
inline Tensor numbers(const Shape& shape, double from = 0.37) {
  Tensor x = empty(shape, {.dtype = kFloat64});
  double v = from;
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<double>()[i] = v;
    v = std::remainder(v * 1.7 + 0.613, 2.0);
  }
  return x;
}
inline Tensor leaf(const Shape& shape, double from = 0.37) { return numbers(shape, from).requires_grad_(); }
inline Tensor channels_last_leaf(const Shape& shape, double from = 0.37) {
  return contiguous(numbers(shape, from), kChannelsLast).detach().requires_grad_();
}

inline bool close(const Tensor& got, const Tensor& expected, double margin = 1e-10) {
  if (!(got.shape() == expected.shape())) return false;
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= margin) && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

/// f() throws ValueError with these words in it.
template <class F, class... W> bool refuses(F&& f, W... words) {
  try {
    f();
  } catch (const ValueError& e) {
    return ((std::string(e.what()).find(words) != std::string::npos) && ...);
  }
  return false;
}
/// Both orders of gradients are right.
template <class F> void check_gradients(const F& f, const std::vector<Tensor>& inputs, bool full = true) {
  CHECK(gradcheck(f, inputs, {.full = full}));
  CHECK(gradgradcheck(f, inputs));
}
}  // namespace tapir_tests
