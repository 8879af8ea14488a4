#include "../gather.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../bitwise.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"

namespace tapir::inline v0 {

static void check_gather(const char* op, const Tensor& x, int64_t dim, const Tensor& index) {
  check(is_integral(index.dtype()), "[{}] tensors used as indices must be of an integer dtype, got {}", op,
        index.dtype());
  if (index.numel() == 0) return;  // nothing is asked for, of whatever shape
  const int64_t rank = std::max<int64_t>(x.dim(), 1);
  check(std::max<int64_t>(index.dim(), 1) == rank,
        "[{}] index tensor must have the same number of dimensions as input tensor, got {} and {}", op, index, x);
  for (int64_t d = 0; d < index.dim() && d < x.dim(); ++d) {
    check(d == dim || index.shape()[d] <= x.shape()[d],
          "[{}] size does not match at dimension {}: expected index {} to be no larger than {} apart from dimension {}",
          op, d, index.shape(), x.shape(), dim);
  }
}
static Tensor at_least_1d(const Tensor& t) { return t.dim() ? t : alias(t, {1}, {1}, t.storage_offset()); }
static void check_positions(const Context& ctx, const char* op, int64_t dim) {
  if (ctx.error.set || ctx.late_error) [[unlikely]]
    check_values(
        ctx,
        tapir::format("[{}] index {value} at position {position} is out of bounds for dimension {} with size {bound}",
                      op, dim));
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  check_defined("gather", "x", x, "index", index);
  dim = wrap_dim("gather", dim, x.dim());
  common_device("gather", {&x, &index});
  check_gather("gather", x, dim, index);
  const Tensor places = to(index, kInt64);
  Tensor y = empty(index.shape(), {.dtype = x.dtype(), .device = x.device()});
  Context& ctx = context(x);
  backend(x).gather(ctx, {at_least_1d(y), at_least_1d(x), at_least_1d(places), {dim}});
  check_positions(ctx, "gather", dim);
  const Shape shape = x.shape();
  return record("gather", y, {x}, save(places), [dim, shape](const Tensor& g, const Tensor& places) {
    return Grads{scatter_add(zeros(shape, {.dtype = g.dtype(), .device = g.device()}), dim, places, g)};
  });
}

Tensor take_along_dim(const Tensor& x, const Tensor& given_indices, std::optional<int64_t> given) try {
  check(is_integral(given_indices.dtype()), "[take_along_dim] expected indices of an integer dtype, got {}",
        given_indices);
  const int64_t n = !given ? x.numel() : x.dim() ? x.shape()[wrap_dim("take_along_dim", *given, x.dim())] : 1;
  const Tensor wide = to(given_indices, kInt64), indices = where(lt(wide, 0), add(wide, n), wide);
  if (!given) return gather(reshape(x, -1), 0, reshape(indices, -1));
  check(x.dim() == indices.dim(),
        "[take_along_dim] input and indices should have the same number of dimensions, got {} and {}", x, indices);
  const int64_t dim = wrap_dim("take_along_dim", *given, x.dim());
  if (x.dim() == 0) return gather(x, 0, indices);
  Shape a = x.shape(), b = indices.shape();
  a[dim] = b[dim] = 1;
  Shape common = broadcast_shapes("take_along_dim", a, b);
  common[dim] = x.shape()[dim];
  const Tensor from = expand(x, common);
  common[dim] = indices.shape()[dim];
  return gather(from, dim, expand(indices, common));
} catch (...) {
  fail_as("take_along_dim");
}

/// self for a composite whose result is written over it: a copy, where gradients will need the old values.
static Tensor kept(const Tensor& self, const Tensor& source) { return wants_grad({self, source}) ? clone(self) : self; }

namespace {
/// What goes where, checked: x, int64 places, and the part of the source that has their shape, or a number.
struct Scatter {
  const char* op;
  int64_t dim;
  Tensor x, places, part;
  Operand source;

