#include "../slicing.h"

#include <algorithm>

#include "../../autograd/part.h"
#include "../autocast.h"
#include "../cast.h"
#include "../create.h"
#include "../front.h"
#include "../shape.h"

namespace tapir::inline v0 {

/// The view of `count` positions from start in steps; no history.
static Tensor slice_view(const Tensor& x, int64_t dim, int64_t start, int64_t count, int64_t step) {
  Shape shape = x.shape(), strides = x.strides();
  const int64_t at = x.storage_offset() + (count && x.numel() ? start * strides[dim] : 0);
  shape[dim] = count, strides[dim] *= step;
  return alias(x, shape, strides, at);
}

static Tensor slice_forward(const char* name, const Tensor& x, int64_t dim, int64_t start, int64_t count, int64_t step);

/// Zeros of `shape` with g where the slice lies: the gradient of slice. Where the engine asks for no more, g alone.
static Tensor slice_backward(const Tensor& g, const Shape& shape, int64_t dim, int64_t start, int64_t step) {
  if (returns_part(dim, start, step)) return g;
  Tensor y = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  const int64_t count = g.shape()[dim];
  backend(g).copy(context(g), {slice_view(y, dim, start, count, step), g});
  return record("slice_backward", y, {g},
                [=](const Tensor& gg) { return Grads{slice_forward("slice", gg, dim, start, count, step)}; });
}

static Tensor slice_forward(const char* name, const Tensor& x, int64_t dim, int64_t start, int64_t count,
                            int64_t step) {
  const Shape shape = x.shape();
  return record_view(name, slice_view(x, dim, start, count, step), x,
                     [=](const Tensor& g) { return Grads{slice_backward(g, shape, dim, start, step)}; });
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  check_defined("select", "x", x);
  check(x.dim() > 0, "[select] cannot be applied to a 0-dim tensor");
  dim = wrap_dim("select", dim, x.dim());
  const int64_t n = x.shape()[dim], i = index < 0 ? index + n : index;
  check(i >= 0 && i < n, "[select] index {} is out of bounds for dimension {} with size {}", index, dim, n);
  Tensor part = slice_view(x, dim, i, 1, 1);
  Shape shape = part.shape(), strides = part.strides();
  shape.erase(dim), strides.erase(dim);
  const Shape from = x.shape();
  return record_view("select", alias(x, shape, strides, part.storage_offset()), x,
                     [=](const Tensor& g) { return Grads{slice_backward(unsqueeze(g, dim), from, dim, i, 1)}; });
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  check_defined("narrow", "x", x);
  check(x.dim() > 0, "[narrow] cannot be applied to a 0-dim tensor");
  dim = wrap_dim("narrow", dim, x.dim());
  const int64_t n = x.shape()[dim], from = start < 0 ? start + n : start;
  check(from >= 0 && from <= n, "[narrow] start {} is out of range for dimension {} with size {}", start, dim, n);
  check(length >= 0 && length <= n - from, "[narrow] start ({}) + length ({}) exceeds dimension size ({})", start,
        length, n);
  return slice_forward("narrow", x, dim, from, length, 1);
}

Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  check_defined("slice", "x", x);
  check(x.dim() > 0, "[slice] cannot be applied to a 0-dim tensor");
  dim = wrap_dim("slice", dim, x.dim());
  check(step > 0, "[slice] slice step must be positive, got {}", step);
  const int64_t n = x.shape()[dim];
  const auto clamped = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t a = clamped(start.value_or(0)), b = std::max(a, clamped(end.value_or(n)));
  return slice_forward("slice", x, dim, a, (b - a) / step + ((b - a) % step != 0), step);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  check_defined("split", "x", x);
  check(x.dim() > 0, "[split] expects at least a 1-dimensional tensor");
  dim = wrap_dim("split", dim, x.dim());
  int64_t at = 0;
  for (int64_t s : sizes) {
    check(s >= 0, "[split] expects sizes that are not negative, got {}", s);
    check(s <= x.shape()[dim] - at,
          "[split] expects sizes that sum exactly to {} (the extent of dimension {}), got more with {}", x.shape()[dim],
          dim, s);
    at += s;
  }
  check(at == x.shape()[dim],
        "[split] expects sizes that sum exactly to {} (the extent of dimension {}), got a sum of {}", x.shape()[dim],
        dim, at);
  std::vector<Tensor> parts;
  at = 0;
  for (int64_t s : sizes) parts.push_back(slice_forward("split", x, dim, at, s, 1)), at += s;
  return parts;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  check_defined("split", "x", x);
  check(x.dim() > 0, "[split] expects at least a 1-dimensional tensor");
  dim = wrap_dim("split", dim, x.dim());
  const int64_t n = x.shape()[dim];
  check(size > 0 || (size == 0 && n == 0), "[split] expects a split_size above 0, got {} for extent {}", size, n);
  if (size > 0) check_parts("split", n / size);
  std::vector<int64_t> sizes;
  for (int64_t at = 0; at < n; at += size) sizes.push_back(std::min(size, n - at));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, dim);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  check_defined("chunk", "x", x);
  check(x.dim() > 0, "[chunk] expects at least a 1-dimensional tensor");
  check(chunks > 0, "[chunk] expects `chunks` to be greater than 0, got {}", chunks);
  dim = wrap_dim("chunk", dim, x.dim());
  const int64_t n = x.shape()[dim];
  if (n > 0) return split(x, n / chunks + (n % chunks != 0), dim);
  check_parts("chunk", chunks);
  return split(x, std::vector<int64_t>(size_t(chunks), 0), dim);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  check_defined("unbind", "x", x);
  check(x.dim() > 0, "[unbind] expects at least a 1-dimensional tensor");
  dim = wrap_dim("unbind", dim, x.dim());
  check_parts("unbind", x.shape()[dim]);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < x.shape()[dim]; ++i) parts.push_back(select(x, dim, i));
  return parts;
}

