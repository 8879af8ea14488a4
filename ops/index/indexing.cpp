#include "../indexing.h"

#include <algorithm>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../bitwise.h"
#include "../cast.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../pointwise.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"

namespace tapir::inline v0 {

/// A mask: bool, or uint8, which PyTorch once had for it.
static bool is_mask(const Tensor& t) { return t.dtype() == kBool || t.dtype() == kUInt8; }

static void check_index_dtype(const char* op, const Tensor& index) {
  check(is_integral(index.dtype()), "[{}] tensors used as indices must be of an integer dtype, got {}", op,
        index.dtype());
}

// ---- indexing by tensors
//
// Note [Packed indices]
// Below, x has its indexed dimensions in front, and `places` (k, I...) holds the k broadcast int64 index tensors: the result is
// (I..., rest). That one form serves index, index_select, embedding and all their gradients.

static std::vector<TensorView> views_of(const Tensor& places) {
  std::vector<TensorView> views;
  const Shape shape(std::span<const int64_t>(places.shape().begin() + 1, size_t(places.dim() - 1)));
  const Strides strides(std::span<const int64_t>(places.strides().begin() + 1, size_t(places.dim() - 1)));
  for (int64_t i = 0; i < places.shape()[0]; ++i)
    views.emplace_back(alias(places, shape, strides, places.storage_offset() + i * places.strides()[0]));
  return views;
}
/// For the message about a bad position: who asks, and what the indexed dimensions are called there.
struct Caller {
  const char* op = "index";
  Dims dims = {};
  bool wrap = true;  // negative positions count from the end
};
static void check_places(const Context& ctx, const Caller& who, const Tensor& x, const Tensor& places) {
  if (!ctx.error.set && !ctx.late_error) [[likely]]
    return;
  const ErrorWord e = ctx.error;
  int64_t k = 0;  // the index tensor that holds it
  if (!e.set)     // nobody knows yet
    return name_late_error(
        ctx, tapir::format("[{}] index {value} at position {position} is out of bounds for a dimension of "
                           "size {bound}",
                           who.op));
  const auto holds = [&] {
    return x.shape()[k] == e.bound &&
           select(reshape(select(places, 0, k), -1), 0, e.position).item<int64_t>() == e.value;
  };
  while (k + 1 < places.shape()[0] && !holds()) ++k;
  fail_values(
      e, tapir::format("[{}] index {value} at position {position} is out of bounds for dimension {} with size {bound}",
                       who.op, k < who.dims.size() ? who.dims[k] : k));
}
/// (I..., rest)
static Shape packed_shape(const Tensor& x, const Tensor& places) {
  Shape shape;
  for (int64_t d = 1; d < places.dim(); ++d) shape.push_back(places.shape()[d]);
  for (int64_t d = places.shape()[0]; d < x.dim(); ++d) shape.push_back(x.shape()[d]);
  return shape;
}

static Tensor scatter_packed(const Tensor& g, const Shape& shape, const Tensor& places);

static Tensor index_packed(const Tensor& x, const Tensor& places, const Caller& who = {}) {
  Tensor y = empty(packed_shape(x, places), {.dtype = x.dtype(), .device = x.device()});
  Context& ctx = context(x);
  backend(x).index(ctx, {y, x, views_of(places), {.wrap = who.wrap}});
  check_places(ctx, who, x, places);
  const Shape from = x.shape();
  return record(who.op, y, {x}, save(places),
                [from](const Tensor& g, const Tensor& places) { return Grads{scatter_packed(g, from, places)}; });
}

/// Zeros of `shape` with g added at the places.
static Tensor scatter_packed(const Tensor& g, const Shape& shape, const Tensor& places) {
  Tensor y = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  backend(g).index_put(context(g), {y, g, views_of(places), {.accumulate = true}});
  return record("index_backward", y, {g}, save(places),
                [](const Tensor& gg, const Tensor& places) { return Grads{index_packed(gg, places)}; });
}

/// g with zeros at the places.
static Tensor zero_packed(const Tensor& g, const Tensor& places) {
  Tensor y = empty(g.shape(), {.dtype = g.dtype(), .device = g.device()});
  backend(g).copy(context(g), {y, g});
  const Tensor zero = zeros({}, {.dtype = g.dtype(), .device = g.device()});
  backend(g).index_put(context(g), {y, TensorView(zero).expand(packed_shape(g, places)), views_of(places), {}});
  return record("index_zero", y, {g}, save(places),
                [](const Tensor& gg, const Tensor& places) { return Grads{zero_packed(gg, places)}; });
}

/// Writes into x in place; values are (I..., rest) after broadcasting.
static void put_packed(const Tensor& x, const Tensor& given, const Tensor& values, bool accumulate, const Caller& who) {
  const Tensor places = apart_from(x, given), from = apart_from(x, values);
  const Shape shape = packed_shape(x, places);
  check(broadcasts_to(values.shape(), shape),
        "[{}] shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {}", who.op,
        values.shape(), shape);
  check(values.dtype() == x.dtype(), "[{}] expected values of dtype {}, got {}", who.op, x.dtype(), values.dtype());
  check_inplace(who.op, x, wants_grad({x, values}));
  Context& ctx = context(x);
  backend(x).index_put(ctx, {x, view_as(from, shape, from.dtype()), views_of(places), {accumulate, who.wrap}});
  check_places(ctx, who, x, places);
  record(who.op, x, {x, values}, save(places), [accumulate](Needs needs, const Tensor& g, const Tensor& places) {
    return Grads{!needs[0]    ? Tensor()
                 : accumulate ? g
                              : zero_packed(g, places),
                 needs[1] ? index_packed(g, places) : Tensor()};
  });
}

Tensor nonzero(const Tensor& x) {
  check_defined("nonzero", "x", x);
  const int64_t n = backend(x).count_nonzero(context(x), {x});
  Tensor y = empty({n, x.dim()}, {.dtype = kInt64, .device = x.device()});
  if (y.numel()) backend(x).nonzero(context(x), {y, x});
  return noted("nonzero", y);
}

/// What is assigned may have extents of 1 in front that its place has not.
static Tensor without_leading_ones(Tensor v, int64_t rank) {
  while (v.dim() > rank && v.shape()[0] == 1) v = select(v, 0, 0);
  return v;
}

namespace {
/// x[indices] in the packed form, and how its result's dimensions stand in the caller's order.
struct Plan {
  Tensor x;           // a view with the indexed dimensions in front
  Tensor places;      // (k, I...)
  int64_t first = 0;  // where the index dimensions go in the result
  Caller who;

