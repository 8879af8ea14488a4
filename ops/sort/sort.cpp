#include "../sort.h"

#include <cmath>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../bitwise.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../indexing.h"
#include "../pointwise.h"
#include "../rearrange.h"
#include "../reduce/reduce_front.h"
#include "../scan.h"
#include "../search.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {

/// What the kernel gives, with extent `count` along dim.
static std::pair<Tensor, Tensor> run_sort(const Tensor& x, int64_t count, const SortParams& p, bool with_values) {
  Shape shape = x.shape();
  if (x.dim()) shape[p.dim] = count;
  Tensor values = with_values ? empty(shape, {.dtype = x.dtype(), .device = x.device()}) : Tensor(),
         indices = empty(shape, {.dtype = kInt64, .device = x.device()});
  backend(x).sort(context(x), {values, indices, x, p});
  return {values, indices};
}

/// Several elements of each line; their gradients go back to where they were.
static std::pair<Tensor, Tensor> sorted(const char* name, const Tensor& x, int64_t count, const SortParams& p) {
  auto [values, indices] = run_sort(x, count, p, true);
  const Shape shape = x.shape();
  values = record(name, values, {x}, save(indices), [shape, dim = p.dim](const Tensor& g, const Tensor& indices) {
    return Grads{scatter_add(zeros(shape, {.dtype = g.dtype(), .device = g.device()}), dim, indices, g)};
  });
  return {values, indices};
}

static int64_t extent(const Tensor& x, int64_t dim) { return x.dim() ? x.shape()[dim] : 1; }

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, const SortOptions& o) {
  check_defined("sort", "x", x);
  dim = wrap_dim("sort", dim, x.dim());
  return sorted("sort", x, extent(x, dim), {SortOp::Sort, dim, 0, o.descending});
}
Tensor argsort(const Tensor& x, int64_t dim, const SortOptions& o) {
  check_defined("argsort", "x", x);
  dim = wrap_dim("argsort", dim, x.dim());
  return run_sort(x, extent(x, dim), {SortOp::Sort, dim, 0, o.descending}, false).second;
}
Tensor msort(const Tensor& x) {
  check_defined("msort", "x", x);
  return sort(x, 0).first;
}

std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, const TopkOptions& o) {
  check_defined("topk", "x", x);
  dim = wrap_dim("topk", dim, x.dim());
  const int64_t n = extent(x, dim);
  check(k >= 0 && k <= n,
        "[topk] selected index k out of range: expected k in [0, {}], the extent of dimension {}, got {}", n, dim, k);
  return sorted("topk", x, k, {SortOp::TopK, dim, x.dim() ? k : 1, o.largest});
}

/// One element of each line.
static std::pair<Tensor, Tensor> chosen(const char* name, const Tensor& x, const SortParams& p, bool keepdim) {
  const uint32_t mask = x.dim() ? 1u << p.dim : 0;
  check_not_empty(name, x, mask);
  const Tensor at = run_sort(x, 1, p, false).second, values = gather(x, p.dim, at);
  if (keepdim || x.dim() == 0) return {values, at};
  return {squeeze(values, p.dim), drop_reduced(at, mask, false)};
}
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, const KeepdimOptions& o) {
  check_defined("kthvalue", "x", x);
  dim = wrap_dim("kthvalue", dim, x.dim());
  const int64_t n = extent(x, dim);
  check(k >= 1 && k <= n, "[kthvalue] selected number k out of range for dimension {}: expected k in [1, {}], got {}",
        dim, n, k);
  return chosen("kthvalue", x, {SortOp::Kth, dim, k - 1}, o.keepdim);
}
std::pair<Tensor, Tensor> median(const Tensor& x, int64_t dim, const KeepdimOptions& o) {
  check_defined("median", "x", x);
  return chosen("median", x, {SortOp::Median, wrap_dim("median", dim, x.dim())}, o.keepdim);
}
std::pair<Tensor, Tensor> nanmedian(const Tensor& x, int64_t dim, const KeepdimOptions& o) {
  check_defined("nanmedian", "x", x);
  return chosen("nanmedian", x, {SortOp::NanMedian, wrap_dim("nanmedian", dim, x.dim())}, o.keepdim);
}

