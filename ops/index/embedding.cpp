#include "../embedding.h"

#include <cmath>

#include "../arithmetic.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../indexing.h"
#include "../reduce/reduce_front.h"
#include "../scan.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"

namespace tapir::inline v0 {

/// index != value, as a number for each row.
static Tensor differs(const Tensor& index, int64_t value) {
  return unsqueeze(Pointwise("ne", index, value).run(BinaryOp::Ne, 1, kBool), -1);
}

/// What is special about the gradient of rows: the row that gets none (none: -1), and division by how often a row occurs.
struct RowGradient {
  int64_t padding = -1;
  bool by_count = false;
};
static Tensor take_rows(const char* op, const Tensor& weight, const Tensor& index, RowGradient how);

/// Zeros of (rows, D) with the rows of g added where index says; the row `padding` stays zero.
static Tensor add_rows(const Tensor& g, const Tensor& index, int64_t rows, int64_t padding) {
  Tensor y = zeros({rows, g.shape().back()}, {.dtype = g.dtype(), .device = g.device()});
  backend(g).index_put(context(g), {y, g, {index}, {.accumulate = true}});
  if (padding >= 0) backend(g).fill(context(g), {alias(y, y.shape()[1], 1, padding * y.shape()[1]), 0});
  return record("embedding_backward", y, {g}, save(index), [padding](const Tensor& u, const Tensor& index) {
    const Tensor taken = take_rows("embedding", u, index, {});
    return Grads{padding < 0 ? taken : mul(taken, differs(index, padding))};
  });
}

/// How often the row of each index occurs in index: (..., 1), in the dtype that `like` is computed in.
static Tensor count_rows(const Tensor& index, int64_t rows, const Tensor& like) {
  NoGrad guard;
  const DType dtype = compute_type(like.dtype());  // 16 bits hold no large counts
  Tensor counts = zeros(rows, {.dtype = dtype, .device = like.device()}),
         own = empty(index.shape(), {.dtype = dtype, .device = like.device()});
  backend(like).index_put(context(like), {counts, TensorView(1, dtype), {index}, {.accumulate = true}});
  backend(like).index(context(like), {own, counts, {index}, {}});
  return unsqueeze(own, -1);
}

/// (..., D)
static Tensor take_rows(const char* op, const Tensor& weight, const Tensor& index, RowGradient how) {
  Shape shape = index.shape();
  shape.push_back(weight.shape()[1]);
  Tensor y = empty(shape, {.dtype = weight.dtype(), .device = weight.device()});
  Context& ctx = context(weight);
  backend(weight).index(ctx, {y, weight, {index}, {.wrap = false}});
  if (ctx.error.set) [[unlikely]]
    fail_values(ctx.error,
                tapir::format("[{}] index {value} at position {position} is out of range for {bound} rows", op));
  const int64_t rows = weight.shape()[0];
  return record(op, y, {weight}, save(index), [rows, how](const Tensor& g, const Tensor& index) {
    if (!how.by_count) return Grads{add_rows(g, index, rows, how.padding)};
    const Tensor counts = count_rows(index, rows, g);
    return Grads{add_rows(to(div(to(g, counts.dtype()), counts), g.dtype()), index, rows, how.padding)};
  });
}

/// Rows that index names are scaled in place to a norm of at most max_norm.
static void limit_rows(const Tensor& weight, const Tensor& index, double max_norm, double norm_type) {
  check(max_norm >= 0, "[embedding] expected max_norm of at least 0, got {}", max_norm);
  check(!(weight.requires_grad() && !weight.is_leaf()),
        "[embedding] expected a weight that is a leaf where max_norm is given, got a result of {}", weight.grad_fn());
  check_writable("embedding", weight);
  NoGrad guard;
  const Tensor places = flatten(index), rows = take_rows("embedding", weight.detach(), places, {});
  const Tensor norms = run_reduce(rows, {.op = ReduceOp::NormP, .dims = 2, .p = norm_type}, rows.dtype());
  const Tensor over = Pointwise("gt", norms, max_norm).run(BinaryOp::Gt, 1, kBool);
  Tensor factor = empty_like(norms);
  backend(weight).ternary(
      context(weight),
      {factor, over, div(max_norm, add(norms, 1e-7)), TensorView(1, norms.dtype()), {TernaryOp::Where}});
  const Tensor scaled = mul(rows, factor);
  backend(weight).index_put(context(weight), {weight, scaled, {places}, {}});
  bump_version(weight);
}

/// Checks the operands; the row of padding_idx, -1 for none.
static int64_t padding_row(const char* op, const Tensor& index, const Tensor& weight, std::optional<int64_t> padding) {
  common_device(op, {&index, &weight});
  check(weight.dim() == 2, "[{}] expected a weight of shape (rows, D), got {}", op, weight);
  check(is_integral(index.dtype()), "[{}] expected indices of an integer dtype, got {}", op, index);
  if (!padding) return -1;
  const int64_t rows = weight.shape()[0], at = *padding < 0 ? *padding + rows : *padding;
  check(at >= 0 && at < rows, "[{}] padding_idx must be within num_embeddings ({}), got {}", op, rows, *padding);
  return at;
}

Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingOptions& o) try {
  check_defined("embedding", "input", input, "weight", weight);
  const int64_t padding = padding_row("embedding", input, weight, o.padding_idx);
  const Tensor index = to(input, kInt64);
  if (o.max_norm) limit_rows(weight, index, *o.max_norm, o.norm_type);
  return take_rows("embedding", weight, index, {padding, o.scale_grad_by_freq});
} catch (...) {
  fail_as("embedding");
}