  Scatter(const char* op, const Tensor& x, int64_t given, const Tensor& index, const Operand& s)
      : op(op), dim(wrap_dim(op, given, x.dim())), x(x), source(s.scalar()) {
    common_device(op, {&x, &index, &s.tensor_or_undefined()});
    check_gather(op, x, dim, index);
    places = to(index, kInt64);
    if (!s.is_tensor()) return;
    part = s.tensor();
    check(part.dtype() == x.dtype(), "[{}] expected self.dtype to be equal to src.dtype, got {} and {}", op, x.dtype(),
          part.dtype());
    if (index.numel() == 0) {  // of whatever shape: nothing of the source, whose gradient is zeros
      part = reshape(narrow(part.dim() ? part : reshape(part, Shape(1)), 0, 0, 0), index.shape());
      return;
    }
    check(std::max<int64_t>(part.dim(), 1) == std::max<int64_t>(index.dim(), 1),
          "[{}] expected source and index of equal rank, got {} and {}", op, part.shape(), index.shape());
    if (part.dim() != index.dim()) part = reshape(part, part.dim() ? Shape() : Shape(1));  // () beside (1)
    for (int64_t d = 0; d < index.dim(); ++d) {
      check(index.shape()[d] <= part.shape()[d], "[{}] expected index {} to be no larger than source {}", op,
            index.shape(), part.shape());
      if (index.shape()[d] < part.shape()[d]) part = narrow(part, d, 0, index.shape()[d]);
    }
  }
  /// Into a copy of x, or into self, which is x.
  Tensor run(ScatterOp kernel, const Tensor* self) const {
    if (self) check_inplace(op, x, wants_grad({x, part}));
    if (!part.defined()) self ? check_held(op, source, x.dtype()) : check_fits(op, source.scalar(), x.dtype());
    const Tensor at = self ? apart_from(x, places) : places, from = self && part.defined() ? apart_from(x, part) : part;
    Tensor y = self ? *self : empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
    if (!self) backend(x).copy(context(x), {y, x});
    const TensorView values = from.defined() ? TensorView(at_least_1d(from)) : TensorView(source.scalar(), x.dtype());
    Context& ctx = context(x);
    backend(x).scatter(ctx, {at_least_1d(y), at_least_1d(at), values, {dim, kernel}});
    check_positions(ctx, op, dim);
    return y;
  }
};
}  // namespace

static Tensor scatter(const char* op, const Tensor& x, int64_t dim, const Tensor& index, const Operand& source,
                      const Tensor* self) {
  const Scatter s(op, x, dim, index, source);
  return record(
      op, s.run(ScatterOp::Assign, self), {x, s.part}, save(s.places),
      [dim = s.dim](Needs needs, const Tensor& g, const Tensor& places) {
        return Grads{needs[0] ? scatter(g, dim, places, 0) : Tensor(), needs[1] ? gather(g, dim, places) : Tensor()};
      });
}
static Tensor scatter_add(const char* op, const Tensor& x, int64_t dim, const Tensor& index, const Operand& source,
                          const Tensor* self) {
  check_defined(op, "x", x, "index", index, "source", source);
  const Scatter s(op, x, dim, index, source);
  return record(op, s.run(ScatterOp::Add, self), {x, s.part}, save(s.places),
                [dim = s.dim](Needs needs, const Tensor& g, const Tensor& places) {
                  return Grads{needs[0] ? g : Tensor(), needs[1] ? gather(g, dim, places) : Tensor()};
                });
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  check_defined("scatter_add", "x", x, "index", index, "source", source);
  TAPIR_AUTOCAST(scatter_add, x, dim, index, source);
  return scatter_add("scatter_add", x, dim, index, source, nullptr);
}
Tensor& scatter_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  return scatter_add("scatter_add_", self, dim, index, source, &self), self;
}

// ---- reductions of what meets
//
// `base` is x where it counts, else x with the neutral element at the places. The gradients are those of PyTorch: extremes share
// theirs equally; a product divides by the elements, and leaves a single 0 out.

/// d / d(base) and d / d(part) of products: zeros are left out, and counted.
static Grads product_gradient(Needs needs, const Tensor& g, const Tensor& places, const Tensor& base,
                              const Tensor& part, int64_t dim) {
  const auto product = [&](const Tensor& a, const Tensor& b) { return scatter_reduce(a, dim, places, b, "prod"); };
  Grads out{Tensor(), Tensor()};
  if (needs[0]) {
    const Tensor nonzero = masked_fill(base, eq(base, 0), 1);
    out[0] = div(mul(g, product(nonzero, part)), nonzero);
  }
  if (needs[1]) {
    const Tensor zero = eq(part, 0);
    const Tensor count = gather(scatter_add(zeros_like(base), dim, places, to(zero, g.dtype())), dim, places);
    const Tensor single = logical_and(zero, eq(count, 1));
    const Tensor others = gather(mul(g, product(base, masked_fill(part, single, 1))), dim, places);
    const Tensor all = div(gather(mul(g, product(base, part)), dim, places), masked_fill(part, zero, 1));
    out[1] = where(single, others, all);
  }
  return out;
}
static Tensor scatter_product(const char* op, const Tensor& base, int64_t dim, const Tensor& index,
                              const Operand& source) {
  if (!source.is_tensor())
    return scatter_product(op, base, dim, index,
                           full(index.shape(), source.scalar(), {.dtype = base.dtype(), .device = base.device()}));
  const Scatter s(op, base, dim, index, source);
  const Tensor y = s.run(ScatterOp::Multiply, nullptr);
  return record(op, y, {base, s.part}, save(s.places, base, s.part),
                [dim = s.dim](Needs needs, const Tensor& g, const Tensor& places, const Tensor& base,
                              const Tensor& part) { return product_gradient(needs, g, places, base, part, dim); });
}
static Tensor scatter_extreme(ScatterOp kernel, const Tensor& base, int64_t dim, const Tensor& index,
                              const Tensor& source) {
  const Scatter s("scatter_reduce", base, dim, index, source);
  const Tensor y = s.run(kernel, nullptr);
  return record("scatter_reduce", y, {base, s.part}, save(s.places, base, s.part, y),
                [dim = s.dim](Needs needs, const Tensor& g, const Tensor& places, const Tensor& base,
                              const Tensor& part, const Tensor& y) {
                  const Tensor of_base = to(eq(base, y), g.dtype()),
                               of_part = to(eq(part, gather(y, dim, places)), g.dtype());
                  const Tensor share = div(g, scatter_add(of_base, dim, places, of_part));
                  return Grads{needs[0] ? mul(of_base, share) : Tensor(),
                               needs[1] ? mul(of_part, gather(share, dim, places)) : Tensor()};
                });
}

