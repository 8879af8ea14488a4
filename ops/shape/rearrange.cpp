#include "../rearrange.h"

#include <algorithm>

#include "../../autograd/arith.h"
#include "../cast.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../indexing.h"
#include "../scan.h"
#include "../search.h"
#include "../shape.h"
#include "../slicing.h"

namespace tapir::inline v0 {

// ---- views

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  check_defined("movedim", "x", x);
  const int64_t rank = x.dim();
  check(source.size() == destination.size(), "[movedim] expected as many source as destination dims, got {} and {}",
        source, destination);
  Dims order = Dims::filled(rank, -1), moved = Dims::filled(rank, 0);
  for (int64_t i = 0; i < source.size(); ++i) {
    const int64_t from = wrap_dim("movedim", source[i], rank), to = wrap_dim("movedim", destination[i], rank);
    if (rank == 0) continue;
    check(!moved[from], "[movedim] repeated dim in `source` ({})", source);
    check(order[to] < 0, "[movedim] repeated dim in `destination` ({})", destination);
    moved[from] = 1, order[to] = from;
  }
  for (int64_t to = 0, from = 0; to < rank; ++to) {
    if (order[to] >= 0) continue;
    while (moved[from]) ++from;
    order[to] = from++;
  }
  return permute(x, order);
}
Tensor swapaxes(const Tensor& x, int64_t dim0, int64_t dim1) try { return transpose(x, dim0, dim1); } catch (...) {
  fail_as("swapaxes");
}
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1) try { return transpose(x, dim0, dim1); } catch (...) {
  fail_as("swapdims");
}
Tensor& swapaxes_(Tensor& self, int64_t dim0, int64_t dim1) try { return transpose_(self, dim0, dim1); } catch (...) {
  fail_as("swapaxes_");
}
Tensor& swapdims_(Tensor& self, int64_t dim0, int64_t dim1) try { return transpose_(self, dim0, dim1); } catch (...) {
  fail_as("swapdims_");
}

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  check_defined("unflatten", "x", x);
  check(x.dim() > 0 && !sizes.empty(), "[unflatten] expected a dimension and its sizes, got {} and {}", x, sizes);
  dim = wrap_dim("unflatten", dim, x.dim());
  const int64_t n = x.shape()[dim];
  int64_t known = 1;
  const int64_t unknown = std::count(sizes.begin(), sizes.end(), -1);
  bool fits = unknown <= 1;
  for (int64_t s : sizes) fits = fits && s >= -1 && (s == -1 || !__builtin_mul_overflow(known, s, &known));
  Shape inferred = sizes;
  for (int64_t& s : inferred)
    if (s == -1 && known > 0) s = n / known;
  check(fits && (unknown ? known > 0 && n % known == 0 : known == n),
        "[unflatten] provided sizes {} don't multiply up to the size of dim {} ({}) in the input tensor", sizes, dim,
        n);
  Shape shape = x.shape();
  shape.erase(dim);
  for (int64_t i = 0; i < inferred.size(); ++i) shape.insert(dim + i, inferred[i]);
  return view(x, shape);
}
Tensor ravel(const Tensor& x) try { return reshape(x, -1); } catch (...) {
  fail_as("ravel");
}
Tensor view_as(const Tensor& x, const Tensor& other) try { return view(x, other.shape()); } catch (...) {
  fail_as("view_as");
}
Tensor reshape_as(const Tensor& x, const Tensor& other) try { return reshape(x, other.shape()); } catch (...) {
  fail_as("reshape_as");
}
Tensor expand_as(const Tensor& x, const Tensor& other) try { return expand(x, other.shape()); } catch (...) {
  fail_as("expand_as");
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) try { return expand(x, shape); } catch (...) {
  fail_as("broadcast_to");
}
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors) {
  check_defined("broadcast_tensors", "tensors", tensors);
  Shape shape;
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) shape = broadcast_shapes("broadcast_tensors", shape, t.shape());
  for (const Tensor& t : tensors) out.push_back(expand(t, shape));
  return out;
}

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  check_defined("unfold", "x", x);
  dim = wrap_dim("unfold", dim, x.dim());
  const int64_t n = x.dim() ? x.shape()[dim] : 1;
  check(size >= 0 && size <= n, "[unfold] maximum size for tensor at dimension {} is {} but size is {}", dim, n, size);
  check(step > 0, "[unfold] step is {} but must be > 0", step);
  // The same windows over x's strides, and over those of a contiguous tensor, which the gradient is.
  const auto windows = [&](Dims d, int64_t moved, int64_t last) {
    if (d.empty()) return Dims(last);
    return d[dim] = moved, d.push_back(last), d;
  };
  const Shape shape = windows(x.shape(), (n - size) / step + 1, size);
  const auto strides = [&](const Strides& s) { return s.empty() ? Strides(1) : windows(s, s[dim] * step, s[dim]); };
  const Strides dense = contiguous_strides(x.shape());
  const ViewGeometry geometry{x.shape(), dense, shape, strides(dense)};
  return record_view("unfold", alias(x, shape, strides(x.strides()), x.storage_offset()), x,
                     [geometry](const Tensor& g) { return Grads{strided_scatter(g, geometry)}; });
}