static Tensor median_of_all(const char* name, SortOp op, const Tensor& x) {
  check_defined(name, "x", x);
  if (x.numel() == 0) {
    check(is_floating(x.dtype()), "[{}] expected a floating-point tensor where there are no elements, got {}", name, x);
    return full({}, NAN, {.dtype = x.dtype(), .device = x.device()});
  }
  const Tensor flat = reshape(x.detach(), -1);
  const Tensor y = alias(run_sort(flat, 1, {op}, true).first, {}, {}, 0);
  return record(name, y, {x}, save(x, y), [](const Tensor& g, const Tensor& x, const Tensor& y) {
    return Grads{share_among_ties(g, x, y, (1u << x.dim()) - 1, false)};
  });
}
Tensor median(const Tensor& x) { return median_of_all("median", SortOp::Median, x); }
Tensor nanmedian(const Tensor& x) { return median_of_all("nanmedian", SortOp::NanMedian, x); }

std::pair<Tensor, Tensor> mode(const Tensor& x, int64_t dim, const KeepdimOptions& o) {
  check_defined("mode", "x", x);
  dim = wrap_dim("mode", dim, x.dim());
  if (x.dim() == 0) return {clone(x), zeros({}, {.dtype = kInt64, .device = x.device()})};
  check_not_empty("mode", x, 1u << dim);
  const auto [values, order] =
      run_sort(movedim(x.detach(), dim, -1), extent(x, dim), {SortOp::Sort, x.dim() - 1}, true);
  const Tensor first = searchsorted(values, values), count = sub(searchsorted(values, values, {.right = true}), first);
  const Tensor best = argmax(count, -1, {.keepdim = true});
  const Tensor last = sub(add(gather(first, -1, best), gather(count, -1, best)), 1);
  const Tensor at = movedim(gather(order, -1, maximum(last, 0)), -1, dim), y = gather(x, dim, at);
  return o.keepdim ? std::pair(y, at) : std::pair(squeeze(y, dim), drop_reduced(at, 1u << dim, false));
}

/// Between which elements of sorted lanes (..., n) the quantiles q (Q) lie: (..., Q) float64.
static Tensor ranks_of(const Tensor& sorted, const Tensor& q, bool skip_nan) {
  const int64_t n = sorted.shape().back();
  const Tensor missing = isnan(sorted.detach());
  if (skip_nan) return mul(q, to(clamp_min(sub(n - 1, sum(missing, -1, {.keepdim = true})), 0), kFloat64));
  return where(narrow(missing, -1, n - 1, 1), double(n - 1), mul(q, double(n - 1)));
}

static Tensor quantile(const char* op, const Tensor& x, const Operand& given, std::optional<int64_t> dim,
                       const QuantileOptions& o, bool skip_nan) {
  check(x.dtype() == kFloat32 || x.dtype() == kFloat64,
        "[{}] input tensor must be either float or double dtype, got {}", op, x);
  const Tensor q =
      to(given.is_tensor() ? given.tensor()
                           : full({}, given.scalar().to_double(), {.dtype = kFloat64, .device = x.device()}),
         kFloat64);
  check(q.dim() <= 1, "[{}] q must be a scalar or 1D tensor, got {}", op, q);
  check(all(logical_and(ge(q, 0), le(q, 1))).item<bool>(), "[{}] q values must be in the range [0, 1], got {}", op, q);
  const int64_t axis = dim ? wrap_dim(op, *dim, x.dim()) : 0;
  const Tensor lanes = !dim || x.dim() == 0 ? reshape(x, -1) : movedim(x, axis, -1);
  check(lanes.shape().back() > 0, "[{}] input tensor must be non-empty, got {}", op, x);
  const Tensor sorted = sort(lanes).first, ranks = ranks_of(sorted, reshape(q, -1), skip_nan);
  const auto at = [&](const Tensor& rank) { return gather(sorted, -1, to(rank.detach(), kInt64)); };
  const Tensor low = floor(ranks);
  Tensor y;
  if (o.interpolation == "lower") y = at(low);
  else if (o.interpolation == "higher") y = at(ceil(ranks));
  else if (o.interpolation == "nearest") y = at(round(ranks));
  else {
    check(o.interpolation == "linear" || o.interpolation == "midpoint",
          "[{}] interpolation must be one of linear, lower, higher, midpoint or nearest, but got {}", op,
          o.interpolation);
    const Tensor high = ceil(ranks);
    y = o.interpolation == "linear" ? lerp(at(low), at(high), to(sub(ranks, low), x.dtype()))
                                    : lerp(at(low), at(high), 0.5);
  }
  y = q.dim() ? movedim(y, -1, 0) : squeeze(y, -1);
  if (!o.keepdim || x.dim() == 0) return y;
  if (dim) return unsqueeze(y, axis + q.dim());
  Shape ones = Dims::filled(x.dim(), 1);
  if (q.dim()) ones.insert(0, q.numel());
  return reshape(y, ones);
}
Tensor quantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim, const QuantileOptions& o) {
  check_defined("quantile", "x", x, "q", q);
  TAPIR_AUTOCAST(quantile, x, q, dim, o);
  return quantile("quantile", x, q, dim, o, false);
}
Tensor nanquantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim, const QuantileOptions& o) {
  check_defined("nanquantile", "x", x, "q", q);
  TAPIR_AUTOCAST(nanquantile, x, q, dim, o);
  return quantile("nanquantile", x, q, dim, o, true);
}

