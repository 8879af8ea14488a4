#include "../extremum.h"

#include "../arithmetic.h"
#include "../cast.h"
#include "../compare.h"
#include "../front.h"
#include "../indexing.h"
#include "../pointwise.h"
#include "../shape.h"
#include "../ternary.h"
#include "reduce_front.h"

namespace tapir::inline v0 {

void check_not_empty(const char* op, const Tensor& x, uint32_t mask) {
  for (int64_t d = 0; d < x.dim(); ++d)
    if (mask >> d & 1)
      check(x.shape()[d] != 0, "[{}] expected reduction dim {} to have non-zero size, got shape {}", op, d, x.shape());
}

Tensor share_among_ties(const Tensor& g, const Tensor& x, const Tensor& y, uint32_t mask, bool keepdim) {
  const Shape shape = x.shape();
  const Tensor ties = eq(x, expand_reduced(y, shape, mask, keepdim));
  const Tensor count = sum(ties, mask_dims(mask), {.keepdim = keepdim});
  const Tensor share =
      to(div(to(g, compute_type(g.dtype())), count), g.dtype());  // a count may be beyond 16-bit floats
  return where(ties, expand_reduced(share, shape, mask, keepdim), 0);
}

static Tensor extremum(const char* name, ReduceOp op, const Tensor& x, const Dims& dims, bool keepdim) {
  const uint32_t mask = reduce_mask(name, dims, x);
  check(x.numel() != 0 || !dims.empty(),
        "[{}] expected reduction dim to be specified for input.numel() == 0, got shape {}", name, x.shape());
  check_not_empty(name, x, mask);
  const Tensor y = drop_reduced(run_reduce(x, {op, mask}, x.dtype()), mask, keepdim);
  return record(name, y, {x}, save(x, y), [mask, keepdim](const Tensor& g, const Tensor& x, const Tensor& y) {
    return Grads{share_among_ties(g, x, y, mask, keepdim)};
  });
}
Tensor amax(const Tensor& x, const Dims& dims, const KeepdimOptions& o) {
  return extremum("amax", ReduceOp::Max, x, dims, o.keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, const KeepdimOptions& o) {
  return extremum("amin", ReduceOp::Min, x, dims, o.keepdim);
}
std::pair<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, const KeepdimOptions& o) {
  const Dims dims = dim ? Dims(*dim) : Dims();
  return {extremum("aminmax", ReduceOp::Min, x, dims, o.keepdim),
          extremum("aminmax", ReduceOp::Max, x, dims, o.keepdim)};
}
Tensor max(const Tensor& x) try { return extremum("max", ReduceOp::Max, x, {}, false); } catch (...) {
  fail_as("max");
}
Tensor min(const Tensor& x) try { return extremum("min", ReduceOp::Min, x, {}, false); } catch (...) {
  fail_as("min");
}

static Tensor position(const char* name, ArgReduceOp op, const Tensor& x, int64_t dim, bool keepdim) {
  const uint32_t mask = x.dim() == 0 ? 0 : 1u << dim;
  check_not_empty(name, x, mask);
  Shape kept = x.shape();
  if (mask) kept[dim] = 1;
  Tensor y = empty(kept, {.dtype = kInt64, .device = x.device()});
  backend(x).arg_reduce(context(x), {y, x, {op, dim}});
  profiler::note_operation(name);
  return drop_reduced(y, mask, keepdim);
}
static Tensor position(const char* name, ArgReduceOp op, const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  if (dim) return position(name, op, x, wrap_dim(name, *dim, x.dim()), keepdim);
  check(x.numel() != 0, "[{}] expected reduction dim to be specified for input.numel() == 0, got shape {}", name,
        x.shape());
  const Tensor y = position(name, op, reshape(x.detach(), -1), 0, true);
  const Shape shape = Dims::filled(keepdim ? x.dim() : 0, 1);
  return alias(y, shape, contiguous_strides(shape), 0);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, const KeepdimOptions& o) {
  check_defined("argmax", "x", x);
  return position("argmax", ArgReduceOp::ArgMax, x, dim, o.keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, const KeepdimOptions& o) {
  check_defined("argmin", "x", x);
  return position("argmin", ArgReduceOp::ArgMin, x, dim, o.keepdim);
}

static std::pair<Tensor, Tensor> chosen(const char* name, ArgReduceOp op, const Tensor& x, int64_t dim, bool keepdim) {
  dim = wrap_dim(name, dim, x.dim());
  const Tensor at = position(name, op, x, dim, true), values = gather(x, dim, at);
  if (keepdim || x.dim() == 0) return {values, at};
  return {squeeze(values, dim), drop_reduced(at, 1u << dim, false)};
}
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, const KeepdimOptions& o) try {
  return chosen("max", ArgReduceOp::ArgMax, x, dim, o.keepdim);
} catch (...) {
  fail_as("max");
}
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, const KeepdimOptions& o) try {
  return chosen("min", ArgReduceOp::ArgMin, x, dim, o.keepdim);
} catch (...) {
  fail_as("min");
}

Tensor max(const Tensor& a, const Tensor& b) try { return maximum(a, b); } catch (...) {
  fail_as("max");
}
Tensor min(const Tensor& a, const Tensor& b) try { return minimum(a, b); } catch (...) {
  fail_as("min");
}

}  // namespace tapir::inline v0
