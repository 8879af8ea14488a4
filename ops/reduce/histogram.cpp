#include "../histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../extremum.h"
#include "../front.h"

namespace tapir::inline v0 {

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength, SourceLocation where) {
  check_defined("bincount", "x", x);
  check(x.dim() == 1 && is_integral(x.dtype()), "[bincount] expected a vector of integers, got {}", x);
  check(minlength >= 0, "[bincount] expected a minlength that is not negative, got {}", minlength);
  check(!weights.defined() || weights.shape() == x.shape(), "[bincount] expected weights of shape {}, got {}",
        x.shape(), weights);
  common_device("bincount", {&x, &weights});
  int64_t bins = minlength;
  if (x.numel()) {
    const int64_t least = min(x).item<int64_t>(where), most = max(x).item<int64_t>(where);
    check(least >= 0, "[bincount] expected integers that are not negative, got {}", least);
    check(most < std::numeric_limits<int64_t>::max() / 8, "[bincount] {} counts do not fit into memory", most);
    bins = std::max(bins, most + 1);
  }
  const DType dtype = !weights.defined() || x.numel() == 0 ? kInt64 : weights.dtype() == kFloat32 ? kFloat32 : kFloat64;
  Tensor y = empty(bins, {.dtype = dtype, .device = x.device()});
  backend(x).histogram(context(x), {y, x, weights, {0, double(bins)}});
  return noted("bincount", y);
}

Tensor histc(const Tensor& x, int64_t bins, const HistcOptions& o, SourceLocation where) {
  check_defined("histc", "x", x);
  check(is_floating(x.dtype()), "[histc] expected a tensor of floating point dtype, got {}", x);
  check(bins > 0, "[histc] expected bins > 0, got {}", bins);
  double low = o.min, high = o.max;
  if (low == high && x.numel()) {
    const auto [least, largest] = aminmax(x.detach());
    low = least.item(where), high = largest.item(where);
  }
  if (low == high) low -= 1, high += 1;
  check(std::isfinite(low) && std::isfinite(high), "[histc] range of [{}, {}] is not finite", low, high);
  const double product = (high - low) * double(bins);  // kernels have it in float32, or float64
  check(std::isfinite(x.dtype() == kFloat64 ? product : double(float(product))),
        "[histc] expected a range whose width, times the {} bins, is finite, got [{}, {}]", bins, low, high);
  check(low < high, "[histc] max must be larger than min, got {} and {}", high, low);
  Tensor y = empty(bins, {.dtype = x.dtype(), .device = x.device()});
  backend(x).histogram(context(x), {.out = y, .x = x, .params = {low, high}});
  return noted("histc", y);
}

}  // namespace tapir::inline v0
