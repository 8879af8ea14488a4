#include "../shape.h"

#include "../../autograd/arith.h"
#include "../cast.h"
#include "../create.h"
#include "../front.h"
#include "../reduce.h"

namespace tapir::inline v0 {

/// A view whose gradient is the same rearrangement backwards.
template <class F>
static Tensor viewed(const char* name, const Tensor& x, const Shape& shape, const Strides& strides, const F& back) {
  return record_view(name, alias(x, shape, strides, x.storage_offset()), x, back);
}

/// `shape` with its -1 worked out for numel elements.
static Shape infer_shape(const char* op, const Shape& shape, int64_t numel) {
  int64_t known = 1, unknown = -1;
  for (int64_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == -1) {
      check(unknown < 0, "[{}] only one dimension can be inferred, got {}", op, shape);
      unknown = d;
      continue;
    }
    check(shape[d] >= 0, "[{}] expected sizes of at least 0 (or one -1), got {}", op, shape);
    const bool overflow = __builtin_mul_overflow(known, shape[d], &known);
    check(!overflow, "[{}] shape {} is invalid for input of size {}", op, shape, numel);
  }
  Shape out = shape;
  if (unknown >= 0) {
    check(known != 0,
          "[{}] cannot reshape tensor of {} elements into shape {} because the unspecified dimension size -1 can be "
          "any value and is ambiguous",
          op, numel, shape);
    out[unknown] = numel / known, known *= out[unknown];
  }
  check(known == numel, "[{}] shape '{}' is invalid for input of size {}", op, shape, numel);
  int64_t steps = 1;  // the strides of a tensor without elements must fit, too
  for (int64_t s : out)
    check(!__builtin_mul_overflow(steps, std::max<int64_t>(s, 1), &steps), "[{}] the strides of shape {} overflow", op,
          out);
  return out;
}

/// Strides under which `shape` names the same elements in the same order, if there are such.
static std::optional<Strides> view_strides(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) return contiguous_strides(shape);
  Strides out = Dims::filled(shape.size(), 1);
  int64_t to = shape.size() - 1;
  // Runs of x's dimensions that are one in memory, the last first; each must be split evenly into new dimensions.
  int64_t run = 1, base = x.dim() ? x.strides()[x.dim() - 1] : 1;
  for (int64_t d = x.dim() - 1; d >= 0; --d) {
    run *= x.shape()[d];
    const bool ends = d == 0 || (x.shape()[d - 1] != 1 && x.strides()[d - 1] != run * base);
    if (!ends) continue;
    int64_t left = run, step = base;
    while (to >= 0 && (left > 1 || shape[to] == 1)) {
      if (left % shape[to] != 0) return {};
      out[to] = step, step *= shape[to], left /= shape[to--];
    }
    if (left != 1) return {};
    if (d > 0) run = 1, base = x.strides()[d - 1];
  }
  return out;
}

static Tensor view_as_shape(const char* name, const Tensor& x, const Shape& shape, const Strides& strides) {
  const Shape from = x.shape();
  return viewed(name, x, shape, strides, [from](const Tensor& g) { return Grads{reshape(g, from)}; });
}

Tensor view(const Tensor& x, const Shape& wanted) {
  check_defined("view", "x", x);
  const Shape shape = infer_shape("view", wanted, x.numel());
  const auto strides = view_strides(x, shape);
  check(strides.has_value(),
        "[view] view size {} is not compatible with input tensor's shape {} and strides {} (at least one dimension "
        "spans across two contiguous subspaces). Use reshape(...) instead",
        shape, x.shape(), x.strides());
  return view_as_shape("view", x, shape, *strides);
}

Tensor reshape(const Tensor& x, const Shape& wanted) {
  check_defined("reshape", "x", x);
  const Shape shape = infer_shape("reshape", wanted, x.numel());
  if (const auto strides = view_strides(x, shape)) return view_as_shape("reshape", x, shape, *strides);
  return view(clone(x, kContiguous), shape);
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  check_defined("flatten", "x", x);
  start = wrap_dim("flatten", start, x.dim()), end = wrap_dim("flatten", end, x.dim());
  check(start <= end, "[flatten] start_dim {} cannot come after end_dim {}", start, end);
  if (x.dim() == 0) return reshape(x, {1});
  if (start == end) return x;
  Shape shape;
  int64_t joined = 1;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d < start || d > end) shape.push_back(x.shape()[d]);
    else if (joined *= x.shape()[d]; d == end) shape.push_back(joined);
  }
  return reshape(x, shape);
}