// ---- unique

/// 1 where a row of (n, width) differs from the one before it, and for the first row: (n) int64.
static Tensor starts_of_runs(const Tensor& rows) {
  const int64_t n = rows.shape()[0];
  Tensor starts = ones(n, {.dtype = kInt64, .device = rows.device()});
  if (n < 2) return starts;
  const Tensor differ = ne(narrow(rows, 0, 1, n - 1), narrow(rows, 0, 0, n - 1));
  backend(rows).copy(context(rows), {narrow(starts, 0, 1, n - 1), any(differ, 1)});
  return starts;
}

/// The order in which the rows of (n, width) are sorted: by their last column first, each sort being stable.
static Tensor order_of_rows(const Tensor& rows) {
  Tensor order = arange(0, rows.shape()[0], 1, {.device = rows.device()});
  for (int64_t c = rows.shape()[1]; c-- > 0;)
    order = index_select(order, 0, argsort(index_select(select(rows, 1, c), 0, order), 0));
  return order;
}

/// x's slices along dim as rows (n, width); without a dim its elements are the slices.
static Tensor as_rows(const char* name, const Tensor& x, std::optional<int64_t>& dim) {
  if (!dim) return reshape(x, {x.numel(), 1});
  dim = wrap_dim(name, *dim, x.dim());
  if (x.dim() == 0) return reshape(x, {1, 1});
  const int64_t n = x.shape()[*dim];
  check(n == 0 || x.numel() > 0, "[{}] expected no extent of 0 beside dimension {}, got shape {}", name, *dim,
        x.shape());
  return reshape(movedim(x, *dim, 0), {n, n ? x.numel() / n : 1});
}

static Unique unique(const char* name, const Tensor& given, UniqueOptions o, bool in_order) {
  NoGrad guard;
  const Tensor x = given.detach(), rows = as_rows(name, x, o.dim);
  const int64_t n = rows.shape()[0];
  Tensor order, starts;
  if (in_order) starts = starts_of_runs(rows);
  else {
    order = rows.shape()[1] == 1 ? argsort(select(rows, 1, 0), 0) : order_of_rows(rows);
    starts = starts_of_runs(index_select(rows, 0, order));
  }
  const Tensor first = flatten(nonzero(starts));  // where the runs begin
  Unique out;
  const Tensor at = in_order ? first : index_select(order, 0, first);
  out.values = o.dim && x.dim() ? index_select(x, *o.dim, at) : index_select(reshape(x, -1), 0, at);
  if (o.return_inverse) {
    const Tensor run = sub(cumsum(starts, 0), 1);
    out.inverse = in_order ? run : index_put(run, {order}, run);
    if (!o.dim || x.dim() == 0) out.inverse = reshape(out.inverse, x.shape());
  }
  if (o.return_counts)
    out.counts = sub(cat({narrow(first, 0, std::min<int64_t>(1, n), std::max<int64_t>(0, first.numel() - 1)),
                          full(std::min<int64_t>(1, n), n, {.device = x.device()})}),
                     first);
  return out;
}
Unique unique(const Tensor& x, const UniqueOptions& o) {
  check_defined("unique", "x", x);
  return unique("unique", x, o, false);
}
Unique unique_consecutive(const Tensor& x, const UniqueOptions& o) {
  check_defined("unique_consecutive", "x", x);
  return unique("unique_consecutive", x, o, true);
}

}  // namespace tapir::inline v0
