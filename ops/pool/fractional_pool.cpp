#include "../fractional_pool.h"

#include <cmath>

#include "../arithmetic.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../indexing.h"
#include "../random.h"
#include "../shape.h"
#include "../slicing.h"
#include "../spatial.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {
namespace {

/// Where the windows of one axis begin: u (N, C) -> (N, C, out). Steps of floor(a (i + u)) - floor(a u) with a = (in - kernel) / (out - 1);
/// the last window ends with the input.
Tensor window_starts(const Tensor& u, int64_t in, int64_t out, int64_t kernel) {
  const double step = out > 1 ? double(in - kernel) / double(out - 1) : 0;
  const Tensor shift = unsqueeze(u, 2), i = arange(out, {.dtype = u.dtype(), .device = u.device()});
  const Tensor starts = sub(floor(mul(add(i, shift), step)), floor(mul(shift, step)));
  return to(where(lt(i, double(out - 1)), starts, double(in - kernel)), kInt64);
}

/// x (N, C, ...) -> positions in the plane of all taps of all windows: (N, C, windows, taps).
Tensor window_taps(const Tensor& x, const Tensor& samples, const int64_t* kernel, const Shape& out) {
  const int64_t axes = x.dim() - 2;
  Shape full{x.shape()[0], x.shape()[1]};
  for (int64_t a = 0; a < axes; ++a) full.push_back(out[a]);
  for (int64_t a = 0; a < axes; ++a) full.push_back(kernel[a]);
  Tensor places;
  for (int64_t a = 0; a < axes; ++a) {
    const int64_t in = x.shape()[2 + a];
    const Tensor u = select(samples, 2, axes == 2 ? 1 - a : a);  // PyTorch's order: of images the width first
    const Tensor starts = window_starts(u, in, out[a], kernel[a]);
    Shape shape = Dims::filled(full.size(), 1);
    shape[0] = full[0], shape[1] = full[1], shape[2 + a] = out[a], shape[2 + axes + a] = kernel[a];
    const Tensor own = reshape(add(unsqueeze(starts, 3), arange(kernel[a], {.device = x.device()})), shape);
    places = places.defined() ? add(mul(places, in), own) : own;
  }
  int64_t taps = 1;
  for (int64_t a = 0; a < axes; ++a) taps *= kernel[a];
  return reshape(expand(places, full), {full[0], full[1], numel_of(out), taps});
}

Shape target_size(const char* op, const Tensor& x, int64_t axes, const FractionalMaxPoolOptions& o) {
  const int64_t sizes = o.output_size.size(), ratios = int64_t(o.output_ratio.size()), given = sizes + ratios;
  check((sizes == 0) != (ratios == 0) && (given == 1 || given == axes),
        "[{}] expected one of output_size and output_ratio, one number or {}, got {} and {} numbers", op, axes, sizes,
        ratios);
  Shape out;
  for (int64_t a = 0; a < axes; ++a) {
    const int64_t at = given == 1 ? 0 : a;
    if (ratios) {
      const double ratio = o.output_ratio[size_t(at)];
      check(ratio > 0 && ratio < 1, "[{}] output_ratio must be between 0 and 1, got {}", op, ratio);
      out.push_back(int64_t(double(x.shape()[2 + a]) * ratio));
    } else {
      out.push_back(o.output_size[at]);
    }
  }
  return out;
}

std::pair<Tensor, Tensor> fractional_max_pool(const char* op, const Tensor& x, int64_t axes, const Dims& kernel_size,
                                              const FractionalMaxPoolOptions& o) try {
  check_defined(op, "x", x);
  check(x.dim() == axes + 2 || x.dim() == axes + 1, "[{}] expected {}D or {}D tensor, got {}", op, axes + 1, axes + 2,
        x);
  check(is_floating(x.dtype()), "[{}] expected a floating-point dtype, got {}", op, x);
  if (x.dim() == axes + 1) {
    const auto [y, indices] = fractional_max_pool(op, unsqueeze(x, 0), axes, kernel_size, o);
    return {squeeze(y, 0), squeeze(indices, 0)};
  }
  int64_t kernel[3];
  spread(op, "kernel size", kernel_size, axes, 1, kernel);
  const Shape out = target_size(op, x, axes, o);
  Shape shape{x.shape()[0], x.shape()[1]};
  for (int64_t a = 0; a < axes; ++a) {
    const int64_t in = x.shape()[2 + a];
    check(out[a] > 0 && kernel[a] <= in && out[a] - 1 <= in - kernel[a],
          "[{}] expected output_size {} of at least 1 with output_size + kernel_size - 1 <= input_size along axis {}: "
          "kernel {}, input {}",
          op, out[a], a, kernel[a], x);
    shape.push_back(out[a]);
  }
  Tensor samples = o.random_samples;
  if (!samples.defined())
    samples = rand({shape[0], shape[1], axes}, {.dtype = compute_type(x.dtype()), .device = x.device()});
  common_device(op, {&x, &samples});
  check(samples.shape() == Shape{shape[0], shape[1], axes} && is_floating(samples.dtype()),
        "[{}] expected random_samples of shape {}, got {}", op, Shape{shape[0], shape[1], axes}, samples);
  const Tensor plane = flatten(x, 2);
  Tensor indices;
  {
    NoGrad guard;
    const Tensor taps = window_taps(x, samples, kernel, out);
    const Tensor seen = view(gather(plane, 2, flatten(taps, 2)), taps.shape());
    indices = flatten(gather(taps, 3, argmax(seen, 3, {.keepdim = true})), 2);
  }
  return {view(gather(plane, 2, indices), shape), view(indices, shape)};
} catch (...) {
  fail_as(op);
}

}  // namespace

#define FRACTIONAL(name, axes)                                                                     \
  std::pair<Tensor, Tensor> name##_with_indices(const Tensor& x, const Dims& kernel_size,          \
                                                const FractionalMaxPoolOptions& options) {         \
    return fractional_max_pool(#name, x, axes, kernel_size, options);                              \
  }                                                                                                \
  Tensor name(const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options) { \
    return name##_with_indices(x, kernel_size, options).first;                                     \
  }
FRACTIONAL(fractional_max_pool2d, 2)
FRACTIONAL(fractional_max_pool3d, 3)

}  // namespace tapir::inline v0