static bool is_legacy_empty(const Tensor& t) { return t.dim() == 1 && t.numel() == 0; }

/// Shape and dtype of the result; `model` is the first operand that counts.
static Shape cat_shape(std::span<const Tensor> tensors, int64_t& dim, const Tensor*& model) {
  check(!tensors.empty(), "[cat] expected a non-empty list of Tensors");
  for (const Tensor& t : tensors)
    if (!is_legacy_empty(t) && !model) model = &t;
  if (!model) model = &tensors[0];
  check(model->dim() > 0, "[cat] zero-dimensional tensor (at position {}) cannot be concatenated",
        int64_t(model - tensors.data()));
  dim = wrap_dim("cat", dim, model->dim());
  Shape shape = model->shape();
  shape[dim] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (is_legacy_empty(t)) continue;
    check(t.dim() == model->dim(), "[cat] tensors must have same number of dimensions: got {} and {} at position {}",
          model->shape(), t.shape(), int64_t(i));
    for (int64_t d = 0; d < t.dim(); ++d) {
      check(
          d == dim || t.shape()[d] == shape[d],
          "[cat] sizes of tensors must match except in dimension {}. Expected {} but got {} at position {} of the list",
          dim, model->shape(), t.shape(), int64_t(i));
    }
    const bool overflow = __builtin_add_overflow(shape[dim], t.shape()[dim], &shape[dim]);
    check(!overflow, "[cat] the sizes along dimension {} overflow at {}", dim, t.shape()[dim]);
  }
  return shape;
}

Tensor cat(std::span<const Tensor> tensors, int64_t dim) {
  check_defined("cat", "tensors", tensors);
  TAPIR_AUTOCAST(cat, tensors, dim);
  const Tensor* model = nullptr;
  const Shape shape = cat_shape(tensors, dim, model);
  DType dtype = tensors[0].dtype();
  bool mixed = false;
  for (const Tensor& t : tensors) {
    common_device("cat", {model, &t});
    mixed |= t.dtype() != dtype;
    dtype = promote_types(dtype, t.dtype());
  }
  std::vector<Tensor> casts;
  if (mixed) {
    for (const Tensor& t : tensors) casts.push_back(to(t, dtype));
    tensors = casts;
  }
  const bool nhwc = model->dim() == 4 && !model->is_contiguous() && model->is_contiguous(kChannelsLast);
  Tensor y = empty_strided(shape, nhwc ? channels_last_strides(shape) : contiguous_strides(shape),
                           {.dtype = dtype, .device = model->device()});
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (is_legacy_empty(t)) continue;
    if (t.numel()) backend(y).copy(context(y), {slice_view(y, dim, at, t.shape()[dim], 1), t});
    at += t.shape()[dim];
  }
  if (!wants_grad(tensors)) return y;
  Tensor sizes = empty(int64_t(tensors.size()), {.dtype = kInt64});
  for (size_t i = 0; i < tensors.size(); ++i)
    sizes.data<int64_t>()[i] = is_legacy_empty(tensors[i]) ? 0 : tensors[i].shape()[dim];
  return record("cat", y, tensors, save(sizes), [dim](Needs needs, const Tensor& g, const Tensor& sizes) {
    Grads grads(sizes.numel());
    const auto* n = static_cast<const int64_t*>(sizes.data_ptr());  // shapes, no values: not data<T>()
    for (int64_t i = 0, from = 0; i < grads.size(); from += n[i++])
      if (n[i] && needs[i]) grads[i] = narrow(g, dim, from, n[i]);
    return grads;
  });
}

Tensor stack(std::span<const Tensor> tensors, int64_t dim) {
  check_defined("stack", "tensors", tensors);
  TAPIR_AUTOCAST(stack, tensors, dim);
  check(!tensors.empty(), "[stack] expected a non-empty list of Tensors");
  dim = wrap_dim("stack", dim, tensors[0].dim() + 1);
  check(tensors[0].dim() < kMaxRank, "[stack] expected at most {} dimensions, got {}", kMaxRank, tensors[0].dim() + 1);
  std::vector<Tensor> parts;
  parts.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    check(tensors[i].shape() == tensors[0].shape(),
          "[stack] expects each tensor to be equal size, but got {} at entry 0 and {} at entry {}", tensors[0].shape(),
          tensors[i].shape(), int64_t(i));
    parts.push_back(unsqueeze(tensors[i], dim));
  }
  return cat(parts, dim);
}

}  // namespace tapir::inline v0
