#include "../diagonal.h"

#include <algorithm>

#include "../../autograd/arith.h"
#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../each_place.h"
#include "../front.h"
#include "../indexing.h"
#include "../reduce.h"
#include "../scan.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"

namespace tapir::inline v0 {

namespace {
/// Where diagonal `offset` of dimensions a and b lies.
struct Diagonal {
  int64_t offset, a, b;
  Diagonal(const char* op, int64_t rank, int64_t offset, int64_t dim1, int64_t dim2)
      : offset(offset), a(wrap_dim(op, dim1, rank)), b(wrap_dim(op, dim2, rank)) {
    check(rank >= 2 && a != b, "[{}] diagonal dimensions cannot be identical: got {} and {} of a tensor of rank {}", op,
          dim1, dim2, rank);
  }
  int64_t length(const Shape& s) const {
    return std::max<int64_t>(std::min(s[a] + std::min<int64_t>(offset, 0), s[b] - std::max<int64_t>(offset, 0)), 0);
  }
  Shape shape(const Shape& s) const { return moved(s, length(s)); }
  Strides strides(const Strides& s) const { return moved(s, s[a] + s[b]); }
  int64_t start(const Shape& shape, const Strides& s) const {
    return length(shape) == 0 ? 0 : offset < 0 ? -offset * s[a] : offset * s[b];
  }

 private:
  Dims moved(Dims d, int64_t last) const {
    d.erase(std::max(a, b)), d.erase(std::min(a, b)), d.push_back(last);
    return d;
  }
};
}  // namespace

static Tensor diagonal(const Tensor& x, const Diagonal& at);
/// Zeros of `shape` with x on the diagonal.
static Tensor embed(const char* name, const Tensor& x, const Shape& shape, const Diagonal& at) {
  const Tensor y = zeros(shape, {.dtype = x.dtype(), .device = x.device()});
  const Strides s = y.strides();
  backend(x).copy(context(x), {alias(y, at.shape(shape), at.strides(s), at.start(shape, s)), x});
  return record(name, y, {x}, [at](const Tensor& g) { return Grads{diagonal(g, at)}; });
}
static Tensor diagonal(const Tensor& x, const Diagonal& at) {
  const Shape shape = x.shape();
  const Strides s = x.strides();
  return record_view("diagonal", alias(x, at.shape(shape), at.strides(s), x.storage_offset() + at.start(shape, s)), x,
                     [shape, at](const Tensor& g) { return Grads{embed("diagonal_backward", g, shape, at)}; });
}
Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check_defined("diagonal", "x", x);
  return diagonal(x, Diagonal("diagonal", x.dim(), offset, dim1, dim2));
}
Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) try {
  check_defined("diag_embed", "x", x);
  check(x.dim() >= 1, "[diag_embed] expected at least one dimension, got {}", x);
  const Diagonal at("diag_embed", x.dim() + 1, offset, dim1, dim2);
  const int64_t n = x.shape().back() + std::abs(offset);
  Shape shape = x.shape();
  shape.resize(x.dim() - 1);
  shape.insert(std::min(at.a, at.b), n), shape.insert(std::max(at.a, at.b), n);
  return embed("diag_embed", x, shape, at);
} catch (...) {
  fail_as("diag_embed");
}
Tensor diag(const Tensor& x, int64_t k) {
  check_defined("diag", "x", x);
  check(x.dim() == 1 || x.dim() == 2, "[diag] expected a vector or a matrix, got {}", x);
  return x.dim() == 1 ? diag_embed(x, k) : clone(diagonal(x, k), kContiguous);
}
Tensor diagonal_scatter(const Tensor& x, const Tensor& source, int64_t offset, int64_t dim1, int64_t dim2) try {
  check_defined("diagonal_scatter", "x", x, "source", source);
  Tensor y = clone(x), part = diagonal(y, offset, dim1, dim2);
  check(source.shape() == part.shape(), "[diagonal_scatter] expected src of shape {}, got {}", part.shape(), source);
  return copy_(part, source), y;
} catch (...) {
  fail_as("diagonal_scatter");
}
Tensor trace(const Tensor& x) {
  check_defined("trace", "x", x);
  TAPIR_AUTOCAST(trace, x);
  check(x.dim() == 2, "[trace] expected a matrix, got {}", x);
  return sum(diagonal(x));
}

// ---- triangles

/// Is a place of a (rows, cols) matrix in the triangle? bool. Each row is the row above, moved by one place, so all are views of one line.
static Tensor triangle(bool lower, int64_t rows, int64_t cols, int64_t k, Device device) {
  const int64_t first = rows - 1, n = first + cols;  // row 0 begins at `first`
  if (rows == 0 || cols == 0) return empty({rows, cols}, {.dtype = kBool, .device = device});
  const int64_t turn = std::clamp(k, -rows, cols) + first + lower;  // the line changes its value here
  const DType dtype = n < int64_t(1) << 30 ? kInt32 : kInt64;
  const Tensor place = arange(0, n, 1, {.dtype = dtype, .device = device}),
               line = lower ? lt(place, turn) : ge(place, turn);
  const Tensor inside = alias(line, {rows, cols}, {-1, 1}, first);
  return device.is_cpu() ? inside : clone(inside, kContiguous);  // a GPU's packs need rows that begin at whole packs
}

