#include "embedding.h"

#include "arithmetic.h"
#include "cast.h"
#include "create.h"
#include "front.h"
#include "reduce_front.h"
#include "shape.h"

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
  const TensorView place(index);
  backend(g).index_put(context(g), y, g, {&place, 1}, {.accumulate = true});
  if (padding >= 0) backend(g).fill(context(g), alias(y, y.shape()[1], 1, padding * y.shape()[1]), 0);
  return record("embedding_backward", y, {g}, save(index), [padding](const Tensor& u, const Tensor& index) {
    const Tensor taken = take_rows("embedding", u, index, {});
    return Grads{padding < 0 ? taken : mul(taken, differs(index, padding))};
  });
}

/// How often the row of each index occurs in index: (..., 1), in the dtype of `like`.
static Tensor count_rows(const Tensor& index, int64_t rows, const Tensor& like) {
  NoGrad guard;
  Tensor counts = zeros(rows, {.dtype = like.dtype(), .device = like.device()}),
         own = empty(index.shape(), {.dtype = like.dtype(), .device = like.device()});
  const TensorView place(index);
  backend(like).index_put(context(like), counts, TensorView(1, like.dtype()), {&place, 1}, {.accumulate = true});
  backend(like).index(context(like), own, counts, {&place, 1});
  return unsqueeze(own, -1);
}

/// (..., D). A negative index must be an error, while the kernel counts it from the end: without its sign bit it lies beyond any bound.
static Tensor take_rows(const char* op, const Tensor& weight, const Tensor& index, RowGradient how) {
  Shape shape = index.shape();
  shape.push_back(weight.shape()[1]);
  Tensor y = empty(shape, {.dtype = weight.dtype(), .device = weight.device()});
  const Tensor unsigned_index = Pointwise(op, index, INT64_MAX).run(BinaryOp::BitwiseAnd);
  const TensorView place(unsigned_index);
  Context& ctx = context(weight);
  backend(weight).index(ctx, y, weight, {&place, 1});
  if (ctx.error.set) [[unlikely]] {
    if (ctx.error.value > INT64_MAX / 2) ctx.error.value |= INT64_MIN;
    fail_values(ctx.error, format("[{}] index {value} at position {position} is out of range for {bound} rows", op));
  }
  const int64_t rows = weight.shape()[0];
  return record(op, y, {weight}, save(index), [rows, how](const Tensor& g, const Tensor& index) {
    return Grads{add_rows(how.by_count ? div(g, count_rows(index, rows, g)) : g, index, rows, how.padding)};
  });
}

/// Rows that index names are scaled in place to a norm of at most max_norm.
static void limit_rows(const Tensor& weight, const Tensor& index, double max_norm, double norm_type) {
  check(max_norm >= 0, "[embedding] expected max_norm of at least 0, got {}", max_norm);
  check(!(weight.requires_grad() && !weight.is_leaf()),
        "[embedding] expected a weight that is a leaf where max_norm is given, got a result of {}", weight.grad_fn());
  NoGrad guard;
  const Tensor places = flatten(index), rows = take_rows("embedding", weight.detach(), places, {});
  const Tensor norms = run_reduce(rows, {.op = ReduceOp::NormP, .dims = 2, .p = norm_type}, rows.dtype());
  const Tensor over = Pointwise("gt", norms, max_norm).run(BinaryOp::Gt, 1, kBool);
  Tensor factor = empty_like(norms);
  backend(weight).ternary(context(weight), factor, over, div(max_norm, add(norms, 1e-7)), TensorView(1, norms.dtype()),
                          {TernaryOp::Where});
  const Tensor scaled = mul(rows, factor);
  const TensorView place(places);
  backend(weight).index_put(context(weight), weight, scaled, {&place, 1}, {});
  bump_version(weight);
}

Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingOptions& o) {
  common_device("embedding", {&input, &weight});
  check(weight.dim() == 2, "[embedding] expected a weight of shape (rows, D), got {}", weight);
  check(is_integral(input.dtype()), "[embedding] expected indices of an integer dtype, got {}", input);
  const int64_t rows = weight.shape()[0], padding = o.padding_idx.value_or(-1),
                at = padding < 0 && o.padding_idx ? padding + rows : padding;
  check(!o.padding_idx || (at >= 0 && at < rows), "[embedding] padding_idx must be within num_embeddings ({}), got {}",
        rows, padding);
  const Tensor index = to(input, kInt64);
  if (o.max_norm) limit_rows(weight, index, *o.max_norm, o.norm_type);
  return take_rows("embedding", weight, index, {o.padding_idx ? at : -1, o.scale_grad_by_freq});
}

Tensor one_hot(const Tensor& x, int64_t num_classes) {
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
  backend(x).scatter(ctx, y, index, TensorView(1, kInt64), {.dim = x.dim()});
  check_values(ctx,
               "[one_hot] class {value} at position {position} is out of range: class values must be non-negative and "
               "smaller than num_classes ({bound})");
  return y;
}

}  // namespace tapir::inline v0