/// What no element of that dtype goes below (sign 1) or above (-1).
static Scalar bound_of(DType t, int sign) {
  if (is_floating(t)) return -sign * std::numeric_limits<double>::infinity();
  if (t == kBool) return sign < 0;
  const int bits = int(size_of(t)) * 8;
  const uint64_t top = t == kUInt8 ? 255 : (uint64_t(1) << (bits - 1)) - 1;
  return sign < 0 ? int64_t(top) : t == kUInt8 ? int64_t(0) : -int64_t(top) - 1;
}

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                      const IncludeSelfOptions& o) try {
  const auto base = [&](Scalar neutral) { return o.include_self ? x : scatter(x, dim, index, neutral); };
  if (reduce == "sum") return scatter_add("scatter_reduce", base(0), dim, index, source, nullptr);
  if (reduce == "prod") return scatter_product("scatter_reduce", base(1), dim, index, source);
  if (reduce == "amax") return scatter_extreme(ScatterOp::Max, base(bound_of(x.dtype(), 1)), dim, index, source);
  if (reduce == "amin") return scatter_extreme(ScatterOp::Min, base(bound_of(x.dtype(), -1)), dim, index, source);
  check(reduce == "mean", "[scatter_reduce] reduce argument must be either sum, prod, mean, amax or amin, got {}",
        reduce);
  const Tensor total = scatter_add("scatter_reduce", base(0), dim, index, source, nullptr);
  const Tensor one = ones_like(x);
  Tensor count = scatter_add(o.include_self ? one : scatter(one, dim, index, 0), dim, index, ones_like(source));
  count = masked_fill(count, eq(count, 0), 1);
  return is_floating(x.dtype()) ? div(total, count) : div(total, count, "floor");
} catch (...) {
  fail_as("scatter_reduce");
}
Tensor& scatter_reduce_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                        const IncludeSelfOptions& o) try {
  check_inplace("scatter_reduce_", self, wants_grad({self, source}));
  return copy_(self, scatter_reduce(kept(self, source), dim, index, source, reduce, o));
} catch (...) {
  fail_as("scatter_reduce_");
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) {
  check_defined("scatter", "x", x, "index", index, "source", source);
  if (reduce == "") return scatter("scatter", x, dim, index, source, nullptr);
  if (reduce == "add") return scatter_add("scatter", x, dim, index, source, nullptr);
  check(reduce == "multiply", "[scatter] reduce argument must be either add or multiply, got {}", reduce);
  return scatter_product("scatter", x, dim, index, source);
}
Tensor& scatter_(Tensor& self, int64_t dim, const Tensor& index, const Operand& source, std::string_view reduce) {
  check_defined("scatter_", "self", self, "index", index, "source", source);
  if (reduce == "") return scatter("scatter_", self, dim, index, source, &self), self;
  if (reduce == "add") return scatter_add("scatter_", self, dim, index, source, &self), self;
  check_inplace("scatter_", self, wants_grad({self, source.tensor_or_undefined()}));
  return copy_(self, scatter(kept(self, source.tensor_or_undefined()), dim, index, source, reduce));
}

Tensor index_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    const IncludeSelfOptions& o) try {
  check_defined("index_reduce", "x", x, "index", index, "source", source);
  check(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
        "[index_reduce] reduce argument must be either prod, mean, amax or amin, got {}", reduce);
  check(index.dim() <= 1, "[index_reduce] index is supposed to be a vector, got {}", index);
  dim = wrap_dim("index_reduce", dim, x.dim());
  Shape expected = x.shape();
  if (x.dim()) expected[dim] = index.numel();
  check(source.shape() == expected, "[index_reduce] expected a source of shape {}, got {}", expected, source);
  if (x.dim() == 0) return scatter_reduce(x, 0, reshape(index, {}), source, reduce, o);
  Shape along = Dims::filled(x.dim(), 1);
  along[dim] = index.numel();
  return scatter_reduce(x, dim, expand(reshape(index, along), expected), source, reduce, o);
} catch (...) {
  fail_as("index_reduce");
}
Tensor& index_reduce_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                      const IncludeSelfOptions& o) try {
  check_defined("index_reduce_", "self", self, "index", index, "source", source);
  check_inplace("index_reduce_", self, wants_grad({self, source}));
  return copy_(self, index_reduce(kept(self, source), dim, index, source, reduce, o));
} catch (...) {
  fail_as("index_reduce_");
}

}  // namespace tapir::inline v0