  /// names: what self's dimensions are called in messages; none: by their numbers.
  Plan(const char* op, const Tensor& self, const std::vector<Tensor>& given, const Dims& names = {}) : who{op} {
    std::vector<Tensor> indices = expand_masks(op, self, given);
    check(int64_t(indices.size()) <= self.dim(), "[{}] too many indices for tensor of dimension {} (got {})", op,
          self.dim(), int64_t(indices.size()));
    Dims order;
    std::vector<Tensor> held;
    Shape shape;
    bool gap = false, adjacent = true;
    for (size_t d = 0; d < indices.size(); ++d) {
      if (!indices[d].defined()) {
        gap |= !held.empty();
        continue;
      }
      if (held.empty()) first = int64_t(d);
      adjacent &= !gap;
      order.push_back(int64_t(d));
      who.dims.push_back(names.empty() ? int64_t(d) : names[int64_t(d)]);
      common_device(op, {&self, &indices[d]});
      shape = held.empty() ? indices[d].shape() : broadcast_shapes(op, shape, indices[d].shape());
      held.push_back(indices[d]);
    }
    check(!held.empty(), "[{}] expected at least one index tensor, got none", op);
    if (!adjacent) first = 0;
    for (int64_t d = 0; d < self.dim(); ++d)
      if (d >= int64_t(indices.size()) || !indices[size_t(d)].defined()) order.push_back(d);
    x = permute(self, order);
    for (Tensor& i : held) i = expand(i, shape);
    places = held.size() == 1 ? unsqueeze(held[0], 0) : stack(held);
  }

  /// Integer index tensors for every dimension; a mask of rank r gives r of them.
  static std::vector<Tensor> expand_masks(const char* op, const Tensor& self, const std::vector<Tensor>& given) {
    std::vector<Tensor> indices;
    for (const Tensor& i : given) {
      if (i.defined() && is_mask(i)) {
        const int64_t at = int64_t(indices.size());
        for (int64_t d = 0; d < i.dim(); ++d) {
          check(
              at + d < self.dim() && i.shape()[d] == self.shape()[at + d],
              "[{}] the shape of the mask {} at index {} does not match the shape of the indexed tensor {} at index {}",
              op, i.shape(), d, self.shape(), at + d);
        }
        const Tensor found = nonzero(i);
        for (int64_t d = 0; d < i.dim(); ++d) indices.push_back(select(found, 1, d));
        continue;
      }
      if (i.defined()) check_index_dtype(op, i);
      indices.push_back(i.defined() ? to(i, kInt64) : i);
    }
    return indices;
  }

