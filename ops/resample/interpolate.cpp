#include "../interpolate.h"

#include <algorithm>
#include <cmath>

#include "../../core/resample.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../checked.h"
#include "../front.h"
#include "../indexing.h"
#include "../pool.h"
#include "../shape.h"
#include "../spatial.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {

namespace {

/// One axis after another; a tap of all outputs is an index_select. (Note [Resampling])
Tensor interpolate_axis(const Tensor& x, int64_t dim, const ResampleAxis& axis) {
  std::vector<std::vector<int64_t>> places;
  std::vector<std::vector<double>> weights;
  for (int64_t k = 0; k < axis.taps; ++k) {
    places.push_back(host_vector<int64_t>("interpolate", axis.out));
    weights.push_back(host_vector<double>("interpolate", axis.out));
  }
  for (int64_t i = 0; i < axis.out; ++i)
    axis.each_tap(i, [&](int64_t k, int64_t place, double weight) {
      places[size_t(k)][size_t(i)] = place, weights[size_t(k)][size_t(i)] = weight;
    });
  Shape along = Dims::filled(x.dim(), 1);
  along[dim] = axis.out;
  Tensor y;
  for (size_t k = 0; k < places.size(); ++k) {
    const Tensor tap = index_select(x, dim, to(tensor(places[k]), x.device()));
    if (axis.is_nearest()) return tap;
    const Tensor weight = to(view(tensor(weights[k], {.dtype = x.dtype()}), along), x.device());
    y = y.defined() ? addcmul(y, tap, weight) : mul(tap, weight);
  }
  return y;
}
Tensor interpolate_composite(const Tensor& x, const Shape& shape, bool last, const ResampleParams& p) {
  const bool nearest = p.op == ResampleOp::Nearest || p.op == ResampleOp::NearestExact;
  Tensor y = nearest ? x : to(x, compute_type(x.dtype()));
  const bool grows = numel_of(shape) > x.numel();  // then the last axis, whose steps are the dearest, is the first
  for (int64_t step = 0; step < p.spatial; ++step) {
    const int64_t i = grows ? p.spatial - 1 - step : step;
    y = interpolate_axis(y, 2 + i, ResampleAxis(p, i, x.shape()[2 + i], shape[2 + i]));
  }
  return contiguous(to(y, x.dtype()), last ? kChannelsLast : kContiguous);
}

/// Linear in x: each of the two is the gradient of the other.
Tensor resample(const Tensor& x, const Shape& shape, bool last, const ResampleParams& p);
Tensor resample_backward(const Tensor& dy, const Shape& shape, bool last, const ResampleParams& p) {
  const Shape y_shape = dy.shape();
  Tensor dx = empty_image(shape, dy, last);
  if (dx.numel()) backend(dy).resample_backward(context(dy), {dx, dy, p});
  return record("interpolate_backward", dx, {dy},
                [y_shape, last, p](const Tensor& g) { return Grads{resample(g, y_shape, last, p)}; });
}
Tensor resample(const Tensor& x, const Shape& shape, bool last, const ResampleParams& p) {
  const auto kernel = [&] {
    const Shape x_shape = x.shape();
    Tensor y = empty_image(shape, x, last);
    if (y.numel()) backend(x).resample(context(x), {y, x, p});
    return record("interpolate", y, {x},
                  [x_shape, last, p](const Tensor& g) { return Grads{resample_backward(g, x_shape, last, p)}; });
  };
  return kernel_or_composite("interpolate", bool(backend(x).resample), kernel,
                             [&] { return interpolate_composite(x, shape, last, p); });
}

struct Mode {
  std::string_view name;
  ResampleOp op;
  int64_t rank;  // 0: any
};
constexpr Mode kModes[] = {{"nearest", ResampleOp::Nearest, 0}, {"nearest-exact", ResampleOp::NearestExact, 0},
                           {"area", ResampleOp::Nearest, 0},    {"linear", ResampleOp::Linear, 3},
                           {"bilinear", ResampleOp::Linear, 4}, {"bicubic", ResampleOp::Cubic, 4},
                           {"trilinear", ResampleOp::Linear, 5}};

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
  check_defined("interpolate", "input", input);
  TAPIR_AUTOCAST(interpolate, input, o);
  const Mode& mode = mode_of(input, o);
  const Shape shape = target_shape(input, o);
  const int64_t axes = input.dim() - 2;
  Dims size(std::span(shape.data() + 2, size_t(axes)));
  if (o.mode == "area")
    return axes == 1   ? adaptive_avg_pool1d(input, size)
           : axes == 2 ? adaptive_avg_pool2d(input, size)
                       : adaptive_avg_pool3d(input, size);
  const bool nearest = mode.rank == 0, rounds = input.dtype() == kUInt8 && !nearest;
  check(nearest || is_floating(input.dtype()) || rounds,
        "[interpolate] expected a floating-point dtype or uint8 for mode {}, got {}", o.mode, input);
  ResampleParams p{.op = mode.op, .spatial = axes, .align_corners = o.align_corners.value_or(false)};
  if (o.antialias) p.op = mode.op == ResampleOp::Linear ? ResampleOp::FilteredLinear : ResampleOp::FilteredCubic;
  for (int64_t i = 0; i < axes && !o.scale_factor.empty() && !o.recompute_scale_factor; ++i)
    p.scale[i] = o.scale_factor[o.scale_factor.size() == 1 ? 0 : size_t(i)];
  const Tensor y = resample(rounds ? to(input, kFloat32) : input, shape, prefers_channels_last(input), p);
  return rounds ? to(clamp(floor(add(y, 0.5)), 0, 255), kUInt8) : y;
}

}  // namespace tapir::inline v0
