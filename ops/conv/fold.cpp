#include "../fold.h"

#include "../cast.h"
#include "../create.h"
#include "../front.h"
#include "../pad.h"
#include "../shape.h"
#include "../slicing.h"
#include "../spatial.h"

namespace tapir::inline v0 {
namespace {

/// Windows over the padded image.
struct Windows {
  int64_t kernel[2], dilation[2], padding[2], stride[2], padded[2], count[2];

  Windows(const char* op, const int64_t* size, const Dims& kernel_size, const FoldOptions& o) {
    spread(op, "kernel size", kernel_size, 2, 1, kernel), spread(op, "dilation", o.dilation, 2, 1, dilation);
    spread(op, "padding", o.padding, 2, 0, padding), spread(op, "stride", o.stride, 2, 1, stride);
    for (int i = 0; i < 2; ++i) {
      padded[i] = checked_add(op, size[i], checked_mul(op, 2, padding[i]));
      const int64_t room = padded[i] - checked_extent(op, kernel[i], dilation[i]);
      check(room >= 0, "[{}] expected windows that fit: kernel {} with dilation {} on an axis of {} with padding {}",
            op, kernel[i], dilation[i], size[i], padding[i]);
      count[i] = room / stride[i] + 1;
    }
  }
  int64_t total(const char* op) const { return checked_mul(op, count[0], count[1]); }
  std::vector<int64_t> border(int64_t sign) const {
    return {sign * padding[1], sign * padding[1], sign * padding[0], sign * padding[0]};
  }
  /// The elements of a padded image (N, C, H, W) that tap (i, j) reads: (N, C, count...).
  Tensor tap(const Tensor& image, int64_t i, int64_t j) const {
    const Strides& s = image.strides();
    return alias(image, {image.shape()[0], image.shape()[1], count[0], count[1]},
                 {s[0], s[1], s[2] * stride[0], s[3] * stride[1]},
                 image.storage_offset() + i * dilation[0] * s[2] + j * dilation[1] * s[3]);
  }
};

Tensor add_windows(const Tensor& columns, const Windows& w);

/// A padded image (N, C, H, W) -> (N, C, kh, kw, count...)
Tensor copy_windows(const Tensor& image, const Windows& w) {
  const int64_t n = image.shape()[0], c = image.shape()[1];
  Tensor y = empty({n, c, w.kernel[0], w.kernel[1], w.count[0], w.count[1]},
                   {.dtype = image.dtype(), .device = image.device()});
  const Strides& s = image.strides();
  if (y.numel())
    backend(image).copy(
        context(image),
        {y, alias(image, y.shape(),
                  {s[0], s[1], s[2] * w.dilation[0], s[3] * w.dilation[1], s[2] * w.stride[0], s[3] * w.stride[1]},
                  image.storage_offset())});
  return record("unfold", y, {image}, [w](const Tensor& g) { return Grads{add_windows(g, w)}; });
}

/// The transpose of copy_windows: tap by tap, no two windows of one tap share an element.
Tensor add_windows(const Tensor& columns, const Windows& w) {
  const Shape& s = columns.shape();
  const Tensor image =
      zeros({s[0], s[1], w.padded[0], w.padded[1]}, {.dtype = columns.dtype(), .device = columns.device()});
  for (int64_t i = 0; i < w.kernel[0] && columns.numel(); ++i)
    for (int64_t j = 0; j < w.kernel[1]; ++j) {
      const Tensor to = w.tap(image, i, j),
                   from =
                       alias(columns, to.shape(),
                             {columns.strides()[0], columns.strides()[1], columns.strides()[4], columns.strides()[5]},
                             columns.storage_offset() + i * columns.strides()[2] + j * columns.strides()[3]);
      backend(image).binary(context(image), {to, to, from, {BinaryOp::Add}});
    }
  return record("fold", image, {columns}, [w](const Tensor& g) { return Grads{copy_windows(g, w)}; });
}

}  // namespace

Tensor unfold(const Tensor& x, const Dims& kernel_size, const FoldOptions& o) {
  check_defined("unfold", "x", x);
  const int64_t rank = x.dim();
  check(rank == 3 || rank == 4, "[unfold] expected an input (N, C, H, W) or (C, H, W), got {}", x);
  for (int64_t d = rank - 3; d < rank; ++d)
    check(x.shape()[d] > 0, "[unfold] expected an input whose batch alone may be empty, got {}", x);
  if (rank == 3) return squeeze(unfold(unsqueeze(x, 0), kernel_size, o), 0);
  const Windows w("unfold", x.shape().data() + 2, kernel_size, o);
  const Tensor columns = copy_windows(w.padding[0] || w.padding[1] ? pad(x, w.border(1)) : x, w);
  return view(columns, {x.shape()[0], x.shape()[1] * w.kernel[0] * w.kernel[1], w.total("unfold")});
}

Tensor fold(const Tensor& x, const Dims& output_size, const Dims& kernel_size, const FoldOptions& o) {
  check_defined("fold", "x", x);
  check(x.dim() == 2 || x.dim() == 3, "[fold] expected an input (N, C kh kw, L) or (C kh kw, L), got {}", x);
  if (x.dim() == 2) return squeeze(fold(unsqueeze(x, 0), output_size, kernel_size, o), 0);
  int64_t size[2];
  spread("fold", "output size", output_size, 2, 1, size);
  const Windows w("fold", size, kernel_size, o);
  const int64_t taps = checked_mul("fold", w.kernel[0], w.kernel[1]);
  check(x.shape()[1] > 0 && x.shape()[1] % taps == 0,
        "[fold] expected size of input's dimension 1 to be divisible by the product of kernel_size {}, got {}",
        kernel_size, x);
  const int64_t total = w.total("fold");
  check(x.shape()[2] == total, "[fold] expected {} x {} = {} windows in the last dimension, got {}", w.count[0],
        w.count[1], total, x);
  const Tensor columns =
      reshape(x, {x.shape()[0], x.shape()[1] / taps, w.kernel[0], w.kernel[1], w.count[0], w.count[1]});
  const Tensor image = add_windows(columns, w);
  return w.padding[0] || w.padding[1] ? pad(image, w.border(-1)) : image;
}

}  // namespace tapir::inline v0
