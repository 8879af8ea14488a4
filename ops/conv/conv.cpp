#include "../conv.h"

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../front.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../spatial.h"

namespace tapir::inline v0 {

Padding::Padding(std::string_view name) : kind(name == "same" ? Kind::Same : Kind::Valid), sizes(0) {
  check(name == "same" || name == "valid", "[conv] expected padding \"valid\" or \"same\", got \"{}\"", name);
}

// Note [Convolution gradients]
// A convolution y = C(x, w) is linear in x and in w. Its three kernels are C itself, its transpose in x, D(dy, w), and its transpose
// in w, W(dy, x). They are adjoint to each other, <dy, C(x, w)> = <D(dy, w), x> = <W(dy, x), w>, so that the gradients of each of
// them are the other two: all three are recorded operations, and any derivative of a convolution exists.

static bool channels_last(const Tensor& a, const Tensor& b) {
  return prefers_channels_last(a) || prefers_channels_last(b);
}
static Dims all_but_channels(int64_t rank) {
  Dims dims;
  for (int64_t d = 0; d < rank; ++d)
    if (d != 1) dims.push_back(d);
  return dims;
}
/// (O) as (1, O, 1, ...)
static Tensor along_channels(const Tensor& v, int64_t rank) {
  Shape shape = Dims::filled(rank, 1);
  shape[1] = v.numel();
  return view(v, shape);
}

static Tensor conv_forward(const char* name, const Tensor& x, const Tensor& w, const Tensor& bias, const Shape& y_shape,
                           const ConvParams& p);
static Tensor conv_data(const char* name, const Tensor& dy, const Tensor& w, const Shape& x_shape, bool x_last,
                        const ConvParams& p);

/// W: {dw, db}, db = sum of dy only where it is wanted. w gives shape and layout.
static Grads conv_weight(const Tensor& dy, const Tensor& x, const Tensor& w, const ConvParams& p, bool wants_bias) {
  Tensor out[2] = {empty_image(w.shape(), dy, prefers_channels_last(w)), {}};
  if (wants_bias) out[1] = empty(dy.shape()[1], {.dtype = dy.dtype(), .device = dy.device()});
  if (dy.numel()) {
    backend(dy).conv_backward_weight(context(dy), {.dw = out[0], .dbias = out[1], .dy = dy, .x = x, .params = p});
  } else {  // a batch of 0
    for (const Tensor& t : out)
      if (t.defined()) backend(dy).fill(context(dy), {t, 0});
  }
  record_outputs("conv_backward_weight", std::span(out, wants_bias ? 2 : 1), {dy, x}, save(dy, x),
                 [p](Needs needs, const Grads& u, const Tensor& dy, const Tensor& x) {
                   const Tensor ub = u.size() > 1 ? u[1] : Tensor();
                   Grads g(2);
                   if (needs[0])
                     g[0] = u[0].defined() ? conv_forward("conv", x, u[0], ub, dy.shape(), p)
                                           : expand(along_channels(ub, dy.dim()), dy.shape());
                   if (needs[1] && u[0].defined())
                     g[1] = conv_data("conv_backward_data", dy, u[0], x.shape(), prefers_channels_last(x), p);
                   return g;
                 });
  return {out[0], out[1]};
}

/// D: dx of the given shape and layout. It is also the forward of a transposed convolution.
static Tensor conv_data(const char* name, const Tensor& dy, const Tensor& w, const Shape& x_shape, bool x_last,
                        const ConvParams& p) {
  Tensor dx = empty_image(x_shape, dy, x_last);
  if (dx.numel()) backend(dy).conv_backward_data(context(dy), {dx, dy, w, p});
  const Shape shape = dy.shape();
  return record(name, dx, {dy, w}, save(needed_by(1, dy), w),
                [p, shape](Needs needs, const Tensor& u, const Tensor& dy, const Tensor& w) {
                  Grads g(2);
                  if (needs[0]) g[0] = conv_forward("conv", u, w, {}, shape, p);
                  if (needs[1]) g[1] = conv_weight(dy, u, w, p, false)[0];
                  return g;
                });
}

static Tensor conv_forward(const char* name, const Tensor& x, const Tensor& w, const Tensor& bias, const Shape& y_shape,
                           const ConvParams& p) {
  Tensor y = empty_image(y_shape, x, channels_last(x, w));
  if (y.numel()) backend(x).conv(context(x), {y, x, w, bias, p});
  const Shape shape = x.shape();
  const bool last = prefers_channels_last(x);
  return record(name, y, {x, w, bias}, save(needed_by(1, x), needed_by(0, 1, w)),
                [p, shape, last](Needs needs, const Tensor& dy, const Tensor& x, const Tensor& w) {
                  Grads g(3);
                  if (needs[0]) g[0] = conv_data("conv_backward_data", dy, w, shape, last, p);
                  if (needs[1]) {
                    Grads both = conv_weight(dy, x, w, p, needs[2]);
                    g[1] = both[0], g[2] = both[1];
                  } else if (needs[2]) {
                    g[2] = sum(dy, all_but_channels(dy.dim()));
                  }
                  return g;
                });
}

/// Ranks, dtypes, devices and channels.
static void check_tensors(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, int64_t spatial,
                          int64_t groups, bool transposed) {
  check_defined(op, "the input", x), check_defined(op, "the weight", w);
  common_device(op, {&x, &w, &bias});
  check(w.dim() == spatial + 2, "[{}] expected a weight with {} dimensions, got {}", op, spatial + 2, w);
  check(x.dim() == spatial + 2 || x.dim() == spatial + 1,
        "[{}] expected {}D (unbatched) or {}D (batched) input, got {}", op, spatial + 1, spatial + 2, x);
  check(x.dtype() == w.dtype(), "[{}] expected input and weight of one dtype, got {} and {}", op, x, w);
  check(groups > 0, "[{}] non-positive groups is not supported, got {}", op, groups);
  check(w.numel() > 0, "[{}] expected a weight with at least one element, got {}", op, w);
  check(w.shape()[0] % groups == 0,
        "[{}] given groups={}, expected weight to be divisible by {} at dimension 0, but got weight of size {} instead",
        op, groups, groups, w.shape());
  const int64_t channels = transposed ? w.shape()[0] : checked_mul(op, w.shape()[1], groups),
                got = x.shape()[x.dim() - spatial - 1];
  check(got == channels,
        "[{}] given groups={}, weight of size {}, expected input {} to have {} channels, but got {} channels instead",
        op, groups, w.shape(), x.shape(), channels, got);
  for (int64_t d = x.dim() - spatial; d < x.dim(); ++d)
    check(x.shape()[d] > 0, "[{}] expected an input without empty spatial dimensions, got {}", op, x);
  if (!bias.defined()) return;
  const int64_t out = transposed ? w.shape()[1] * groups : w.shape()[0];
  check(bias.dtype() == x.dtype(), "[{}] expected input and bias of one dtype, got {} and {}", op, x, bias);
  check(bias.dim() == 1 && bias.numel() == out,
        "[{}] given weight of size {}, expected bias to be 1-dimensional with {} elements, but got bias of size {} "
        "instead",
        op, w.shape(), out, bias.shape());
}

/// (N, O, ...) without its spatial extents.
static Shape image_shape(const Tensor& x, int64_t channels) { return {x.shape()[0], channels}; }

/// Fills in the padding of one axis: as given, or what "same" asks for. An odd sum pads one more at the end: computed with one more at
/// the start as well, whose output is dropped (returns 1).
static int64_t pad_axis(const char* op, const Padding& padding, int64_t axis, int64_t kernel, ConvParams& p) {
  if (padding.kind != Padding::Kind::Same) return 0;
  check(p.stride[axis] == 1, "[{}] padding='same' is not supported for strided convolutions (stride {})", op,
        p.stride[axis]);
  const int64_t total = checked_mul(op, p.dilation[axis], kernel - 1);
  p.padding[axis] = (total + 1) / 2;
  return total % 2;
}

ConvGeometry conv_geometry(const char* op, const Tensor& x, const Tensor& w, const ConvOptions& o) {
  const int64_t spatial = w.dim() - 2;
  ConvGeometry g{.params = {.spatial = spatial, .groups = o.groups}, .shape = image_shape(x, w.shape()[0])};
  ConvParams& p = g.params;
  spread(op, "stride", o.stride, spatial, 1, p.stride);
  spread(op, "dilation", o.dilation, spatial, 1, p.dilation);
  spread(op, "padding", o.padding.sizes, spatial, 0, p.padding);
  for (int64_t i = 0; i < spatial; ++i) {
    const int64_t in = x.shape()[2 + i], kernel = w.shape()[2 + i];
    g.dropped |= uint32_t(pad_axis(op, o.padding, i, kernel, p)) << (2 + i);
    const int64_t padded = checked_add(op, in, checked_mul(op, 2, p.padding[i])),
                  extent = checked_extent(op, kernel, p.dilation[i]);
    check(extent <= padded,
          "[{}] calculated padded input size per channel: {} at axis {}. Kernel size: {}. Kernel size can't be greater "
          "than actual input size (input {}, weight {})",
          op, padded, i, extent, x.shape(), w.shape());
    g.shape.push_back((padded - extent) / p.stride[i] + 1);
  }
  return g;
}

static Tensor convolution(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, int64_t spatial,
                          const ConvOptions& o) {
  check_tensors(op, x, w, bias, spatial, o.groups, false);
  if (x.dim() == spatial + 1) return squeeze(convolution(op, unsqueeze(x, 0), w, bias, spatial, o), 0);
  const ConvGeometry g = conv_geometry(op, x, w, o);
  Tensor y = conv_forward(op, x, w, bias, g.shape, g.params);
  if (!g.dropped) return y;
  const MemoryFormat format = prefers_channels_last(y) ? kChannelsLast : kContiguous;
  for (int64_t d = 2; d < g.shape.size(); ++d)
    if (g.dropped >> d & 1) y = narrow(y, d, 1, g.shape[d] - 1);
  return contiguous(y, format);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  TAPIR_AUTOCAST(conv1d, x, weight, bias, options);
  return convolution("conv1d", x, weight, bias, 1, options);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  TAPIR_AUTOCAST(conv2d, x, weight, bias, options);
  return convolution("conv2d", x, weight, bias, 2, options);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  TAPIR_AUTOCAST(conv3d, x, weight, bias, options);
  return convolution("conv3d", x, weight, bias, 3, options);
}

static Tensor transposed_convolution(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                                     int64_t spatial, const ConvTransposeOptions& o) {
  check_tensors(op, x, w, bias, spatial, o.groups, true);
  if (x.dim() == spatial + 1) return squeeze(transposed_convolution(op, unsqueeze(x, 0), w, bias, spatial, o), 0);
  ConvParams p{.spatial = spatial, .groups = o.groups};
  int64_t extra[3];
  spread(op, "stride", o.stride, spatial, 1, p.stride);
  spread(op, "dilation", o.dilation, spatial, 1, p.dilation);
  spread(op, "padding", o.padding, spatial, 0, p.padding);
  spread(op, "output_padding", o.output_padding, spatial, 0, extra);
  Shape out = image_shape(x, checked_mul(op, w.shape()[1], o.groups));
  for (int64_t i = 0; i < spatial; ++i) {
    check(extra[i] < std::max(p.stride[i], p.dilation[i]),
          "[{}] output padding must be smaller than either stride or dilation, but got output_padding {}, stride {}, "
          "dilation {}",
          op, extra[i], p.stride[i], p.dilation[i]);
    const int64_t reach = checked_add(op, checked_mul(op, x.shape()[2 + i] - 1, p.stride[i]),
                                      checked_extent(op, w.shape()[2 + i], p.dilation[i]));
    out.push_back(checked_add(op, reach, extra[i] - checked_mul(op, 2, p.padding[i])));
    check(out[2 + i] > 0,
          "[{}] expected an output of at least 1 along each axis, got {} along axis {} (input {}, weight {})", op,
          out[2 + i], i, x.shape(), w.shape());
  }
  const Tensor y = conv_data(op, x, w, out, channels_last(x, w), p);
  return bias.defined() ? add(y, along_channels(bias, y.dim())) : y;
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  TAPIR_AUTOCAST(conv_transpose1d, x, weight, bias, options);
  return transposed_convolution("conv_transpose1d", x, weight, bias, 1, options);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  TAPIR_AUTOCAST(conv_transpose2d, x, weight, bias, options);
  return transposed_convolution("conv_transpose2d", x, weight, bias, 2, options);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  TAPIR_AUTOCAST(conv_transpose3d, x, weight, bias, options);
  return transposed_convolution("conv_transpose3d", x, weight, bias, 3, options);
}

}  // namespace tapir::inline v0
