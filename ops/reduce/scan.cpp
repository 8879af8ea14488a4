#include "../scan.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../indexing.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {

/// The same elements with dimension dim from its end to its start.
static TensorView reversed(const Tensor& x, int64_t dim) {
  TensorView v(x);
  if (v.rank == 0 || x.numel() == 0) return v;
  v.data = static_cast<char*>(v.data) + (v.sizes[dim] - 1) * v.strides[dim] * size_of(v.dtype);
  v.strides[dim] = -v.strides[dim];
  return v;
}

/// From the last element to the first one when `backwards`. Into `y`.
static void run_scan(ScanOp op, const Tensor& x, int64_t dim, bool backwards, const Tensor& y) {
  if (backwards) backend(x).scan(context(x), {.out = reversed(y, dim), .x = reversed(x, dim), .params = {op, dim}});
  else backend(x).scan(context(x), {.out = y, .x = x, .params = {op, dim}});
}
static Tensor empty_scan(const Tensor& x) { return empty_pointwise(x.shape(), x.dtype(), x.device(), {&x}); }

/// Each direction is the gradient of the other.
static Tensor running_sums(const char* name, const Tensor& x, int64_t dim, bool backwards, const Tensor& y) {
  run_scan(ScanOp::CumSum, x, dim, backwards, y);
  return record(name, y, {x}, [name, dim, backwards](const Tensor& g) {
    return Grads{running_sums(name, g, dim, !backwards, empty_like(g))};
  });
}
static Tensor sums_from_end(const Tensor& x, int64_t dim) {
  return running_sums("cumsum", x, dim, true, empty_scan(x));
}

Tensor cumsum(const Tensor& x, int64_t dim, const ScanOptions& o) {
  check_defined("cumsum", "x", x);
  if (!o.dtype) TAPIR_AUTOCAST(cumsum, x, dim, o);
  dim = wrap_dim("cumsum", dim, x.dim());
  const DType dtype = o.dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  const Tensor from = to(x, dtype);
  return running_sums("cumsum", from, dim, false, empty_scan(from));
}
Tensor& cumsum_(Tensor& self, int64_t dim) {
  check_defined("cumsum_", "self", self);
  dim = wrap_dim("cumsum_", dim, self.dim());
  check_inplace("cumsum_", self, wants_grad({self}));
  return running_sums("cumsum_", self, dim, false, self), self;
}

// d y[i] / d x[k] is the product of the others up to i, y[i] / x[k]. Once: up to the first zero of a vector that is a sum of g y
// from its end, over x; at the zero, the same with y of an x that has 1 there; and nothing behind it.
static Tensor cumprod_gradient_once(const Tensor& g, const Tensor& x, const Tensor& y, int64_t dim) {
  const Tensor zeros = eq(x, 0), count = cumsum(zeros, dim), first = logical_and(zeros, eq(count, 1));
  const Tensor before = div(sums_from_end(mul(g, y), dim), x);
  const Tensor at = sums_from_end(mul(g, cumprod(masked_fill(x, first, 1), dim)), dim);
  return where(eq(count, 0), before, where(first, at, 0));
}
// To be differentiated itself, it is written as running products of copies of x, copy k with 1 in place of x[k]: n copies of n.
static Tensor cumprod_gradient(const Tensor& g, const Tensor& x, int64_t dim) {
  const int64_t n = x.shape()[dim];
  const auto row = [&](const Tensor& t) { return unsqueeze(transpose(t, dim, -1), -2); };  // (..., 1, n)
  const Tensor last = row(x), place = arange(0, n, 1, {.device = x.device()});
  Shape copies = last.shape();
  copies[copies.size() - 2] = n;
  const Tensor ones = eq(unsqueeze(place, 0), unsqueeze(place, 1)),
               behind = ge(unsqueeze(place, 0), unsqueeze(place, 1));
  const Tensor others = where(behind, cumprod(masked_fill(expand(last, copies), ones, 1), -1), 0);
  return transpose(sum(mul(others, row(g)), -1), dim, -1);
}
static Tensor running_products(const char* name, const Tensor& x, int64_t dim, const Tensor& y) {
  const Tensor old = y.is_same(x) && wants_grad({x}) ? clone(x) : Tensor();
  run_scan(ScanOp::CumProd, x, dim, false, y);
  return record(name, y, {x}, save(old.defined() ? old : x, y),
                [dim](const Tensor& g, const Tensor& x, const Tensor& y) {
                  if (x.dim() == 0) return Grads{g};
                  return Grads{modes.grad ? cumprod_gradient(g, x, dim) : cumprod_gradient_once(g, x, y, dim)};
                });
}
Tensor cumprod(const Tensor& x, int64_t dim, const ScanOptions& o) {
  check_defined("cumprod", "x", x);
  if (!o.dtype) TAPIR_AUTOCAST(cumprod, x, dim, o);
  dim = wrap_dim("cumprod", dim, x.dim());
  const Tensor from = to(x, o.dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64));
  return running_products("cumprod", from, dim, empty_scan(from));
}
Tensor& cumprod_(Tensor& self, int64_t dim) {
  check_defined("cumprod_", "self", self);
  dim = wrap_dim("cumprod_", dim, self.dim());
  check_inplace("cumprod_", self, wants_grad({self}));
  return running_products("cumprod_", self, dim, self), self;
}