Tensor permute(const Tensor& x, const Dims& dims) {
  check_defined("permute", "x", x);
  const int64_t rank = x.dim();
  check(dims.size() == rank, "[permute] expected {} dims for a tensor of that rank, got {}", rank, dims);
  Shape shape, strides;
  Dims back = Dims::filled(rank, -1);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t d = wrap_dim("permute", dims[i], rank);
    check(back[d] < 0, "[permute] repeated dim {} in {}", d, dims);
    back[d] = i;
    shape.push_back(x.shape()[d]), strides.push_back(x.strides()[d]);
  }
  return viewed("permute", x, shape, strides, [back](const Tensor& g) { return Grads{permute(g, back)}; });
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  check_defined("transpose", "x", x);
  dim0 = wrap_dim("transpose", dim0, x.dim()), dim1 = wrap_dim("transpose", dim1, x.dim());
  Shape shape = x.shape(), strides = x.strides();
  if (x.dim() > 0) std::swap(shape[dim0], shape[dim1]), std::swap(strides[dim0], strides[dim1]);
  return viewed("transpose", x, shape, strides,
                [dim0, dim1](const Tensor& g) { return Grads{transpose(g, dim0, dim1)}; });
}

Tensor t(const Tensor& x) {
  check_defined("t", "x", x);
  check(x.dim() <= 2, "[t] expected a tensor with at most 2 dimensions, got shape {}", x.shape());
  return x.dim() < 2 ? x : transpose(x, 0, 1);
}

/// x without the dimensions of extent 1 in `mask`.
static Tensor squeeze_mask(const Tensor& x, uint32_t mask) {
  Shape shape, strides;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (!(mask >> d & 1) || x.shape()[d] != 1) shape.push_back(x.shape()[d]), strides.push_back(x.strides()[d]);
  return view_as_shape("squeeze", x, shape, strides);
}
Tensor squeeze(const Tensor& x) {
  check_defined("squeeze", "x", x);
  return squeeze_mask(x, ~0u);
}
Tensor squeeze(const Tensor& x, const Dims& dims) {
  check_defined("squeeze", "x", x);
  return dims.empty() ? view_as_shape("squeeze", x, x.shape(), x.strides())
                      : squeeze_mask(x, reduce_mask("squeeze", dims, x));
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  check_defined("unsqueeze", "x", x);
  dim = wrap_dim("unsqueeze", dim, x.dim() + 1);
  check(x.dim() < kMaxRank, "[unsqueeze] expected at most {} dimensions, got {}", kMaxRank, x.dim() + 1);
  Shape shape = x.shape(), strides = x.strides();
  strides.insert(dim, dim < x.dim() ? x.strides()[dim] * x.shape()[dim] : 1);
  shape.insert(dim, 1);
  return view_as_shape("unsqueeze", x, shape, strides);
}

Tensor expand(const Tensor& x, const Shape& wanted) {
  check_defined("expand", "x", x);
  check(wanted.size() >= x.dim(),
        "[expand] expected at least as many sizes as dimensions, got {} for a tensor of shape {}", wanted, x.shape());
  Shape shape = wanted;
  Strides strides = Dims::filled(wanted.size(), 0);
  const int64_t lead = wanted.size() - x.dim();
  for (int64_t d = 0; d < wanted.size(); ++d) {
    const int64_t from = d - lead;
    if (shape[d] == -1 && from >= 0) shape[d] = x.shape()[from];
    check(shape[d] >= 0, "[expand] the expanded size {} isn't allowed at dimension {} of {} for a tensor of shape {}",
          shape[d], d, wanted, x.shape());
    if (from < 0) continue;
    check(x.shape()[from] == shape[d] || x.shape()[from] == 1,
          "[expand] the expanded size {} must match the existing size {} at non-singleton dimension {}: {} to {}",
          shape[d], x.shape()[from], d, x.shape(), wanted);
    strides[d] = x.shape()[from] == shape[d] ? x.strides()[from] : 0;
  }
  return viewed("expand", x, shape, strides, [](const Tensor& g) { return Grads{g}; });  // the engine sums
}

Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, std::optional<int64_t> offset) {
  check_defined("as_strided", "x", x);
  check(shape.size() == strides.size(), "[as_strided] expected as many strides as sizes, got {} and {}", shape,
        strides);
  for (int64_t s : shape) check(s >= 0, "[as_strided] expected sizes of at least 0, got {}", shape);
  for (int64_t s : strides) check(s >= 0, "[as_strided] negative strides are not supported, got {}", strides);
  const int64_t from = offset.value_or(x.storage_offset());
  check(from >= 0, "[as_strided] expected a storage offset of at least 0, got {}", from);
  const int64_t end = extent_of(shape, strides, "as_strided").second, size = size_of(x.dtype()),
                held = x.impl().storage->bytes / size;
  check(end == 0 || end <= held - from,
        "[as_strided] setStorage: sizes {}, strides {} and offset {} need {} bytes, out of bounds for storage of "
        "size {}",
        shape, strides, from, (double(from) + double(end)) * double(size), held * size);
  const ViewGeometry geometry{x.shape(), x.strides(), shape, strides, from - x.storage_offset()};
  return record_view("as_strided", alias(x, shape, strides, from), x,
                     [geometry](const Tensor& g) { return Grads{strided_scatter(g, geometry)}; });
}