Tensor atleast_1d(const Tensor& x) try { return x.dim() > 0 ? x : reshape(x, {1}); } catch (...) {
  fail_as("atleast_1d");
}
Tensor atleast_2d(const Tensor& x) try { return x.dim() > 1 ? x : unsqueeze(atleast_1d(x), 0); } catch (...) {
  fail_as("atleast_2d");
}
Tensor atleast_3d(const Tensor& x) try { return x.dim() > 2 ? x : unsqueeze(atleast_2d(x), -1); } catch (...) {
  fail_as("atleast_3d");
}
static std::vector<Tensor> each(const std::vector<Tensor>& tensors, Tensor (*f)(const Tensor&)) {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(f(t));
  return out;
}
std::vector<Tensor> atleast_1d(const std::vector<Tensor>& tensors) try {
  return each(tensors, atleast_1d);
} catch (...) {
  fail_as("atleast_1d");
}
std::vector<Tensor> atleast_2d(const std::vector<Tensor>& tensors) try {
  return each(tensors, atleast_2d);
} catch (...) {
  fail_as("atleast_2d");
}
std::vector<Tensor> atleast_3d(const std::vector<Tensor>& tensors) try {
  return each(tensors, atleast_3d);
} catch (...) {
  fail_as("atleast_3d");
}

std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim) {
  check_defined("tensor_split", "x", x);
  check(x.dim() > 0, "[tensor_split] expected at least a 1-dimensional tensor, got {}", x);
  std::vector<Tensor> parts;
  std::optional<int64_t> from;
  for (const int64_t i : indices) parts.push_back(slice(x, dim, from, i)), from = i;
  return parts.push_back(slice(x, dim, from)), parts;
}
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim) {
  check_defined("tensor_split", "x", x);
  check(x.dim() > 0, "[tensor_split] expected at least a 1-dimensional tensor, got {}", x);
  check(sections > 0, "[tensor_split] number of sections must be larger than 0, got {}", sections);
  check_parts("tensor_split", sections);
  const int64_t n = x.shape()[wrap_dim("tensor_split", dim, x.dim())];
  std::vector<int64_t> ends;
  for (int64_t i = 1, at = 0; i < sections; ++i) ends.push_back(at += n / sections + (i <= n % sections));
  return tensor_split(x, ends, dim);
}
template <class S>
static std::vector<Tensor> split_along(const char* op, const Tensor& x, int64_t dim, const S& parts) {
  check(x.dim() > dim, "[{}] expected a tensor with at least {} dimensions, got {}", op, dim + 1, x);
  if constexpr (std::same_as<S, int64_t>)
    check(parts > 0 && x.shape()[dim] % parts == 0,
          "[{}] attempted to split along dimension {}, but its size {} is not divisible by the split_size {}", op, dim,
          x.shape()[dim], parts);
  return tensor_split(x, parts, dim);
}
static int64_t across(const Tensor& x) { return x.dim() == 1 ? 0 : 1; }
std::vector<Tensor> hsplit(const Tensor& x, int64_t n) try {
  return split_along("hsplit", x, across(x), n);
} catch (...) {
  fail_as("hsplit");
}
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& i) try {
  return split_along("hsplit", x, across(x), i);
} catch (...) {
  fail_as("hsplit");
}
std::vector<Tensor> vsplit(const Tensor& x, int64_t n) try {
  return split_along("vsplit", atleast_2d(x), 0, n);
} catch (...) {
  fail_as("vsplit");
}
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& i) try {
  return split_along("vsplit", atleast_2d(x), 0, i);
} catch (...) {
  fail_as("vsplit");
}
std::vector<Tensor> dsplit(const Tensor& x, int64_t n) try { return split_along("dsplit", x, 2, n); } catch (...) {
  fail_as("dsplit");
}
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& i) try {
  return split_along("dsplit", x, 2, i);
} catch (...) {
  fail_as("dsplit");
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing) {
  check_defined("meshgrid", "tensors", tensors);
  check(!tensors.empty(), "[meshgrid] expects a non-empty list of Tensors");
  check(indexing == "ij" || indexing == "xy", "[meshgrid] indexing must be one of \"xy\" or \"ij\", got {}", indexing);
  const int64_t rank = int64_t(tensors.size());
  Shape shape;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    check(t.dim() <= 1, "[meshgrid] expected scalars or vectors, got {} at position {}", t, int64_t(i));
    check(t.dtype() == tensors[0].dtype() && t.device() == tensors[0].device(),
          "[meshgrid] expects all tensors to have the same dtype and device, got {} and {}", tensors[0], t);
    shape.push_back(t.numel());
  }
  const bool swapped = indexing == "xy" && rank > 1;
  if (swapped) std::swap(shape[0], shape[1]);
  std::vector<Tensor> out;
  for (int64_t i = 0; i < rank; ++i) {
    Shape one = Dims::filled(rank, 1);
    one[swapped && i < 2 ? 1 - i : i] = tensors[size_t(i)].numel();
    out.push_back(expand(reshape(tensors[size_t(i)], one), shape));
  }
  return out;
}

