// What the tests of operations share.
#pragma once
#include <tapir/functional/gradcheck.h>
#include <tapir/tapir.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "../catch.h"
#include "../errors.h"

using namespace tapir;
using Values = std::vector<double>;
inline const double kNan = std::nan(""), kInf = INFINITY;

inline Values values(const Tensor& x) { return x.to_vector<double>(); }
/// A float64 tensor of these values in that shape; it requires a gradient.
inline Tensor leaf(const Values& v, const Shape& shape) { return tensor(std::span(v), shape).requires_grad_(); }
inline Tensor leaf(const Values& v) { return leaf(v, int64_t(v.size())); }
inline Tensor floats(const Values& v) { return to(tensor(v), kFloat32); }

/// Equal within `tolerance`, NaN equal to NaN.
inline bool close(const Values& a, const Values& b, double tolerance = 1e-6) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
          std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i]))))
      return false;
  return true;
}
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
inline bool mentions(const std::string& text, std::initializer_list<const char*> parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const char* part) { return has(text, part); });
}
/// First and second derivatives against finite differences.
template <class F> bool gradients_hold(const F& f, const std::vector<Tensor>& inputs) {
  return gradcheck(f, inputs) && gradcheck(f, inputs, {.full = true}) && gradgradcheck(f, inputs);
}