namespace {

/// Where bags begin and end in a flat list of indices.
struct Bags {
  Tensor starts, ends,
      slot;  // (count), (count), (indices): number of the bag from 1 on, other numbers for indices in no bag
  int64_t count = 0, slots = 0;

  Bags(const Tensor& index, const Tensor& offsets, bool include_last) {
    const TensorOptions options{.dtype = kInt64, .device = index.device()};
    const int64_t n = index.numel();
    Tensor marks = offsets;
    if (index.dim() == 2) {
      count = index.shape()[0];
      starts = mul(arange(count, options), index.shape()[1]), ends = add(starts, index.shape()[1]), marks = starts;
    } else {
      const int64_t given = offsets.numel();
      count = given - include_last;
      starts = narrow(offsets, 0, 0, count);
      ends = include_last ? narrow(offsets, 0, 1, count)
                          : cat({narrow(offsets, 0, std::min<int64_t>(1, given), std::max<int64_t>(0, given - 1)),
                                 full(given ? 1 : 0, n, options)});
    }
    slots = marks.numel() + 1;
    slot = narrow(cumsum(scatter_add(zeros(n + 1, options), 0, marks, ones_like(marks)), 0), 0, 0, n);
  }
  /// Rows (indices, D) summed bag by bag.
  Tensor sums(const Tensor& rows) const { return narrow(add_rows(rows, slot, slots, -1), 0, 1, count); }
  /// The largest elements of the rows that count, the first of equal ones; 0 where there are none.
  Tensor largest(const Tensor& rows, const Tensor& counts) const {
    const int64_t longest = count && rows.shape()[0] ? max(sub(ends, starts)).item<int64_t>() : 0;
    if (longest == 0) return sums(rows);
    Tensor chosen, empty_bag;
    {
      NoGrad guard;
      const Tensor places = add(unsqueeze(starts, 1), arange(longest, {.dtype = kInt64, .device = rows.device()}));
      const Tensor inside = lt(places, unsqueeze(ends, 1)), safe = masked_fill(places, logical_not(inside), 0);
      const Tensor counted =
          logical_and(inside, gather(expand(unsqueeze(counts, 0), {count, rows.shape()[0]}), 1, safe));
      const Tensor candidates = where(unsqueeze(counted, 2), tapir::index(rows.detach(), {safe}), -INFINITY);
      const Tensor best = argmax(candidates, 1, {.keepdim = true});
      chosen = squeeze(gather(expand(unsqueeze(safe, 2), candidates.shape()), 1, best), 1);
      empty_bag = logical_not(any(counted, 1, {.keepdim = true}));
    }
    return masked_fill(gather(rows, 0, chosen), empty_bag, 0);
  }
};

void check_bags(const Tensor& index, const Tensor& weight, const Tensor& offsets, const EmbeddingBagOptions& o) {
  const char* op = "embedding_bag";
  check(index.dim() == 1 || index.dim() == 2, "[{}] input has to be 1D or 2D tensor, but got {}", op, index);
  check(offsets.defined() == (index.dim() == 1),
        "[{}] expected offsets for an index of rank 1, and none for one of rank 2, got index {}", op, index);
  check(o.mode == "sum" || o.mode == "mean" || o.mode == "max",
        "[{}] mode has to be one of sum, mean or max, got \"{}\"", op, o.mode);
  if (o.per_sample_weights.defined()) {
    check(o.mode == "sum", "[{}] per_sample_weights are only supported for mode \"sum\", got mode \"{}\"", op, o.mode);
    check(o.per_sample_weights.shape() == index.shape() && o.per_sample_weights.dtype() == weight.dtype(),
          "[{}] expected per_sample_weights to have the shape of the index {} and the dtype of the weight {}, got {}",
          op, index.shape(), weight.dtype(), o.per_sample_weights);
  }
  check(!o.include_last_offset || offsets.defined(), "[{}] expected offsets for include_last_offset", op);
  if (!offsets.defined()) return;
  common_device(op, {&index, &offsets});
  check(offsets.dim() == 1 && is_integral(offsets.dtype()),
        "[{}] offsets has to be a 1D tensor of integers, but got {}", op, offsets);
  check(!o.include_last_offset || offsets.numel() > 0,
        "[{}] expected at least one offset for include_last_offset, got {}", op, offsets);
  if (!offsets.device().is_cpu()) return;
  int64_t before = 0;
  for (int64_t at : offsets.to_vector<int64_t>()) {
    check(at >= before && at <= index.numel(), "[{}] expected offsets that ascend to at most {}, got {} after {}", op,
          index.numel(), at, before);
    before = at;
  }
  check(offsets.numel() == 0 || offsets.to_vector<int64_t>()[0] == 0,
        "[{}] offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0, got {}",
        op, offsets.numel() ? offsets.to_vector<int64_t>()[0] : 0);
}

}  // namespace

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets, const EmbeddingBagOptions& o) {
  check_defined("embedding_bag", "input", input, "weight", weight);
  const int64_t padding = padding_row("embedding_bag", input, weight, o.padding_idx);
  check_bags(input, weight, offsets, o);
  const Tensor index = to(input, kInt64), flat = flatten(index);
  if (o.max_norm) limit_rows(weight, index, *o.max_norm, o.norm_type);
  const DType wide = compute_type(weight.dtype());
  Tensor rows = to(take_rows("embedding_bag", weight, flat, {-1, o.scale_grad_by_freq}), wide), counts;
  if (o.per_sample_weights.defined()) rows = mul(rows, unsqueeze(flatten(to(o.per_sample_weights, wide)), 1));
  {
    NoGrad guard;
    counts = ne(flat, padding);
  }
  const Bags bags(index, offsets.defined() ? to(offsets, kInt64) : offsets, o.include_last_offset);
  if (padding >= 0) rows = masked_fill(rows, unsqueeze(logical_not(counts), 1), 0);
  Tensor y = o.mode == "max" ? bags.largest(rows, counts) : bags.sums(rows);
  if (o.mode == "mean") y = div(y, clamp_min(bags.sums(to(unsqueeze(counts, 1), wide)), 1));
  return to(y, weight.dtype());
}