// ---- copies

Tensor flip(const Tensor& x, const Dims& dims) {
  check_defined("flip", "x", x);
  const uint32_t mask = dims.empty() ? 0 : reduce_mask("flip", dims, x);
  Strides strides = x.strides();
  int64_t at = x.storage_offset();
  for (int64_t d = 0; d < x.dim(); ++d)
    if (mask >> d & 1 && x.numel()) at += (x.shape()[d] - 1) * strides[d], strides[d] = -strides[d];
  const Tensor y = empty_pointwise(x.shape(), x.dtype(), x.device(), {&x});
  TensorView from(x);
  from.data = static_cast<char*>(from.data) + (at - x.storage_offset()) * size_of(x.dtype());
  std::copy(strides.begin(), strides.end(), from.strides);
  backend(x).copy(context(x), {y, from});
  return record("flip", y, {x}, [dims](const Tensor& g) { return Grads{flip(g, dims)}; });
}
Tensor fliplr(const Tensor& x) try {
  check_defined("fliplr", "x", x);
  check(x.dim() >= 2, "[fliplr] expected a tensor with at least 2 dimensions, got {}", x);
  return flip(x, 1);
} catch (...) {
  fail_as("fliplr");
}
Tensor flipud(const Tensor& x) try {
  check_defined("flipud", "x", x);
  check(x.dim() >= 1, "[flipud] expected a tensor with at least 1 dimension, got {}", x);
  return flip(x, 0);
} catch (...) {
  fail_as("flipud");
}

/// Copies x into y (which has no history), moved along dims[d] and those after it: block by block.
static void copy_rolled(const Tensor& y, const Tensor& x, const Dims& shifts, const Dims& dims, int64_t d) {
  if (d == dims.size()) return backend(x).copy(context(x), {y, x});
  const int64_t dim = dims[d], n = x.shape()[dim], shift = (shifts[d] % n + n) % n;
  const auto part = [&](const Tensor& t, int64_t start, int64_t count) {
    Shape shape = t.shape();
    shape[dim] = count;
    return alias(t, shape, t.strides(), t.storage_offset() + start * t.strides()[dim]);
  };
  copy_rolled(part(y, shift, n - shift), part(x, 0, n - shift), shifts, dims, d + 1);
  if (shift) copy_rolled(part(y, 0, shift), part(x, n - shift, shift), shifts, dims, d + 1);
}
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  check_defined("roll", "x", x);
  check(!shifts.empty(), "[roll] `shifts` required");
  if (dims.empty() && shifts.size() == 1) return reshape(roll(ravel(x), shifts, 0), x.shape());
  check(shifts.size() == dims.size(), "[roll] shifts and dimensions must align: got {} and {}", shifts, dims);
  Dims wrapped, back;
  for (int64_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = wrap_dim("roll", dims[i], x.dim());
    check(x.dim() > 0, "[roll] expected a tensor with dimensions {}, got {}", dims, x);
    // A dimension given twice moves twice.
    const int64_t* known = std::find(wrapped.begin(), wrapped.end(), dim);
    const int64_t n = std::max<int64_t>(x.shape()[dim], 1), shift = shifts[i] % n;
    if (known == wrapped.end()) wrapped.push_back(dim), back.push_back(-shift);
    else back[known - wrapped.begin()] = (back[known - wrapped.begin()] - shift) % n;
  }
  Dims forward = back;
  for (int64_t& s : forward) s = -s;
  const Tensor y = empty_pointwise(x.shape(), x.dtype(), x.device(), {&x});
  if (x.numel()) copy_rolled(y, x, forward, wrapped, 0);
  return record("roll", y, {x}, [back, wrapped](const Tensor& g) { return Grads{roll(g, back, wrapped)}; });
}