  /// (I..., rest) with I moved to where the caller expects it.
  Tensor in_order(const Tensor& y) const {
    if (first == 0) return y;
    const int64_t n = places.dim() - 1;
    Dims order;
    for (int64_t d = 0; d < first; ++d) order.push_back(n + d);
    for (int64_t d = 0; d < n; ++d) order.push_back(d);
    for (int64_t d = n + first; d < y.dim(); ++d) order.push_back(d);
    return permute(y, order);
  }
  /// The same backwards, for values in the caller's order (of full rank, or fewer dimensions to be broadcast).
  Tensor from_order(const Tensor& values) const {
    const int64_t n = places.dim() - 1, rank = n + x.dim() - places.shape()[0];
    Tensor v = without_leading_ones(values, rank);
    if (first == 0 || v.dim() == 0) return v;
    while (v.dim() < rank) v = unsqueeze(v, 0);
    if (v.dim() > rank) return v;
    Dims order;
    for (int64_t d = 0; d < n; ++d) order.push_back(first + d);
    for (int64_t d = 0; d < first; ++d) order.push_back(d);
    for (int64_t d = n + first; d < rank; ++d) order.push_back(d);
    return permute(v, order);
  }
};
}  // namespace

static Tensor index(const Tensor& x, const std::vector<Tensor>& indices, const Dims& names) {
  const Plan plan("index", x, indices, names);
  return plan.in_order(index_packed(plan.x, plan.places, plan.who));
}
Tensor index(const Tensor& x, const std::vector<Tensor>& indices) try { return index(x, indices, {}); } catch (...) {
  fail_as("index");
}

static void put(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate,
                const Dims& names) {
  const Plan plan("index_put_", self, indices, names);
  put_packed(plan.x, plan.places, plan.from_order(to(to(values, self.device()), self.dtype())), accumulate, plan.who);
}
Tensor& index_put_(Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) try {
  check(values.dtype() == self.dtype(), "[index_put_] expected values of dtype {}, got {}", self.dtype(), values);
  return put(self, indices, values, accumulate, {}), self;
} catch (...) {
  fail_as("index_put_");
}
Tensor index_put(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) try {
  TAPIR_AUTOCAST(index_put, self, indices, values, accumulate);
  Tensor y = clone(self);
  return index_put_(y, indices, values, accumulate);
} catch (...) {
  fail_as("index_put");
}

// ---- whole slices along one dimension

namespace {
/// A vector of positions along dim, and x with that dimension in front.
struct Slices {
  int64_t dim;
  Tensor places;  // (1, n)
  Caller who;
  Slices(const char* op, const Tensor& x, int64_t given, const Tensor& index, bool wrap = false)
      : dim(wrap_dim(op, given, x.dim())), who{op, dim, wrap} {
    check_index_dtype(op, index);
    check(index.dim() <= 1, "[{}] index is supposed to be a vector, got shape {}", op, index.shape());
    common_device(op, {&x, &index});
    places = reshape(to(index, kInt64), {1, index.numel()});
  }
  int64_t count() const { return places.shape()[1]; }
  Tensor in_front(const Tensor& x) const {
    return x.dim() == 0 ? reshape(x, {1}) : dim == 0 ? x : transpose(x, 0, dim);
  }
  /// Writes source, of self's shape but for `dim`, or values that are broadcast.
  void put(const Tensor& self, const Tensor& values, bool accumulate) const {
    check_inplace(who.op, self, wants_grad({self, values}));
    put_packed(in_front(self), places, values, accumulate, who);
  }
  void check_source(const Tensor& self, const Tensor& source) const {
    Shape expected = self.shape();
    if (self.dim()) expected[dim] = count();
    check(self.dim() || count() == 1, "[{}] expected one index for a 0-dim tensor, got {}", who.op, count());
    check(source.shape() == expected || (self.dim() == 0 && source.numel() == 1),
          "[{}] expected a source of shape {}, got {}", who.op, expected, source);
    check(source.dtype() == self.dtype(), "[{}] self ({}) and source ({}) must have the same dtype", who.op,
          self.dtype(), source.dtype());
    common_device(who.op, {&self, &source});
  }
};
}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  check_defined("index_select", "x", x, "index", index);
  const Slices s("index_select", x, dim, index);
  const Tensor y = index_packed(s.in_front(x), s.places, s.who);
  if (x.dim() == 0) {
    check(s.count() == 1, "[index_select] index to scalar can have only 1 value, got {} value(s)", s.count());
    return reshape(y, {});
  }
  return s.dim == 0 ? y : transpose(y, 0, s.dim);
}

