#include "indexing.h"

#include <algorithm>

#include "arithmetic.h"
#include "cast.h"
#include "create.h"
#include "front.h"
#include "shape.h"
#include "slicing.h"

namespace tapir::inline v0 {

static void check_index_dtype(const char* op, const Tensor& index) {
  check(is_integral(index.dtype()), "[{}] tensors used as indices must be of an integer dtype, got {}", op,
        index.dtype());
}

// ---- gather and its adjoint

static void check_gather(const char* op, const Tensor& x, int64_t dim, const Tensor& index) {
  check_index_dtype(op, index);
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
static const char* gather_text =
    "[gather] index {value} at position {position} is out of bounds for a dimension with size {bound}";

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  dim = wrap_dim("gather", dim, x.dim());
  common_device("gather", {&x, &index});
  check_gather("gather", x, dim, index);
  const Tensor places = to(index, kInt64);
  Tensor y = empty(index.shape(), {.dtype = x.dtype(), .device = x.device()});
  Context& ctx = context(x);
  const Tensor from = x.dim() ? x : alias(x, {1}, {1}, x.storage_offset());
  const Tensor at = places.dim() ? places : alias(places, {1}, {1}, places.storage_offset());
  const Tensor out = y.dim() ? y : alias(y, {1}, {1}, y.storage_offset());
  backend(x).gather(ctx, out, from, at, {dim});
  check_values(ctx, gather_text);
  const Shape shape = x.shape();
  return record("gather", y, {x}, save(places), [dim, shape](const Tensor& g, const Tensor& places) {
    return Grads{scatter_add(zeros(shape, {.dtype = g.dtype(), .device = g.device()}), dim, places, g)};
  });
}

static Tensor scatter_add(const char* name, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                          const Tensor* self) {
  dim = wrap_dim("scatter_add", dim, x.dim());
  common_device("scatter_add", {&x, &index, &source});
  check_gather("scatter_add", x, dim, index);
  check(source.dtype() == x.dtype(), "[scatter_add] expected self.dtype to be equal to src.dtype, got {} and {}",
        x.dtype(), source.dtype());
  check(source.dim() == index.dim(), "[scatter_add] expected source and index of equal rank, got {} and {}",
        source.shape(), index.shape());
  Tensor part = source;
  for (int64_t d = 0; d < index.dim(); ++d) {
    check(index.shape()[d] <= source.shape()[d], "[scatter_add] expected index {} to be no larger than source {}",
          index.shape(), source.shape());
    if (index.shape()[d] < source.shape()[d]) part = narrow(part, d, 0, index.shape()[d]);
  }
  Tensor places = to(index, kInt64), from = part;
  if (self) {
    check_inplace(name, x, wants_grad({x, part}));
    places = apart_from(*self, places), from = apart_from(*self, part);
  }
  Tensor y = self ? *self : empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  if (!self) backend(x).copy(context(x), y, x);
  const auto at_least_1d = [](const Tensor& t) { return t.dim() ? t : alias(t, {1}, {1}, t.storage_offset()); };
  Context& ctx = context(x);
  backend(x).scatter(ctx, at_least_1d(y), at_least_1d(places), at_least_1d(from), {dim, ScatterOp::Add});
  check_values(ctx,
               "[scatter_add] index {value} at position {position} is out of bounds for a dimension with size {bound}");
  return record(name, y, {x, part}, save(places), [dim](Needs needs, const Tensor& g, const Tensor& places) {
    return Grads{needs[0] ? g : Tensor(), needs[1] ? gather(g, dim, places) : Tensor()};
  });
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  return scatter_add("scatter_add", x, dim, index, source, nullptr);
}
Tensor& scatter_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  return scatter_add("scatter_add_", self, dim, index, source, &self), self;
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
static const char* index_text =
    "[index] index {value} at position {position} is out of bounds for a dimension with size {bound}";

static Tensor scatter_packed(const Tensor& g, const Shape& shape, const Tensor& places);

static Tensor index_packed(const Tensor& x, const Tensor& places) {
  Shape shape;
  for (int64_t d = 1; d < places.dim(); ++d) shape.push_back(places.shape()[d]);
  for (int64_t d = places.shape()[0]; d < x.dim(); ++d) shape.push_back(x.shape()[d]);
  Tensor y = empty(shape, {.dtype = x.dtype(), .device = x.device()});
  Context& ctx = context(x);
  backend(x).index(ctx, y, x, views_of(places));
  check_values(ctx, index_text);
  const Shape from = x.shape();
  return record("index", y, {x}, save(places),
                [from](const Tensor& g, const Tensor& places) { return Grads{scatter_packed(g, from, places)}; });
}

/// Zeros of `shape` with g added at the places.
static Tensor scatter_packed(const Tensor& g, const Shape& shape, const Tensor& places) {
  Tensor y = zeros(shape, {.dtype = g.dtype(), .device = g.device()});
  backend(g).index_put(context(g), y, g, views_of(places), {.accumulate = true});
  return record("index_backward", y, {g}, save(places),
                [](const Tensor& gg, const Tensor& places) { return Grads{index_packed(gg, places)}; });
}

/// g with zeros at the places.
static Tensor zero_packed(const Tensor& g, const Tensor& places) {
  Tensor y = empty(g.shape(), {.dtype = g.dtype(), .device = g.device()});
  backend(g).copy(context(g), y, g);
  Shape shape;
  for (int64_t d = 1; d < places.dim(); ++d) shape.push_back(places.shape()[d]);
  for (int64_t d = places.shape()[0]; d < g.dim(); ++d) shape.push_back(g.shape()[d]);
  const Tensor zero = zeros({}, {.dtype = g.dtype(), .device = g.device()});
  backend(g).index_put(context(g), y, TensorView(zero).expand(shape), views_of(places), {});
  return record("index_zero", y, {g}, save(places),
                [](const Tensor& gg, const Tensor& places) { return Grads{zero_packed(gg, places)}; });
}

/// Writes into x in place; values are (I..., rest) after broadcasting.
static void put_packed(const Tensor& x, const Tensor& given, const Tensor& values, bool accumulate) {
  const Tensor places = apart_from(x, given), from = apart_from(x, values);
  Shape shape;
  for (int64_t d = 1; d < places.dim(); ++d) shape.push_back(places.shape()[d]);
  for (int64_t d = places.shape()[0]; d < x.dim(); ++d) shape.push_back(x.shape()[d]);
  check(broadcasts_to(values.shape(), shape),
        "[index_put] shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {}",
        values.shape(), shape);
  check_inplace("index_put_", x, wants_grad({x, values}));
  Context& ctx = context(x);
  backend(x).index_put(ctx, x, view_as(from, shape, from.dtype()), views_of(places), {.accumulate = accumulate});
  check_values(ctx, index_text);
  record("index_put_", x, {x, values}, save(places), [accumulate](Needs needs, const Tensor& g, const Tensor& places) {
    return Grads{!needs[0]    ? Tensor()
                 : accumulate ? g
                              : zero_packed(g, places),
                 needs[1] ? index_packed(g, places) : Tensor()};
  });
}

Tensor nonzero(const Tensor& x) {
  const int64_t n = backend(x).count_nonzero(context(x), x);
  Tensor y = empty({n, x.dim()}, {.dtype = kInt64, .device = x.device()});
  if (y.numel()) backend(x).nonzero(context(x), y, x);
  return y;
}

namespace {
/// x[indices] in the packed form, and how its result's dimensions stand in the caller's order.
struct Plan {
  Tensor x;           // a view with the indexed dimensions in front
  Tensor places;      // (k, I...)
  int64_t first = 0;  // where the index dimensions go in the result

