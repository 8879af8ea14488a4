#include "interpolate.h"

#include <algorithm>
#include <cmath>

#include "arithmetic.h"
#include "cast.h"
#include "front.h"
#include "indexing.h"
#include "pool.h"
#include "shape.h"
#include "spatial.h"
#include "ternary.h"
#include "unary.h"

namespace tapir::inline v0 {

// Note [Interpolation]
// Every mode works along one axis after another: y[i] = sum over k of weight[k][i] x[place[k][i]], with 1 (nearest), 2 (linear), 4 (cubic)
// or, with antialias, as many taps as the filter is wide. Places and weights are computed here, on the host; a tap is an index_select,
// so that gradients of every order exist.

namespace {

enum class Kernel : uint8_t { Nearest, NearestExact, Linear, Cubic };

/// One axis: taps[k][i] and their weights.
struct Axis {
  std::vector<std::vector<int64_t>> places;
  std::vector<std::vector<double>> weights;  // none: all 1
  Axis(int64_t taps, int64_t out) : places(size_t(taps)), weights(size_t(taps)) {
    for (auto& p : places) p.resize(size_t(out));
    for (auto& w : weights) w.resize(size_t(out));
  }
};

/// Keys' cubic convolution with parameter a, at distance d.
double cubic(double d, double a) {
  d = std::abs(d);
  if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
}

/// The input's extent of one step of the output. scale: what the caller multiplied the size by, or 0.
double step_of(int64_t in, int64_t out, double scale, bool align) {
  if (align) return out > 1 ? double(in - 1) / double(out - 1) : 0;
  return scale > 0 ? 1 / scale : double(in) / double(out);
}

Axis nearest_axis(int64_t in, int64_t out, double scale, bool exact) {
  Axis axis(1, out);
  axis.weights.clear();
  const auto step = float(step_of(in, out, scale, false));  // PyTorch's rounding decides ties
  for (int64_t i = 0; i < out; ++i) {
    const float at = exact ? (float(i) + 0.5f) * step : float(i) * step;
    axis.places[0][size_t(i)] = !exact && out == in       ? i
                                : !exact && out == 2 * in ? i / 2
                                                          : std::min(int64_t(std::floor(at)), in - 1);
  }
  return axis;
}

Axis smooth_axis(Kernel kernel, int64_t in, int64_t out, double scale, bool align) {
  const bool linear = kernel == Kernel::Linear;
  const int64_t taps = linear ? 2 : 4;
  const double step = step_of(in, out, scale, align);
  Axis axis(taps, out);
  for (int64_t i = 0; i < out; ++i) {
    double at = align ? step * double(i) : step * (double(i) + 0.5) - 0.5;
    if (linear) at = out == in ? double(i) : std::clamp(at, 0.0, double(in - 1));
    const double first = std::floor(at), t = at - first;
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t offset = linear ? k : k - 1;
      axis.places[size_t(k)][size_t(i)] = std::clamp<int64_t>(int64_t(first) + offset, 0, in - 1);
      axis.weights[size_t(k)][size_t(i)] = linear ? (k ? t : 1 - t) : cubic(t - double(offset), -0.75);
    }
  }
  return axis;
}

/// A filter stretched by the step where that is above 1, normalised to what lies inside.
Axis filtered_axis(Kernel kernel, int64_t in, int64_t out, double scale, bool align) {
  const double step = step_of(in, out, scale, align), stretch = std::max(step, 1.0),
               support = (kernel == Kernel::Linear ? 1 : 2) * stretch;
  const auto window = [&](int64_t i) {
    const double centre = step * (double(i) + 0.5);
    return std::pair(std::max<int64_t>(0, int64_t(centre - support + 0.5)),
                     std::min(in, int64_t(centre + support + 0.5)));
  };
  int64_t taps = 1;
  for (int64_t i = 0; i < out; ++i) taps = std::max(taps, window(i).second - window(i).first);
  Axis axis(taps, out);
  for (int64_t i = 0; i < out; ++i) {
    const auto [first, last] = window(i);
    const double centre = step * (double(i) + 0.5);
    double total = 0;
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t j = first + k;
      const double d = (double(j) - centre + 0.5) / stretch;
      const double w = j >= last ? 0 : kernel == Kernel::Linear ? std::max(0.0, 1 - std::abs(d)) : cubic(d, -0.5);
      axis.places[size_t(k)][size_t(i)] = std::min(j, in - 1);
      axis.weights[size_t(k)][size_t(i)] = w, total += w;
    }
    for (int64_t k = 0; k < taps && total != 0; ++k) axis.weights[size_t(k)][size_t(i)] /= total;
  }
  return axis;
}

Tensor resample(const Tensor& x, int64_t dim, const Axis& axis) {
  Shape along = Dims::filled(x.dim(), 1);
  along[dim] = int64_t(axis.places[0].size());
  Tensor y;
  for (size_t k = 0; k < axis.places.size(); ++k) {
    const Tensor tap = index_select(x, dim, to(tensor(axis.places[k]), x.device()));
    if (axis.weights.empty()) return tap;
    const Tensor weight = to(view(tensor(axis.weights[k], {.dtype = x.dtype()}), along), x.device());
    y = y.defined() ? addcmul(y, tap, weight) : mul(tap, weight);
  }
  return y;
}