// ---- in place

/// Gives self the geometry of `like`, a view of it; back: from a gradient of the new shape to one of the old.
template <class F> static Tensor& restride_(const char* name, Tensor& self, const Tensor& like, const F& back) {
  const bool recorded = wants_grad({self});
  if (modes.grad && self.is_leaf() && self.requires_grad()) check_inplace(name, self, recorded);
  Node* node =
      recorded ? NodeBuilder::make<detail::OpNode<F>>(name, {self}, back, Save<>{}, std::span(&self, 1), 1) : nullptr;
  TensorImpl &p = self.impl(), &from = like.impl();
  p.storage->handles.fetch_add(1, std::memory_order_relaxed);  // programs know the old one
  p.sizes = from.sizes, p.strides = from.strides, p.offset = from.offset, p.contiguous = from.contiguous,
  p.numel = from.numel;
  bump_version(self);
  if (node) tie_output(node, self);
  return self;
}
static Tensor without_history(auto&& f) {
  NoGrad guard;
  return f();
}

Tensor& transpose_(Tensor& self, int64_t dim0, int64_t dim1) {
  check_defined("transpose_", "self", self);
  return restride_("transpose_", self, without_history([&] { return transpose(self, dim0, dim1); }),
                   [dim0, dim1](const Tensor& g) { return Grads{transpose(g, dim0, dim1)}; });
}
Tensor& t_(Tensor& self) {
  check_defined("t_", "self", self);
  return restride_("t_", self, without_history([&] { return t(self); }), [](const Tensor& g) { return Grads{t(g)}; });
}
static Tensor& reshape_(const char* name, Tensor& self, const Tensor& like) {
  const Shape from = self.shape();
  return restride_(name, self, like, [from](const Tensor& g) { return Grads{reshape(g, from)}; });
}
Tensor& squeeze_(Tensor& self) {
  check_defined("squeeze_", "self", self);
  return reshape_("squeeze_", self, without_history([&] { return squeeze(self); }));
}
Tensor& squeeze_(Tensor& self, const Dims& dims) {
  check_defined("squeeze_", "self", self);
  return reshape_("squeeze_", self, without_history([&] { return squeeze(self, dims); }));
}
Tensor& unsqueeze_(Tensor& self, int64_t dim) {
  check_defined("unsqueeze_", "self", self);
  return reshape_("unsqueeze_", self, without_history([&] { return unsqueeze(self, dim); }));
}
Tensor& as_strided_(Tensor& self, const Shape& shape, const Strides& strides, std::optional<int64_t> offset) try {
  check_defined("as_strided_", "self", self);
  const Tensor like = without_history([&] { return as_strided(self, shape, strides, offset); });
  const ViewGeometry geometry{self.shape(), self.strides(), shape, strides,
                              like.storage_offset() - self.storage_offset()};
  return restride_("as_strided_", self, like,
                   [geometry](const Tensor& g) { return Grads{strided_scatter(g, geometry)}; });
} catch (...) {
  fail_as("as_strided_");
}

}  // namespace tapir::inline v0