// Out of place: the twin on a copy.
#define TAPIR_ON_COPY(name, self, ...) \
  Tensor y = clone(self);              \
  return name(y, __VA_ARGS__)

Tensor& index_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  check_defined("index_add_", "self", self, "index", index, "source", source);
  const Slices s("index_add_", self, dim, index);
  s.check_source(self, source);
  check_factor("index_add_", "alpha", alpha, self.dtype());
  s.put(self, s.in_front(alpha.to_double() == 1 ? source : to(mul(source, alpha), self.dtype())), true);
  return self;
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  check_defined("index_add", "x", x, "index", index, "source", source);
  TAPIR_ON_COPY(index_add_, x, dim, index, source, alpha);
}
Tensor& index_copy_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  check_defined("index_copy_", "self", self, "index", index, "source", source);
  const Slices s("index_copy_", self, dim, index);
  s.check_source(self, source);
  s.put(self, s.in_front(source), false);
  return self;
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  check_defined("index_copy", "x", x, "index", index, "source", source);
  TAPIR_AUTOCAST(index_copy, x, dim, index, source);
  TAPIR_ON_COPY(index_copy_, x, dim, index, source);
}
Tensor& index_fill_(Tensor& self, int64_t dim, const Tensor& index, const Operand& value) try {
  check_defined("index_fill_", "self", self, "index", index, "value", value);
  check(!value.is_tensor() || value.tensor().dim() == 0,
        "[index_fill_] only supports a 0-dimensional value tensor, but got {}", value.tensor_or_undefined());
  const Slices s("index_fill_", self, dim, index, true);
  if (value.is_tensor() && wants_grad({value.tensor()})) {  // a position that occurs twice counts once in its gradient
    Tensor mask = zeros(self.dim() ? self.shape()[s.dim] : 1, {.dtype = kBool, .device = self.device()});
    put_packed(mask, s.places, ones({}, {.dtype = kBool, .device = self.device()}), false, s.who);
    Shape shape = Dims::filled(self.dim(), 1);
    if (self.dim()) shape[s.dim] = mask.numel();
    return masked_fill_(self, reshape(mask, shape), to(value.tensor(), self.dtype()));
  }
  s.put(self,
        value.is_tensor() ? to(value.tensor(), self.dtype())
                          : full({}, value.scalar(), {.dtype = self.dtype(), .device = self.device()}),
        false);
  return self;
} catch (...) {
  fail_as("index_fill_");
}
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Operand& value) try {
  check_defined("index_fill", "x", x, "index", index, "value", value);
  TAPIR_ON_COPY(index_fill_, x, dim, index, value);
} catch (...) {
  fail_as("index_fill");
}

// ---- masks

static void check_mask(const char* op, const Tensor& mask) {
  check(mask.dtype() == kBool, "[{}] expected a mask of dtype bool, got {}", op, mask);
}
Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check_defined("masked_select", "x", x, "mask", mask);
  check_mask("masked_select", mask);
  common_device("masked_select", {&x, &mask});
  Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  if (shape.empty()) shape.push_back(1);
  return index(expand(x, shape), {expand(mask, shape)});
}
static Tensor& masked_scatter(const char* op, Tensor& self, const Tensor& mask, const Tensor& source) {
  check_mask(op, mask);
  common_device(op, {&self, &mask, &source});
  check(source.dtype() == self.dtype(), "[{}] expected self and source to have same dtypes but got {} and {}", op,
        self.dtype(), source.dtype());
  check(broadcasts_to(mask.shape(), self.shape()), "[{}] expected a mask that broadcasts to {}, got {}", op,
        self.shape(), mask);
  check_inplace(op, self, wants_grad({self, source}));
  const Shape shape = self.dim() ? self.shape() : Shape(1);
  const Tensor places = t(nonzero(expand(mask, shape)));
  const int64_t count = places.shape()[1];
  check(count <= source.numel(), "[{}] number of elements of source ({}) < number of ones in mask ({})", op,
        source.numel(), count);
  put_packed(self.dim() ? self : reshape(self, {1}), places, narrow(reshape(source, -1), 0, 0, count), false, {op});
  return self;
}
Tensor& masked_scatter_(Tensor& self, const Tensor& mask, const Tensor& source) {
  check_defined("masked_scatter_", "self", self, "mask", mask, "source", source);
  return masked_scatter("masked_scatter_", self, mask, source);
}
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  check_defined("masked_scatter", "x", x, "mask", mask, "source", source);
  Tensor y = clone(expand(x, broadcast_shapes("masked_scatter", x.shape(), mask.shape())));
  return masked_scatter("masked_scatter", y, mask, source);
}