Tensor rot90(const Tensor& x, int64_t k, const Dims& dims) try {
  check_defined("rot90", "x", x);
  check(dims.size() == 2, "[rot90] expected two dims to rotate in, got {}", dims);
  check(x.dim() >= 2, "[rot90] expected total dims >= 2, got {}", x);
  const int64_t a = wrap_dim("rot90", dims[0], x.dim()), b = wrap_dim("rot90", dims[1], x.dim());
  check(a != b, "[rot90] expected rotation dims to be different, got {}", dims);
  switch ((k % 4 + 4) % 4) {
    case 0: return clone(x);
    case 1: return flip(transpose(x, a, b), a);
    case 2: return flip(x, {a, b});
    default: return flip(transpose(x, a, b), b);
  }
} catch (...) {
  fail_as("rot90");
}

/// A copy of x with dimension d repeated counts[d] times: what repeats is expanded before its dimension.
static Tensor repeated(const Tensor& x, const Dims& counts) {
  Shape joined = x.shape();
  const int64_t many = std::count_if(counts.begin(), counts.end(), [](int64_t n) { return n != 1; });
  if (x.dim() + many > kMaxRank) {  // one after the other, beside folded neighbours
    Tensor y = x;
    for (int64_t d = 0; d < x.dim(); ++d) {
      if (counts[d] == 1) continue;
      int64_t before = 1, behind = 1;
      for (int64_t k = 0; k < x.dim(); ++k) (k < d ? before : behind) *= joined[k];
      joined[d] *= counts[d];
      y = reshape(expand(reshape(y, {before, 1, behind}), {before, counts[d], behind}), joined);
    }
    return y;
  }
  Shape split, wide;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (counts[d] != 1) split.push_back(1), wide.push_back(counts[d]), joined[d] *= counts[d];
    split.push_back(x.shape()[d]), wide.push_back(x.shape()[d]);
  }
  return view(clone(expand(reshape(x, split), wide), kContiguous), joined);
}
Tensor repeat(const Tensor& x, const Dims& counts) {
  check_defined("repeat", "x", x);
  check(counts.size() >= x.dim(),
        "[repeat] number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: got {} "
        "for {}",
        counts, x);
  Shape shape = x.shape();
  while (shape.size() < counts.size()) shape.insert(0, 1);
  int64_t total = 1;  // sizes of 0 left out: each product of some of them fits then too
  for (int64_t d = 0; d < counts.size(); ++d) {
    check(counts[d] >= 0, "[repeat] trying to create tensor with negative dimension: counts {}", counts);
    const bool overflow = __builtin_mul_overflow(total, std::max<int64_t>(counts[d], 1), &total) ||
                          __builtin_mul_overflow(total, std::max<int64_t>(shape[d], 1), &total);
    check(!overflow, "[repeat] the size of {} repeated {} times overflows", x.shape(), counts);
  }
  const bool same = std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n == 1; });
  const Tensor lead = reshape(x, shape);
  return same ? clone(lead, kContiguous) : repeated(lead, counts);
}
Tensor tile(const Tensor& x, const Dims& given) try {
  check_defined("tile", "x", x);
  Dims counts = given;
  while (counts.size() < x.dim()) counts.insert(0, 1);
  return repeat(x, counts);
} catch (...) {
  fail_as("tile");
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> given) try {
  check(repeats >= 0, "[repeat_interleave] repeats must be non-negative, got {}", repeats);
  if (!given) return repeat_interleave(ravel(x), repeats, 0);
  if (x.dim() == 0) return repeat_interleave(reshape(x, {1}), repeats, wrap_dim("repeat_interleave", *given, 0));
  const int64_t dim = wrap_dim("repeat_interleave", *given, x.dim());
  if (repeats == 1) return clone(x, kContiguous);
  Shape joined = x.shape();
  check(!__builtin_mul_overflow(joined[dim], repeats, &joined[dim]), "[repeat_interleave] {} repeats of {} overflow",
        repeats, x.shape());
  // Folding what stands before and behind leaves room for one more dimension at any rank.
  int64_t before = 1, behind = 1;
  for (int64_t d = 0; d < x.dim(); ++d) (d < dim ? before : behind) *= d == dim ? 1 : x.shape()[d];
  const int64_t n = x.shape()[dim];
  const Tensor wide = expand(reshape(x, {before, n, 1, behind}), {before, n, repeats, behind});
  return view(clone(wide, kContiguous), joined);
} catch (...) {
  fail_as("repeat_interleave");
}
Tensor repeat_interleave(const Tensor& repeats) try {
  check(repeats.dim() == 1, "[repeat_interleave] only accept 1D vector as repeat, got {}", repeats);
  check(repeats.dtype() == kInt64 || repeats.dtype() == kInt32,
        "[repeat_interleave] repeats has to be Long or Int tensor, got {}", repeats);
  NoGrad guard;
  if (repeats.numel() == 0) return empty(0, {.dtype = kInt64, .device = repeats.device()});
  const int64_t least = min(repeats).item<int64_t>();
  check(least >= 0, "[repeat_interleave] repeats can not be negative, got {}", least);
  const int64_t most = max(repeats).item<int64_t>();
  int64_t bound;
  check(!__builtin_mul_overflow(most, repeats.numel(), &bound),
        "[repeat_interleave] repeats of up to {} overflow in {}", most, repeats);
  const Tensor ends = cumsum(repeats, 0);
  return searchsorted(ends, arange(0, select(ends, 0, -1).item<int64_t>(), 1, {.device = repeats.device()}),
                      {.right = true});
} catch (...) {
  fail_as("repeat_interleave");
}
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> given) try {
  check(repeats.dim() <= 1, "[repeat_interleave] repeats must be 0-dim or 1-dim tensor, got {}", repeats);
  if (!given) return repeat_interleave(ravel(x), repeats, 0);
  const Tensor from = atleast_1d(x);
  const int64_t dim = wrap_dim("repeat_interleave", *given, from.dim()), n = from.shape()[dim];
  check(repeats.numel() == 1 || repeats.numel() == n,
        "[repeat_interleave] repeats must have the same size as input along dim {} ({}), got {}", dim, n, repeats);
  return index_select(from, dim, repeat_interleave(expand(atleast_1d(repeats), {n})));
} catch (...) {
  fail_as("repeat_interleave");
}