/// The least finite number: a logarithm that adds nothing, and does no harm in a difference of infinities.
static double least(DType t) {
  return t == kFloat64 ? std::numeric_limits<double>::lowest() : t == kFloat16 ? -65504 : -0x1.fep127;
}
// d y[i] / d x[k] = e^(x[k] - y[i]). The sum of g[i] e^-y[i] from the end is taken in logarithms, apart for positive and negative g.
static Tensor running_log_sums(const Tensor& x, int64_t dim, bool backwards) {
  const Tensor y = empty_scan(x);
  run_scan(ScanOp::LogCumSumExp, x, dim, backwards, y);
  return record("logcumsumexp", y, {x}, save(x, y),
                [dim, backwards](const Tensor& g, const Tensor& x, const Tensor& y) {
                  const Tensor log_size = log(abs(g));
                  const auto part = [&](const Tensor& chosen) {
                    const Tensor logs = sub(where(chosen, log_size, least(g.dtype())), y);
                    return exp(add(running_log_sums(logs, dim, !backwards), x));
                  };
                  const Tensor both = sub(part(gt(g, 0)), part(lt(g, 0)));
                  return Grads{masked_fill(both, eq(x, -std::numeric_limits<double>::infinity()), 0)};
                });
}
Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  check_defined("logcumsumexp", "x", x);
  check(is_floating(x.dtype()), "[logcumsumexp] expected a tensor of floating point dtype, got {}", x);
  return running_log_sums(x, wrap_dim("logcumsumexp", dim, x.dim()), false);
}

static std::pair<Tensor, Tensor> running_extreme(const char* name, ScanOp op, const Tensor& x, int64_t dim) {
  dim = wrap_dim(name, dim, x.dim());
  const Tensor y = empty_scan(x), at = empty_like(y, {.dtype = kInt64});
  backend(x).scan(context(x), {y, at, x, {op, dim}});
  return {record(name, y, {x}, save(at),
                 [dim](const Tensor& g, const Tensor& at) { return Grads{scatter_add(zeros_like(g), dim, at, g)}; }),
          at};
}
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim) {
  check_defined("cummax", "x", x);
  return running_extreme("cummax", ScanOp::CumMax, x, dim);
}
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim) {
  check_defined("cummin", "x", x);
  return running_extreme("cummin", ScanOp::CumMin, x, dim);
}

Tensor diff(const Tensor& x, int64_t n, int64_t dim, const DiffOptions& o) {
  check_defined("diff", "x", x);
  check(x.dim() > 0, "[diff] expected at least one dimension, got {}", x);
  check(n >= 0, "[diff] order must be non-negative, got {}", n);
  dim = wrap_dim("diff", dim, x.dim());
  std::vector<Tensor> parts;
  for (const Tensor* t : {&o.prepend, &x, &o.append})
    if (t->defined()) parts.push_back(*t);
  for (const Tensor& t : parts)
    check(t.dim() == x.dim(), "[diff] expected prepend and append with {} dimensions, got {}", x.dim(), t);
  if (n == 0) return clone(x);
  Tensor y = parts.size() > 1 ? cat(parts, dim) : x;
  for (n = std::min(n, y.shape()[dim]); n > 0; --n) {
    const int64_t length = std::max<int64_t>(y.shape()[dim] - 1, 0);
    const Tensor high = narrow(y, dim, y.shape()[dim] - length, length), low = narrow(y, dim, 0, length);
    y = y.dtype() == kBool ? logical_xor(high, low) : sub(high, low);
  }
  return y;
}

}  // namespace tapir::inline v0