Tensor one_hot(const Tensor& x, int64_t num_classes) try {
  check(is_integral(x.dtype()), "[one_hot] expected an index tensor of integers, got {}", x);
  check(num_classes >= -1, "[one_hot] expected num_classes to be positive, or -1 to take the largest class, got {}",
        num_classes);
  check(x.numel() > 0 || num_classes > 0, "[one_hot] cannot infer total number of classes from empty tensor {}", x);
  const Tensor index = unsqueeze(to(x, kInt64), -1);
  if (num_classes == -1)
    num_classes =
        1 + std::max<int64_t>(
                0, run_reduce(index, {.op = ReduceOp::Max, .dims = (1u << index.dim()) - 1}, kInt64).item<int64_t>());
  Shape shape = x.shape();
  shape.push_back(num_classes);
  Tensor y = zeros(shape, {.dtype = kInt64, .device = x.device()});
  Context& ctx = context(x);
  backend(x).scatter(ctx, {y, index, TensorView(1, kInt64), {.dim = x.dim()}});
  check_values(ctx,
               "[one_hot] class {value} at position {position} is out of range: class values must be non-negative and "
               "smaller than num_classes ({bound})");
  return y;
} catch (...) {
  fail_as("one_hot");
}

}  // namespace tapir::inline v0