Tensor vstack(const std::vector<Tensor>& tensors) try { return cat(atleast_2d(tensors), 0); } catch (...) {
  fail_as("vstack");
}
Tensor hstack(const std::vector<Tensor>& tensors) try {
  check(!tensors.empty(), "[hstack] expects a non-empty list of Tensors");
  const std::vector<Tensor> parts = atleast_1d(tensors);
  return cat(parts, parts[0].dim() == 1 ? 0 : 1);
} catch (...) {
  fail_as("hstack");
}
Tensor dstack(const std::vector<Tensor>& tensors) try { return cat(atleast_3d(tensors), 2); } catch (...) {
  fail_as("dstack");
}
Tensor column_stack(const std::vector<Tensor>& tensors) try {
  return hstack(each(tensors, [](const Tensor& t) { return t.dim() > 1 ? t : reshape(t, {t.numel(), 1}); }));
} catch (...) {
  fail_as("column_stack");
}
Tensor cartesian_prod(const std::vector<Tensor>& tensors) try {
  check(!tensors.empty(), "[cartesian_prod] expects a non-empty list of Tensors");
  for (const Tensor& t : tensors) check(t.dim() == 1, "[cartesian_prod] expected vectors, got {}", t);
  if (tensors.size() == 1) return tensors[0];
  return stack(each(meshgrid(tensors), ravel), 1);
} catch (...) {
  fail_as("cartesian_prod");
}

/// y, a fresh copy, with `source` in the part of it.
static Tensor with_part(const char* op, const Tensor& y, Tensor part, const Tensor& source) {
  check(source.shape() == part.shape(),
        "[{}] expected src to have a size equal to the slice of self. src size = {}, "
        "slice size = {}",
        op, source.shape(), part.shape());
  return copy_(part, source), y;
}
Tensor select_scatter(const Tensor& x, const Tensor& source, int64_t dim, int64_t index) try {
  const Tensor y = clone(x);
  return with_part("select_scatter", y, select(y, dim, index), source);
} catch (...) {
  fail_as("select_scatter");
}
Tensor slice_scatter(const Tensor& x, const Tensor& source, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step) try {
  const Tensor y = clone(x);
  return with_part("slice_scatter", y, slice(y, dim, start, end, step), source);
} catch (...) {
  fail_as("slice_scatter");
}

}  // namespace tapir::inline v0