struct Mode {
  std::string_view name;
  Kernel kernel;
  int64_t rank;  // 0: any
};
constexpr Mode kModes[] = {{"nearest", Kernel::Nearest, 0}, {"nearest-exact", Kernel::NearestExact, 0},
                           {"area", Kernel::Nearest, 0},    {"linear", Kernel::Linear, 3},
                           {"bilinear", Kernel::Linear, 4}, {"bicubic", Kernel::Cubic, 4},
                           {"trilinear", Kernel::Linear, 5}};

const Mode& mode_of(const Tensor& x, const InterpolateOptions& o) {
  const auto* mode =
      std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return m.name == o.mode; });
  check(mode != std::end(kModes),
        "[interpolate] expected mode nearest, nearest-exact, area, linear, bilinear, bicubic or trilinear, got \"{}\"",
        o.mode);
  check(x.dim() >= 3 && x.dim() <= 5 && (mode->rank == 0 || mode->rank == x.dim()),
        "[interpolate] expected an input with {} dimensions for mode {}, got {}",
        mode->rank == 0   ? std::string_view("3 to 5")
        : mode->rank == 3 ? "3"
        : mode->rank == 4 ? "4"
                          : "5",
        o.mode, x);
  check(mode->rank != 0 || !o.align_corners,
        "[interpolate] align_corners can only be set with linear, bilinear, bicubic and trilinear, got mode {}",
        o.mode);
  check(!o.antialias || mode->rank == 4,
        "[interpolate] antialias is restricted to bilinear and bicubic of a 4D input, got mode {} of {}", o.mode, x);
  return *mode;
}

/// The shape of the result.
Shape target_shape(const Tensor& x, const InterpolateOptions& o) {
  const int64_t axes = x.dim() - 2, sizes = o.size.size(), scales = int64_t(o.scale_factor.size());
  check((sizes == 0) != (scales == 0), "[interpolate] expected one of size and scale_factor, got {}",
        sizes ? "both" : "none");
  check(sizes + scales == 1 || sizes + scales == axes, "[interpolate] expected one number or {} for {}, got {}", axes,
        x, sizes + scales);
  check(!o.recompute_scale_factor || scales,
        "[interpolate] recompute_scale_factor is not meaningful with an explicit size, got size {}", o.size);
  Shape shape{x.shape()[0], x.shape()[1]};
  int64_t total = shape[0] * shape[1];
  for (int64_t i = 0; i < axes; ++i) {
    const int64_t in = x.shape()[2 + i];
    double out = 0;
    if (sizes) {
      out = double(o.size[sizes == 1 ? 0 : i]);
    } else {
      const double scale = o.scale_factor[size_t(scales == 1 ? 0 : i)];
      check(std::isfinite(scale) && scale > 0, "[interpolate] expected scale factors above 0, got {}", scale);
      out = std::floor(double(in) * scale);
    }
    check(in > 0 && out >= 1 && out < 0x1p62,
          "[interpolate] input and output sizes should be greater than 0, but got {} and {} along axis {}", in, out, i);
    shape.push_back(int64_t(out)), total = checked_mul("interpolate", total, int64_t(out));
  }
  return shape;
}

}  // namespace

Tensor interpolate(const Tensor& input, const InterpolateOptions& o) {
  const Mode& mode = mode_of(input, o);
  const Shape shape = target_shape(input, o);
  const int64_t axes = input.dim() - 2;
  Dims size(std::span(shape.data() + 2, size_t(axes)));
  if (o.mode == "area")
    return axes == 1   ? adaptive_avg_pool1d(input, size)
           : axes == 2 ? adaptive_avg_pool2d(input, size)
                       : adaptive_avg_pool3d(input, size);
  const bool nearest = mode.kernel == Kernel::Nearest || mode.kernel == Kernel::NearestExact;
  check(nearest || is_floating(input.dtype()) || input.dtype() == kUInt8,
        "[interpolate] expected a floating-point dtype or uint8 for mode {}, got {}", o.mode, input);
  const bool align = o.align_corners.value_or(false), last = prefers_channels_last(input);
  Tensor y = nearest ? input : to(input, is_floating(input.dtype()) ? compute_type(input.dtype()) : kFloat32);
  const bool grows = numel_of(shape) > input.numel();  // then the last axis, whose steps are the dearest, is the first
  for (int64_t step = 0; step < axes; ++step) {
    const int64_t i = grows ? axes - 1 - step : step, in = input.shape()[2 + i], out = shape[2 + i];
    const double scale = o.scale_factor.empty() || o.recompute_scale_factor
                             ? 0
                             : o.scale_factor[o.scale_factor.size() == 1 ? 0 : size_t(i)];
    const Axis axis = nearest       ? nearest_axis(in, out, scale, mode.kernel == Kernel::NearestExact)
                      : o.antialias ? filtered_axis(mode.kernel, in, out, scale, align)
                                    : smooth_axis(mode.kernel, in, out, scale, align);
    y = resample(y, 2 + i, axis);
  }
  if (input.dtype() == kUInt8 && !nearest) y = clamp(round(y), 0, 255);
  return contiguous(to(y, input.dtype()), last ? kChannelsLast : kContiguous);
}

}  // namespace tapir::inline v0