// ---- positions in the flattened tensor

static Tensor flat_places(const char* op, const Tensor& index) {
  check_index_dtype(op, index);
  return unsqueeze(to(index, kInt64), 0);
}
Tensor take(const Tensor& x, const Tensor& index) try {
  common_device("take", {&x, &index});
  return index_packed(reshape(x, -1), flat_places("take", index), {"take", 0});
} catch (...) {
  fail_as("take");
}
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate) try {
  check_defined("put", "x", x, "index", index, "source", source);
  common_device("put", {&x, &index, &source});
  check(source.dtype() == x.dtype(), "[put] expected self and source of one dtype, got {} and {}", x.dtype(),
        source.dtype());
  check(source.numel() == index.numel(),
        "[put] expected source and index to have the same number of elements, got {} and {}", source, index);
  const Tensor y = clone(x, kContiguous);
  put_packed(reshape(y, -1), flat_places("put", index), reshape(source, index.shape()), accumulate, {"put", 0});
  return y;
} catch (...) {
  fail_as("put");
}
Tensor& put_(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) try {
  check_defined("put_", "self", self, "index", index, "source", source);
  check_inplace("put_", self, wants_grad({self, source}));
  return copy_(self, put(self, index, source, accumulate));
} catch (...) {
  fail_as("put_");
}
std::vector<Tensor> unravel_index(const Tensor& indices, const Shape& shape) {
  check_defined("unravel_index", "indices", indices);
  check_index_dtype("unravel_index", indices);
  int64_t count = 1;
  for (int64_t s : shape)
    check(s >= 0 && !__builtin_mul_overflow(count, s, &count),
          "[unravel_index] expected sizes of at least 0 without overflow, got {}", shape);
  Tensor left = to(indices, kInt64);
  if (left.numel()) {
    const int64_t low = min(left).item<int64_t>(), high = max(left).item<int64_t>();
    check(low >= 0 && high < count, "[unravel_index] index {} is out of bounds for shape {} with {} elements",
          low < 0 ? low : high, shape, count);
  }
  std::vector<Tensor> out(size_t(shape.size()));
  for (int64_t d = shape.size(); d-- > 0;) {
    const int64_t n = std::max<int64_t>(shape[d], 1);
    out[size_t(d)] = remainder(left, n), left = div(left, n, "floor");
  }
  return out;
}
Tensor argwhere(const Tensor& x) try { return nonzero(x); } catch (...) {
  fail_as("argwhere");
}

// ---- x[...]

namespace {
/// The basic part of an index, applied as views; what remains are tensors, one for each leading dimension that has one.
struct Parsed {
  Tensor view;
  std::vector<Tensor> tensors;  // empty where there are none
  Dims names;                   // which of x's dimensions each of the view's is; -1: a new one

  Parsed(const Tensor& x, const std::vector<Index>& items) : view(x) {
    for (int64_t d = 0; d < x.dim(); ++d) names.push_back(d);
    int64_t taken = 0;
    bool ellipsis = false;
    for (const Index& i : items) arrays |= i.kind == Index::Kind::Tensor && !is_number(i.tensor);
    for (const Index& i : items) {
      if (i.kind == Index::Kind::Integer || i.kind == Index::Kind::Slice) ++taken;
      if (i.kind == Index::Kind::Tensor) taken += is_mask(i.tensor) ? i.tensor.dim() : 1;
      check(i.kind != Index::Kind::Ellipsis || !ellipsis, "[index] an index can only have a single ellipsis ('...')");
      ellipsis |= i.kind == Index::Kind::Ellipsis;
    }
    check(taken <= x.dim(), "[index] too many indices for tensor of dimension {} (got {})", x.dim(), taken);
    int64_t dim = 0;
    for (const Index& i : items) apply(i, dim, x.dim() - taken);
  }