static Tensor masked(const char* name, bool lower, const Tensor& x, int64_t k, Tensor* self) {
  check_defined(name, "x", x);
  check(x.dim() >= 2, "[{}] expected a tensor with at least 2 dimensions, got {}", name, x);
  if (self) check_inplace(name, x, wants_grad({x}));
  const int64_t rows = x.shape()[x.dim() - 2], cols = x.shape().back();
  const int64_t down = std::abs(x.strides()[x.dim() - 2]);
  const bool turned = down != 0 && std::abs(x.strides().back()) > down;  // a mask in the layout of x
  const Tensor inside = turned ? t(triangle(!lower, cols, rows, -std::clamp(k, -rows, cols), x.device()))
                               : triangle(lower, rows, cols, k, x.device());
  const Tensor y = self ? *self : empty_pointwise(x.shape(), x.dtype(), x.device(), {&x});
  backend(x).ternary(context(x),
                     {y, view_as(inside, x.shape(), kBool), x, TensorView(0, x.dtype()), {TernaryOp::Where}});
  return record(name, y, {x}, [lower, k](const Tensor& g) { return Grads{lower ? tril(g, k) : triu(g, k)}; });
}
Tensor tril(const Tensor& x, int64_t diagonal) { return masked("tril", true, x, diagonal, nullptr); }
Tensor triu(const Tensor& x, int64_t diagonal) { return masked("triu", false, x, diagonal, nullptr); }
static Tensor& masked_(const char* name, bool lower, Tensor& self, int64_t diagonal) {
  Tensor places = each_place_once(self, std::max<int64_t>(self.dim() - 2, 0));
  return masked(name, lower, places, diagonal, &places), self;
}
Tensor& tril_(Tensor& self, int64_t diagonal) {
  check_defined("tril_", "self", self);
  return masked_("tril_", true, self, diagonal);
}
Tensor& triu_(Tensor& self, int64_t diagonal) {
  check_defined("triu_", "self", self);
  return masked_("triu_", false, self, diagonal);
}

static Tensor triangle_indices(const char* op, bool lower, int64_t row, int64_t col, int64_t k,
                               const TensorOptions& o) {
  constexpr int64_t kMost = int64_t(1) << 61;
  check(row >= 0 && col >= 0 && row <= kMost / std::max<int64_t>(col, 1) && col <= kMost,
        "[{}] expected row and col from 0, and at most 2^61 places, got {} and {}", op, row, col);
  const TensorOptions whole{.dtype = kInt64, .device = o.device};
  const DType dtype = o.dtype.value_or(kInt64);
  check(!o.requires_grad || is_floating(dtype), "[{}] expected a floating point dtype with requires_grad, got {}", op,
        dtype);
  // Row i has the columns below i + turn, or the others. Rows before `first` have no column below it, rows from `last` on have all.
  const int64_t turn = std::clamp(k, -row, col) + lower, first = std::clamp<int64_t>(1 - turn, 0, row),
                last = std::clamp(col - turn, first, row),
                below = (first + last - 1 + 2 * turn) * (last - first) / 2 + (row - last) * col,
                n = lower ? below : row * col - below;
  const auto result = [&](const Tensor& y) { return o.requires_grad ? y.requires_grad_() : y; };
  if (n == 0) return result(empty({2, 0}, {.dtype = dtype, .device = o.device}));
  // The rows that have places, and the first place of each, which is marked: the marks up to a place say its row.
  const int64_t row0 = lower ? first : 0, rows = (lower ? row : last) - row0;
  const Tensor at = clamp(arange(row0 + turn, row0 + rows + turn, 1, whole), 0, col), count = lower ? at : col - at,
               before = cumsum(count, 0) - count;
  Tensor marks = zeros({n}, whole);
  index_add_(marks, 0, before, ones({rows}, whole));
  const Tensor i = cumsum(marks, 0) - 1, start = lower ? before : before - at;
  return result(to(stack({i + row0, arange(0, n, 1, whole) - index_select(start, 0, i)}), dtype));
}
Tensor tril_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& o) {
  return triangle_indices("tril_indices", true, row, col, offset, o);
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& o) {
  return triangle_indices("triu_indices", false, row, col, offset, o);
}

Tensor block_diag(const std::vector<Tensor>& tensors) {
  check_defined("block_diag", "tensors", tensors);
  if (tensors.empty()) return empty({1, 0});
  int64_t width = 0, at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check(tensors[i].dim() <= 2, "[block_diag] expected tensors with at most 2 dimensions, got {} at position {}",
          tensors[i], int64_t(i));
    width += tensors[i].dim() ? tensors[i].shape().back() : 1;
  }
  std::vector<Tensor> rows;
  for (const Tensor& x : tensors) {
    const Tensor block = x.dim() == 2 ? x : reshape(x, {1, x.numel()});
    const int64_t n = block.shape()[0], before = at;
    const auto gap = [&](int64_t count) { return zeros({n, count}, {.dtype = x.dtype(), .device = x.device()}); };
    at += block.shape()[1];
    rows.push_back(cat({gap(before), block, gap(width - at)}, 1));
  }
  return cat(rows, 0);
}

}  // namespace tapir::inline v0
