#include "../grid.h"

#include <vector>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../indexing.h"
#include "../matmul.h"
#include "../pointwise.h"
#include "../shape.h"
#include "../slicing.h"
#include "../spatial.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {
namespace {

// Note [Grid sampling]
// Coordinates become positions p in elements; a tap at floor(p) + k along each axis is one gather from the flattened image, weighted
// by a polynomial of p - floor(p). All of it is differentiable operations, so the gradients of x and grid follow.

enum class Outside : uint8_t { Zeros, Border, Reflection };

/// Bounces p back and forth between low / 2 and high / 2.
Tensor reflected(const Tensor& p, int64_t low, int64_t high) {
  if (low == high) return mul(p, 0);
  const double least = double(low) / 2, span = double(high - low) / 2;
  const Tensor distance = abs(sub(p, least)), rest = fmod(distance, span);
  Tensor even;
  {
    NoGrad guard;
    even = eq(fmod(floor(div(distance, span)), 2), 0);
  }
  return where(even, add(rest, least), sub(span + least, rest));
}

struct Sampler {
  Outside outside;
  bool align;
  int64_t size;  // of this axis

  Tensor unnormalized(const Tensor& coordinate) const {
    return align ? mul(add(coordinate, 1), double(size - 1) / 2)
                 : div(sub(mul(add(coordinate, 1), double(size)), 1), 2);
  }
  /// What positions outside become; a position that is no number reads nothing.
  Tensor folded(Tensor p) const {
    if (outside == Outside::Zeros) return p;
    if (outside == Outside::Reflection) p = align ? reflected(p, 0, 2 * (size - 1)) : reflected(p, -1, 2 * size - 1);
    return clamp(p, 0, double(size - 1));
  }
};

/// What one axis contributes to a tap: positions (int64, inside), which of them count, weights (absent: 1).
struct Tap {
  Tensor place, counts, weight;
};

Tap tap_at(const Sampler& s, const Tensor& position, const Tensor& weight) {
  NoGrad guard;
  const Tensor p = s.folded(position);
  const Tensor counts = logical_and(ge(p, 0), le(p, double(s.size - 1)));
  return {to(masked_fill(p, logical_not(counts), 0), kInt64), counts, weight};
}

/// Keys' cubic convolution with a = -0.75 at t + 1, t, 1 - t, 2 - t.
std::vector<Tensor> cubic_weights(const Tensor& t) {
  const double a = -0.75;
  const auto inner = [&](const Tensor& d) { return add(mul(sub(mul(d, a + 2), a + 3), square(d)), 1); };
  const auto outer = [&](const Tensor& d) { return mul(sub(mul(add(mul(sub(d, 5), d), 8), d), 4), a); };
  const Tensor r = sub(1, t);
  return {outer(add(t, 1)), inner(t), inner(r), outer(add(r, 1))};
}

/// coordinate: (N, P) of one axis.
std::vector<Tap> taps_of(const Sampler& s, const Tensor& coordinate, std::string_view mode) {
  Tensor p = s.unnormalized(coordinate);
  if (mode == "nearest") return {tap_at(s, round(s.folded(p)), {})};
  if (mode == "bilinear") p = s.folded(p);
  Tensor first;
  {
    NoGrad guard;
    first = floor(p);
  }
  const Tensor t = sub(p, first);
  if (mode == "bilinear") return {tap_at(s, first, sub(1, t)), tap_at(s, add(first, 1), t)};
  const std::vector<Tensor> weights = cubic_weights(t);
  std::vector<Tap> taps;
  for (int64_t k = 0; k < 4; ++k) taps.push_back(tap_at(s, add(first, k - 1), weights[size_t(k)]));
  return taps;
}

/// The taps of the axes before d and those of axis d together.
Tap joined(const Tap& a, const Tap& b, int64_t size) {
  if (!a.place.defined()) return b;
  NoGrad guard;
  Tap both{add(mul(a.place, size), b.place), logical_and(a.counts, b.counts), {}};
  return both;
}

/// x (N, C, plane) at the places (N, P), 0 where they do not count -> (N, C, P)
Tensor read(const Tensor& x, const Tap& tap) {
  const int64_t n = x.shape()[0], points = tap.place.shape()[1];
  const Tensor got = gather(x, 2, expand(unsqueeze(tap.place, 1), {n, x.shape()[1], points}));
  const Tensor counted = where(unsqueeze(tap.counts, 1), got, 0);
  return tap.weight.defined() ? mul(counted, unsqueeze(where(tap.counts, tap.weight, 0), 1)) : counted;
}

void check_operands(const Tensor& x, const Tensor& grid, const GridSampleOptions& o) {
  common_device("grid_sample", {&x, &grid});
  check(is_floating(x.dtype()) && x.dtype() == grid.dtype(),
        "[grid_sample] expected input and grid of one floating-point dtype, got {} and {}", x, grid);
  const int64_t axes = x.dim() - 2;
  check((axes == 2 || axes == 3) && grid.dim() == x.dim(),
        "[grid_sample] expected 4D or 5D input and grid with same number of dimensions, got {} and {}", x, grid);
  check(x.shape()[0] == grid.shape()[0], "[grid_sample] expected grid and input to have same batch size, got {} and {}",
        x, grid);
  check(grid.shape()[axes + 1] == axes, "[grid_sample] expected grid to have size {} in last dimension, got {}", axes,
        grid);
  for (int64_t d = 2; d < x.dim(); ++d)
    check(x.shape()[d] > 0, "[grid_sample] expected input to have non-empty spatial dimensions, got {}", x);
  check(o.mode == "bilinear" || o.mode == "nearest" || o.mode == "bicubic",
        "[grid_sample] expected mode \"bilinear\", \"nearest\" or \"bicubic\", got \"{}\"", o.mode);
  check(o.padding_mode == "zeros" || o.padding_mode == "border" || o.padding_mode == "reflection",
        "[grid_sample] expected padding_mode \"zeros\", \"border\" or \"reflection\", got \"{}\"", o.padding_mode);
}

}  // namespace

Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleOptions& o) {
  check_defined("grid_sample", "input", input, "grid", grid);
  TAPIR_AUTOCAST(grid_sample, input, grid, o);
  check_operands(input, grid, o);
  const int64_t axes = input.dim() - 2, n = input.shape()[0];
  const Outside outside = o.padding_mode == "zeros"    ? Outside::Zeros
                          : o.padding_mode == "border" ? Outside::Border
                                                       : Outside::Reflection;
  Shape shape{n, input.shape()[1]};
  int64_t points = 1;
  for (int64_t i = 0; i < axes; ++i) shape.push_back(grid.shape()[1 + i]), points *= grid.shape()[1 + i];
  const Tensor x = flatten(to(input, compute_type(input.dtype())), 2);
  const Tensor coordinates = reshape(to(grid, x.dtype()), {n, points, axes});
  std::vector<Tap> taps(1);
  for (int64_t i = 0; i < axes; ++i) {
    const Sampler s{outside, o.align_corners, input.shape()[2 + i]};
    const std::vector<Tap> next = taps_of(s, select(coordinates, 2, axes - 1 - i), o.mode);
    std::vector<Tap> all;
    for (const Tap& a : taps)
      for (const Tap& b : next) {
        all.push_back(joined(a, b, s.size));
        all.back().weight = a.weight.defined() ? mul(a.weight, b.weight) : b.weight;
      }
    taps = std::move(all);
  }
  Tensor y;
  for (const Tap& tap : taps) y = y.defined() ? add(y, read(x, tap)) : read(x, tap);
  if (o.mode == "nearest" && wants_grad({grid})) {  // piecewise constant: grid's gradient is there, and 0
    const Shape places = grid.shape();
    y = record("grid_sample", alias(y, y.shape(), y.strides(), y.storage_offset()), {y, grid},
               [places, dtype = grid.dtype()](const Tensor& g) {
                 return Grads{g, zeros(places, {.dtype = dtype, .device = g.device()})};
               });
  }
  return to(view(y, shape), input.dtype());
}

Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners) {
  check_defined("affine_grid", "theta", theta);
  const int64_t axes = size.size() - 2;
  check(is_floating(theta.dtype()), "[affine_grid] expected theta to have floating point type, but got {}", theta);
  check(axes == 2 || axes == 3, "[affine_grid] only supports 4D and 5D sizes, got size {}", size);
  check(theta.dim() == 3 && theta.shape()[0] == size[0] && theta.shape()[1] == axes && theta.shape()[2] == axes + 1,
        "[affine_grid] expected a batch of {}D affine matrices of shape {} for size {}. Got {}", axes,
        Shape{size[0], axes, axes + 1}, size, theta);
  Shape shape;
  for (int64_t d = 0; d < size.size(); ++d) {
    check(size[d] > 0, "[affine_grid] expected non-zero, positive output size. Got {}", size);
    if (d != 1) shape.push_back(size[d]);
  }
  const TensorOptions options{.dtype = theta.dtype(), .device = theta.device()};
  std::vector<Tensor> columns;  // x, y, (z,) 1 of every point, the last axis first
  Shape points = shape;
  points.erase(0);
  int64_t count = 1;
  for (const int64_t n : points) count = checked_mul("affine_grid", count, n);
  for (int64_t i = axes - 1; i >= 0; --i) {
    const int64_t n = points[i];
    const double edge = align_corners ? 1 : double(n - 1) / double(n);
    Shape along = Dims::filled(axes, 1);
    along[i] = n;
    const Tensor line = n == 1 ? zeros(1, options) : linspace(-edge, edge, n, options);
    columns.push_back(reshape(expand(view(line, along), points), count));
  }
  columns.push_back(ones(count, options));
  shape.push_back(axes);
  return reshape(matmul(stack(columns, 1), transpose(theta, 1, 2)), shape);
}

}  // namespace tapir::inline v0