 private:
  bool arrays = false;  // is there an index tensor with dimensions? 0-dim ones beside it are integers

  static bool is_number(const Tensor& t) { return t.dim() == 0 && !is_mask(t) && is_integral(t.dtype()); }
  void apply(const Index& i, int64_t& dim, int64_t skipped) {
    switch (i.kind) {
      case Index::Kind::Integer:
        check_bounds(i.integer, dim);
        view = select(view, dim, i.integer), names.erase(dim);
        break;
      case Index::Kind::Slice:
        view = slice(view, dim, i.slice.start, i.slice.stop, i.slice.step);
        ++dim;
        break;
      case Index::Kind::None: add_dimension(dim++); break;
      case Index::Kind::Ellipsis: dim += skipped; break;
      case Index::Kind::Bool:  // a mask of rank 0: a new dimension of extent 1 or 0
        add_dimension(dim);
        put(dim, arange(0, int64_t(i.integer != 0), 1, {.device = view.device()}));
        ++dim;
        break;
      case Index::Kind::Tensor:
        if (arrays && is_number(i.tensor)) return apply(i.tensor.item<int64_t>(), dim, skipped);
        if (is_mask(i.tensor) && i.tensor.dim() == 0) {
          add_dimension(dim);
          put(dim, reshape(i.tensor, {1}));
          ++dim;
          break;
        }
        put(dim, i.tensor);
        dim += is_mask(i.tensor) ? i.tensor.dim() : 1;
        break;
    }
  }
  void check_bounds(int64_t i, int64_t dim) const {
    const int64_t n = view.shape()[dim];
    check(i >= -n && i < n, "[index] index {} is out of bounds for dimension {} with size {}", i, names[dim], n);
  }
  void add_dimension(int64_t dim) { view = unsqueeze(view, dim), names.insert(dim, -1); }
  /// A tensor for dimension `dim` of the view; masks stand for several, which later entries must count.
  void put(int64_t dim, const Tensor& t) {
    int64_t covered = 0;
    for (const Tensor& held : tensors) covered += held.defined() && is_mask(held) ? held.dim() : 1;
    while (covered++ < dim) tensors.emplace_back();
    tensors.push_back(t);
  }
};
}  // namespace

Indexed Tensor::operator[](const Index& i) const { return Indexed(*this, {i}); }
Indexed Tensor::operator[](std::initializer_list<Index> indices) const { return Indexed(*this, indices); }

Tensor Indexed::value() const {
  const Parsed p(base_, items_);
  if (!p.tensors.empty()) return index(p.view, p.tensors, p.names);
  return p.view.is_same(base_) ? tapir::view(base_, base_.shape()) : p.view;
}

const Indexed& Indexed::operator=(const Operand& source) const&& {
  Parsed p(base_, items_);
  const Tensor value = source.is_tensor()
                           ? source.tensor()
                           : full({}, source.scalar(), {.dtype = base_.dtype(), .device = base_.device()});
  if (p.tensors.empty()) tapir::copy_(p.view, without_leading_ones(value, p.view.dim()));
  else put(p.view, p.tensors, value, false, p.names);
  return *this;
}
#define TAPIR_ASSIGN(sign, name)                                    \
  const Indexed& Indexed::operator sign(const Operand& o) const&& { \
    return std::move(*this) = Operand(tapir::name(value(), o));     \
  }
TAPIR_ASSIGN(+=, add)
TAPIR_ASSIGN(-=, sub)
TAPIR_ASSIGN(*=, mul)
TAPIR_ASSIGN(/=, div)
TAPIR_ASSIGN(%=, remainder)
TAPIR_ASSIGN(&=, bitwise_and)
TAPIR_ASSIGN(|=, bitwise_or)
TAPIR_ASSIGN(^=, bitwise_xor)
TAPIR_ASSIGN(<<=, bitwise_left_shift)
TAPIR_ASSIGN(>>=, bitwise_right_shift)
#undef TAPIR_ASSIGN

}  // namespace tapir::inline v0
