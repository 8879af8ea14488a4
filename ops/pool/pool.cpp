#include "../pool.h"

#include <cmath>

#include "../activation.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../create.h"
#include "../front.h"
#include "../indexing.h"
#include "../pointwise.h"
#include "../shape.h"
#include "../spatial.h"
#include "../unary.h"

namespace tapir::inline v0 {

// Note [Pooling gradients]
// A pool is linear in x once the places of the maxima are known. Its gradient scatters dy to those places (or spreads means), and the
// gradient of that gathers again: both are recorded operations, each the other's gradient.

static Tensor scatter_maxima(const Tensor& dy, const Tensor& indices, const Shape& x_shape, bool x_last,
                             const PoolParams& p);

/// x at the places of the maxima.
static Tensor gather_maxima(const Tensor& x, const Tensor& indices) {
  return view(gather(flatten(x, 2), 2, flatten(indices, 2)), indices.shape());
}
static Tensor scatter_maxima(const Tensor& dy, const Tensor& indices, const Shape& x_shape, bool x_last,
                             const PoolParams& p) {
  Tensor dx = empty_image(x_shape, dy, x_last);
  if (dx.numel()) backend(dy).pool_backward(context(dy), {dx, dy, indices, p});
  return record("max_pool_backward", dx, {dy}, save(indices),
                [](const Tensor& u, const Tensor& indices) { return Grads{gather_maxima(u, indices)}; });
}

static Tensor average(const char* op, const Tensor& x, const Shape& y_shape, const PoolParams& p);

static Tensor spread_means(const Tensor& dy, const Shape& x_shape, bool x_last, const PoolParams& p) {
  Tensor dx = empty_image(x_shape, dy, x_last);
  if (dx.numel()) backend(dy).pool_backward(context(dy), {.dx = dx, .dy = dy, .params = p});
  const Shape y_shape = dy.shape();
  return record("avg_pool_backward", dx, {dy},
                [y_shape, p](const Tensor& u) { return Grads{average("avg_pool", u, y_shape, p)}; });
}
static Tensor average(const char* op, const Tensor& x, const Shape& y_shape, const PoolParams& p) {
  const Shape x_shape = x.shape();
  const bool last = prefers_channels_last(x);
  Tensor y = empty_image(y_shape, x, last);
  if (y.numel()) backend(x).pool(context(x), {.y = y, .x = x, .params = p});
  return record(op, y, {x}, [x_shape, last, p](const Tensor& dy) { return Grads{spread_means(dy, x_shape, last, p)}; });
}

static void check_input(const char* op, const Tensor& x, int64_t spatial) {
  check(x.dim() == spatial + 2 || x.dim() == spatial + 1, "[{}] expected {}D or {}D (batch mode) tensor, got {}", op,
        spatial + 1, spatial + 2, x);
  for (int64_t d = x.dim() - spatial - 1; d < x.dim(); ++d) {
    check(x.shape()[d] > 0,
          "[{}] expected {}D or {}D (batch mode) tensor with optional 0 dim batch size for input, got {}", op,
          spatial + 1, spatial + 2, x);
  }
}

/// One axis of the result: windows that begin inside the input or its left padding.
static int64_t pooled_size(const char* op, const Tensor& x, int64_t axis, const PoolParams& p) {
  const int64_t in = x.shape()[2 + axis], stride = p.stride[axis], padding = p.padding[axis],
                extent = checked_extent(op, p.kernel[axis], p.dilation[axis]);
  check(padding <= extent / 2,
        "[{}] pad should be at most half of effective kernel size, but got pad={}, kernel_size={} and dilation={}", op,
        padding, p.kernel[axis], p.dilation[axis]);
  const int64_t room = checked_add(op, checked_add(op, in, checked_mul(op, 2, padding)), -extent);
  int64_t out = room < 0 ? 0 : (room + (p.ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (room < 0 && p.ceil_mode && room + stride > 0) out = 1;  // the rounded-up division of a small negative number
  if (p.ceil_mode && (out - 1) * stride >= in + padding) --out;
  check(out > 0, "[{}] given input size: {}. Calculated output size along axis {}: {}. Output size is too small", op,
        x.shape(), axis, out);
  return out;
}

static Shape pooled_shape(const char* op, const Tensor& x, const PoolParams& p) {
  Shape shape{x.shape()[0], x.shape()[1]};
  for (int64_t i = 0; i < p.spatial; ++i) shape.push_back(pooled_size(op, x, i, p));
  return shape;
}

static PoolParams window_params(const char* op, PoolOp kind, int64_t spatial, const Dims& kernel, const Dims& stride,
                                const Dims& padding, const Dims& dilation, bool ceil_mode) {
  PoolParams p{.op = kind, .spatial = spatial};
  spread(op, "kernel size", kernel, spatial, 1, p.kernel);
  spread(op, "stride", stride.empty() ? kernel : stride, spatial, 1, p.stride);
  spread(op, "padding", padding, spatial, 0, p.padding);
  spread(op, "dilation", dilation, spatial, 1, p.dilation);
  p.ceil_mode = ceil_mode;
  return p;
}

/// x (N, C, ...) pooled to that shape, and where the maxima are (absent unless somebody wants it).
static std::pair<Tensor, Tensor> largest(const char* op, const Tensor& x, const Shape& shape, const PoolParams& p,
                                         bool wants_indices) {
  const Shape x_shape = x.shape();
  const bool last = prefers_channels_last(x);
  Tensor y = empty_image(shape, x, last), indices;
  if (wants_indices || wants_grad({x}))
    indices = empty_strided(shape, y.strides(), {.dtype = kInt64, .device = x.device()});
  if (y.numel()) backend(x).pool(context(x), {y, indices, x, p});
  return {record(op, y, {x}, save(indices),
                 [x_shape, last, p](const Tensor& dy, const Tensor& indices) {
                   return Grads{scatter_maxima(dy, indices, x_shape, last, p)};
                 }),
          indices};
}

static std::pair<Tensor, Tensor> max_pool(const char* op, const Tensor& x, int64_t spatial, const Dims& kernel,
                                          const MaxPoolOptions& o, bool wants_indices) try {
  check_input(op, x, spatial);
  const PoolParams p = window_params(op, PoolOp::Max, spatial, kernel, o.stride, o.padding, o.dilation, o.ceil_mode);
  if (x.dim() == spatial + 1) {
    auto [y, indices] = max_pool(op, unsqueeze(x, 0), spatial, kernel, o, wants_indices);
    return {squeeze(y, 0), indices.defined() ? squeeze(indices, 0) : indices};
  }
  return largest(op, x, pooled_shape(op, x, p), p, wants_indices);
} catch (...) {
  fail_as(op);
}

static Tensor avg_pool(const char* op, const Tensor& x, int64_t spatial, const Dims& kernel,
                       const AvgPoolOptions& o) try {
  check_input(op, x, spatial);
  PoolParams p = window_params(op, PoolOp::Avg, spatial, kernel, o.stride, o.padding, 1, o.ceil_mode);
  p.count_include_pad = o.count_include_pad;
  check(o.divisor_override != 0, "[{}] divisor must be not zero, got divisor_override 0", op);
  p.divisor = o.divisor_override.value_or(0);
  if (x.dim() == spatial + 1) return squeeze(avg_pool(op, unsqueeze(x, 0), spatial, kernel, o), 0);
  return average(op, x, pooled_shape(op, x, p), p);
} catch (...) {
  fail_as(op);
}

static Shape adaptive_shape(const char* op, const Tensor& x, int64_t spatial, const Dims& output_size) {
  check(output_size.size() == 1 || output_size.size() == spatial,
        "[{}] expected output_size to be one number or {}, got {}", op, spatial, output_size);
  Shape shape{x.shape()[0], x.shape()[1]};
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t wanted = output_size[output_size.size() == 1 ? 0 : i];
    check(wanted > 0 || wanted == -1,
          "[{}] elements of output_size must be greater than 0 (or -1 to keep a size), got {}", op, output_size);
    shape.push_back(wanted == -1 ? x.shape()[2 + i] : wanted);
  }
  return shape;
}

static Tensor adaptive_avg_pool(const char* op, const Tensor& x, int64_t spatial, const Dims& output_size) try {
  check_input(op, x, spatial);
  check(is_floating(x.dtype()), "[{}] expected a floating-point dtype, got {}", op, x);
  if (x.dim() == spatial + 1) return squeeze(adaptive_avg_pool(op, unsqueeze(x, 0), spatial, output_size), 0);
  return average(op, x, adaptive_shape(op, x, spatial, output_size), {.op = PoolOp::AdaptiveAvg, .spatial = spatial});
} catch (...) {
  fail_as(op);
}

static std::pair<Tensor, Tensor> adaptive_max_pool(const char* op, const Tensor& x, int64_t spatial,
                                                   const Dims& output_size, bool wants_indices) try {
  check_input(op, x, spatial);
  if (x.dim() == spatial + 1) {
    auto [y, indices] = adaptive_max_pool(op, unsqueeze(x, 0), spatial, output_size, wants_indices);
    return {squeeze(y, 0), indices.defined() ? squeeze(indices, 0) : indices};
  }
  return largest(op, x, adaptive_shape(op, x, spatial, output_size), {.op = PoolOp::AdaptiveMax, .spatial = spatial},
                 wants_indices);
} catch (...) {
  fail_as(op);
}

static Tensor max_unpool(const char* op, const Tensor& x, const Tensor& indices, int64_t spatial, const Dims& kernel,
                         const MaxUnpoolOptions& o) try {
  check_defined(op, "x", x, "indices", indices);
  common_device(op, {&x, &indices});
  check_input(op, x, spatial);
  check(indices.dtype() == kInt64 && indices.shape() == x.shape(),
        "[{}] expected int64 indices of the input's shape {}, got {}", op, x.shape(), indices);
  if (x.dim() == spatial + 1)
    return squeeze(max_unpool(op, unsqueeze(x, 0), unsqueeze(indices, 0), spatial, kernel, o), 0);
  const PoolParams p = window_params(op, PoolOp::Max, spatial, kernel, o.stride, o.padding, 1, false);
  const int64_t given = o.output_size.size(), skip = given > spatial ? given - spatial : 0;
  check(given == 0 || given == spatial || given == spatial + 2,
        "[{}] expected output_size with {} or {} numbers, got {}", op, spatial, spatial + 2, o.output_size);
  Shape shape{x.shape()[0], x.shape()[1]};
  int64_t plane = 1;
  for (int64_t i = 0; i < spatial; ++i) {
    int64_t size = checked_add(op, checked_mul(op, x.shape()[2 + i] - 1, p.stride[i]), p.kernel[i] - 2 * p.padding[i]);
    if (given) {
      const int64_t wanted = o.output_size[skip + i];
      check(wanted > size - p.stride[i] && wanted < size + p.stride[i],
            "[{}] invalid output_size {} (axis {} must be between {} and {})", op, o.output_size, i, size - p.stride[i],
            size + p.stride[i]);
      size = wanted;
    }
    check(size >= 0, "[{}] expected a result of at least 0 along each axis, got {} along axis {}", op, size, i);
    shape.push_back(size), plane = checked_mul(op, plane, size);
  }
  Tensor y = zeros({shape[0], shape[1], plane}, {.dtype = x.dtype(), .device = x.device()});
  Context& ctx = context(x);
  if (x.numel()) backend(x).scatter(ctx, {y, flatten(indices, 2), flatten(x.detach(), 2), {.dim = 2}});
  check_values(ctx,
               tapir::format("[{}] index {value} at position {position} is out of range for a plane of {bound}", op));
  y = alias(y, shape, contiguous_strides(shape), 0);
  return record(op, y, {x}, save(indices),
                [](const Tensor& g, const Tensor& indices) { return Grads{gather_maxima(g, indices)}; });
} catch (...) {
  fail_as(op);
}

/// Through means as PyTorch: where ceil_mode cuts a window, its mean still counts as one of the whole window.
static Tensor lp_pool(const char* op, const Tensor& x, int64_t spatial, double p, const Dims& kernel,
                      const LpPoolOptions& o) try {
  check(p != 0 && !std::isnan(p), "[{}] norm_type must be a non-zero value, but got {}", op, p);
  if (std::isinf(p)) {
    const MaxPoolOptions options{.stride = o.stride, .ceil_mode = o.ceil_mode};
    const Tensor size = abs(x);
    return p > 0 ? max_pool(op, size, spatial, kernel, options, false).first
                 : neg(max_pool(op, neg(size), spatial, kernel, options, false).first);
  }
  const Tensor means = avg_pool(op, pow(x, p), spatial, kernel, {.stride = o.stride, .ceil_mode = o.ceil_mode});
  int64_t taps = 1;
  for (int64_t i = 0; i < spatial; ++i) taps *= kernel[kernel.size() == 1 ? 0 : i];
  return pow(mul(mul(sign(means), relu(abs(means))), taps), 1 / p);
} catch (...) {
  fail_as(op);
}

// The functions of one rank. TAPIR_AUTOCAST is nothing where autocast has no rule for the name.
#define TAPIR_POOLS(name, rank)                                                                                    \
  Tensor max_pool##name(const Tensor& x, const Dims& kernel, const MaxPoolOptions& o) {                            \
    return max_pool("max_pool" #name, x, rank, kernel, o, false).first;                                            \
  }                                                                                                                \
  std::pair<Tensor, Tensor> max_pool##name##_with_indices(const Tensor& x, const Dims& kernel,                     \
                                                          const MaxPoolOptions& o) {                               \
    return max_pool("max_pool" #name, x, rank, kernel, o, true);                                                   \
  }                                                                                                                \
  Tensor avg_pool##name(const Tensor& x, const Dims& kernel, const AvgPoolOptions& o) {                            \
    TAPIR_AUTOCAST(avg_pool##name, x, kernel, o);                                                                  \
    return avg_pool("avg_pool" #name, x, rank, kernel, o);                                                         \
  }                                                                                                                \
  Tensor adaptive_avg_pool##name(const Tensor& x, const Dims& output_size) {                                       \
    TAPIR_AUTOCAST(adaptive_avg_pool##name, x, output_size);                                                       \
    return adaptive_avg_pool("adaptive_avg_pool" #name, x, rank, output_size);                                     \
  }                                                                                                                \
  Tensor adaptive_max_pool##name(const Tensor& x, const Dims& output_size) {                                       \
    TAPIR_AUTOCAST(adaptive_max_pool##name, x, output_size);                                                       \
    return adaptive_max_pool("adaptive_max_pool" #name, x, rank, output_size, false).first;                        \
  }                                                                                                                \
  std::pair<Tensor, Tensor> adaptive_max_pool##name##_with_indices(const Tensor& x, const Dims& output_size) {     \
    TAPIR_AUTOCAST(adaptive_max_pool##name##_with_indices, x, output_size);                                        \
    return adaptive_max_pool("adaptive_max_pool" #name, x, rank, output_size, true);                               \
  }                                                                                                                \
  Tensor max_unpool##name(const Tensor& x, const Tensor& indices, const Dims& kernel, const MaxUnpoolOptions& o) { \
    TAPIR_AUTOCAST(max_unpool##name, x, indices, kernel, o);                                                       \
    return max_unpool("max_unpool" #name, x, indices, rank, kernel, o);                                            \
  }                                                                                                                \
  Tensor lp_pool##name(const Tensor& x, double norm_type, const Dims& kernel, const LpPoolOptions& o) {            \
    return lp_pool("lp_pool" #name, x, rank, norm_type, kernel, o);                                                \
  }
TAPIR_POOLS(1d, 1)
TAPIR_POOLS(2d, 2)
TAPIR_POOLS(3d, 3)
#undef TAPIR_POOLS

}  // namespace tapir::inline v0