  Plan(const char* op, const Tensor& self, const std::vector<Tensor>& given) {
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
      if (i.defined() && i.dtype() == kBool) {
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
    if (first == 0 || values.dim() == 0) return values;
    Tensor v = values;
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

Tensor index(const Tensor& x, const std::vector<Tensor>& indices) {
  const Plan plan("index", x, indices);
  return plan.in_order(index_packed(plan.x, plan.places));
}

Tensor& index_put_(Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) {
  const Plan plan("index_put_", self, indices);
  put_packed(plan.x, plan.places, plan.from_order(to(to(values, self.device()), self.dtype())), accumulate);
  return self;
}

Tensor index_put(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) {
  Tensor y = clone(self);
  return index_put_(y, indices, values, accumulate);
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  check_index_dtype("index_select", index);
  check(index.dim() <= 1, "[index_select] index is supposed to be a vector, got shape {}", index.shape());
  common_device("index_select", {&x, &index});
  if (x.dim() == 0) return reshape(index_select(reshape(x, {1}), 0, index), {});
  dim = wrap_dim("index_select", dim, x.dim());
  const Tensor places = reshape(to(index, kInt64), {1, index.numel()});
  return transpose(index_packed(transpose(x, 0, dim), places), 0, dim);
}

// ---- x[...]

namespace {
/// The basic part of an index, applied as views; what remains are tensors, one for each leading dimension that has one.
struct Parsed {
  Tensor view;
  std::vector<Tensor> tensors;  // empty where there are none

  Parsed(const Tensor& x, const std::vector<Index>& items) : view(x) {
    int64_t taken = 0;
    bool ellipsis = false;
    for (const Index& i : items) {
      if (i.kind == Index::Kind::Integer || i.kind == Index::Kind::Slice) ++taken;
      if (i.kind == Index::Kind::Tensor) taken += i.tensor.dtype() == kBool ? i.tensor.dim() : 1;
      check(i.kind != Index::Kind::Ellipsis || !ellipsis, "[index] an index can only have a single ellipsis ('...')");
      ellipsis |= i.kind == Index::Kind::Ellipsis;
    }
    check(taken <= x.dim(), "[index] too many indices for tensor of dimension {} (got {})", x.dim(), taken);
    int64_t dim = 0;
    for (const Index& i : items) apply(i, dim, x.dim() - taken);
  }

 private:
  void apply(const Index& i, int64_t& dim, int64_t skipped) {
    switch (i.kind) {
      case Index::Kind::Integer:
        check_bounds(i.integer, dim);
        view = select(view, dim, i.integer);
        break;
      case Index::Kind::Slice:
        view = slice(view, dim, i.slice.start, i.slice.stop, i.slice.step);
        ++dim;
        break;
      case Index::Kind::None: view = unsqueeze(view, dim++); break;
      case Index::Kind::Ellipsis: dim += skipped; break;
      case Index::Kind::Bool:  // a mask of rank 0: a new dimension of extent 1 or 0
        view = unsqueeze(view, dim);
        put(dim, arange(0, int64_t(i.integer != 0), 1, {.device = view.device()}));
        ++dim;
        break;
      case Index::Kind::Tensor:
        if (i.tensor.dtype() == kBool && i.tensor.dim() == 0) {
          view = unsqueeze(view, dim);
          put(dim, reshape(i.tensor, {1}));
          ++dim;
          break;
        }
        put(dim, i.tensor);
        dim += i.tensor.dtype() == kBool ? i.tensor.dim() : 1;
        break;
    }
  }
  void check_bounds(int64_t i, int64_t dim) const {
    const int64_t n = view.shape()[dim];
    check(i >= -n && i < n, "[index] index {} is out of bounds for dimension {} with size {}", i, dim, n);
  }
  /// A tensor for dimension `dim` of the view; masks stand for several, which later entries must count.
  void put(int64_t dim, const Tensor& t) {
    int64_t covered = 0;
    for (const Tensor& held : tensors) covered += held.defined() && held.dtype() == kBool ? held.dim() : 1;
    while (covered++ < dim) tensors.emplace_back();
    tensors.push_back(t);
  }
};
}  // namespace

Indexed Tensor::operator[](const Index& i) const { return Indexed(*this, {i}); }
Indexed Tensor::operator[](std::initializer_list<Index> indices) const { return Indexed(*this, indices); }

Tensor Indexed::value() const {
  const Parsed p(base_, items_);
  if (!p.tensors.empty()) return index(p.view, p.tensors);
  return p.view.is_same(base_) ? tapir::view(base_, base_.shape()) : p.view;
}

const Indexed& Indexed::operator=(const Operand& source) const {
  Parsed p(base_, items_);
  const Tensor value = source.is_tensor()
                           ? source.tensor()
                           : full({}, source.scalar(), {.dtype = base_.dtype(), .device = base_.device()});
  if (p.tensors.empty()) tapir::copy_(p.view, value);
  else index_put_(p.view, p.tensors, value);
  return *this;
}
const Indexed& Indexed::operator+=(const Operand& o) const { return *this = Operand(tapir::add(value(), o)); }
const Indexed& Indexed::operator-=(const Operand& o) const { return *this = Operand(tapir::sub(value(), o)); }
const Indexed& Indexed::operator*=(const Operand& o) const { return *this = Operand(tapir::mul(value(), o)); }
const Indexed& Indexed::operator/=(const Operand& o) const { return *this = Operand(tapir::div(value(), o)); }

}  // namespace tapir::inline v0
