// Note [Norms before products of few rows]
// Where a token or a few are decoded, kernels are so short that launches are what counts. A layer or rms norm whose rows only products read
// is made inside of them then, with the sum before it: each block of a product makes the few rows for itself. On a GPU; within rounding.
#include <optional>

#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

using entry::Binary, entry::Matmul, entry::Norm, entry::NormMatmul, entry::QuantMatmul;

constexpr int64_t kMostRows = 8, kLeastColumns = 32;
constexpr int64_t kMostBytes = 37 << 10;  // of the rows, in shared memory: below kMostMade of few_rows.h

/// A norm of few rows whose statistics nobody wants: x and y as (rows, width).
struct Rows {
  View x, y;
};
std::optional<Rows> rows_of(const Uses& uses, int at) {
  const Call& norm = uses.call(at);
  if (!is<Norm>(norm) || !norm.device.is_cuda() || !backend(norm.device).norm_matmul) return {};
  const auto p = norm.params<NormParams>();
  const View &x = norm[&Norm::x], &y = norm[&Norm::y];
  if ((p.op != NormOp::Layer && p.op != NormOp::Rms) || p.axes != 1 || !x.in_memory() || !uses.own(y) ||
      x.dtype != y.dtype || !(is_half(x) || x.dtype == kFloat32))
    return {};
  for (const auto statistic : {&Norm::mean, &Norm::rstd})
    if (norm[statistic].in_memory() && (!uses.own(norm[statistic]) || uses.of(norm[statistic].block).size() > 1))
      return {};
  for (const auto operand : {&Norm::weight, &Norm::bias})
    if (norm[operand].in_memory() && norm[operand].dtype != x.dtype) return {};
  const int64_t width = x.shape[x.shape.size() - 1], count = width > 0 ? numel_of(x.shape) / width : 0;
  if (count < 1 || count > kMostRows || count * width * size_of(x.dtype) > kMostBytes) return {};
  const auto rows = reshaped(x, {count, width}), out = reshaped(y, {count, width});
  if (!rows || !out) return {};
  return Rows{*rows, *out};
}

/// A product that may have a norm before it, with a plain or a quantized weight.
struct Product {
  View out, a, b, b_scale, bias;
  MatmulFinish finish;
  int64_t bits = 8, group = 1;
};
std::optional<Product> product_of(const Call& call) {
  if (is<QuantMatmul>(call)) {
    const auto p = call.params<QuantMatmulParams>();
    if (p.op != QuantOp::WeightOnly) return {};
    return Product{call[&QuantMatmul::y],
                   call[&QuantMatmul::x],
                   call[&QuantMatmul::w],
                   call[&QuantMatmul::w_scale],
                   call[&QuantMatmul::bias],
                   p.finish,
                   p.bits,
                   p.group};
  }
  if (!is<Matmul>(call)) return {};
  const auto p = call.params<MatmulParams>();
  const View &out = call[&Matmul::out], &bias = call[&Matmul::bias];
  if (p.alpha != 1 || p.beta != 0 || call[&Matmul::aux].in_memory() || (bias.in_memory() && bias.dtype != out.dtype))
    return {};
  return Product{out, call[&Matmul::a], call[&Matmul::b], {}, bias, p.finish};
}

/// Is it a product of those rows that can make them?
bool takes(const Uses& uses, int norm, int at, const Rows& rows) {
  const Call& call = uses.call(at);
  const auto p = product_of(call);
  if (!p || call.device != uses.call(norm).device || call.modes != uses.call(norm).modes) return false;
  if ((p->finish != MatmulFinish::None && p->finish != MatmulFinish::GeluTanh) || !p->out.in_memory() ||
      p->out.shape.size() != 2 || p->out.dtype != rows.x.dtype || p->out.shape[1] < kLeastColumns)
    return false;
  for (const View* other : {&p->b, &p->b_scale, &p->bias})
    if (other->in_memory() && other->block == rows.y.block) return false;
  const auto a = reshaped(p->a, rows.y.shape);
  if (!a || !same_place(*a, rows.y)) return false;
  for (const View* read : {&rows.x, &uses.call(norm)[&Norm::weight], &uses.call(norm)[&Norm::bias]})
    if (uses.overwritten(*read, norm, at) || uses.writes(at, *read)) return false;
  return true;
}

/// The sum that makes the norm's x, where it can be made by product `at` instead; -1: there is none.
int sum_before(const Uses& uses, int norm, int at, const Rows& rows) {
  const View& x = uses.call(norm)[&Norm::x];
  const int sum = uses.maker(norm, x.block);
  if (sum < 0 || !is_sum(uses.call(sum)) || uses.call(sum).modes != uses.call(at).modes) return -1;
  const View &out = uses.call(sum)[&Binary::out], &a = uses.call(sum)[&Binary::a], &b = uses.call(sum)[&Binary::b];
  const bool alike = same_place(out, x) && a.in_memory() && b.in_memory() && a.dtype == x.dtype && b.dtype == x.dtype &&
                     a.shape == x.shape && b.shape == x.shape && !overlap(a, out) && !overlap(b, out);
  if (!alike || !reshaped(a, rows.x.shape) || !reshaped(b, rows.x.shape) || uses.conflict(at, out, Access::Write))
    return -1;
  for (const View* read : {&a, &b})
    if (uses.writes(at, *read)) return -1;
  for (const auto operand :
       {&Norm::weight, &Norm::bias})  // other blocks of the kernel read it while one writes the sum
    if (uses.call(norm)[operand].in_memory() && overlap(uses.call(norm)[operand], out)) return -1;
  return uses.may_move(sum, at, {norm}) ? sum : -1;
}

void join_norm_product(Rewriter& calls, int at) {
  const auto rows = rows_of(calls, at);
  if (!rows) return;
  const Value value = calls.made_by(at, rows->y.block);
  if (value.seen || value.readers.empty()) return;
  for (const int product : value.readers)
    if (!takes(calls, at, product, *rows)) return;
  const Call norm = calls.call(at);
  const auto p = norm.params<NormParams>();
  const int sum = sum_before(calls, at, value.readers[0], *rows);
  const Call added = sum >= 0 ? calls.call(sum) : Call();
  for (const int product : value.readers) {
    const Call old = calls.call(product);
    const Product of = *product_of(old);
    Call made = call_of<NormMatmul>(old, NormMatmulParams{p.op, p.eps, of.finish, of.bits, of.group});
    made[&NormMatmul::out] = of.out, made[&NormMatmul::x] = rows->x;
    made[&NormMatmul::weight] = norm[&Norm::weight], made[&NormMatmul::norm_bias] = norm[&Norm::bias];
    made[&NormMatmul::b] = of.b, made[&NormMatmul::b_scale] = of.b_scale, made[&NormMatmul::bias] = of.bias;
    if (sum >= 0 && product == value.readers[0]) {
      const bool read = value.readers.size() > 1 || !calls.made_by(sum, rows->x.block).only_read_by(at);
      if (read) made[&NormMatmul::sum] = rows->x;
      made[&NormMatmul::x] = *reshaped(added[&Binary::a], rows->x.shape);
      made[&NormMatmul::add] = *reshaped(added[&Binary::b], rows->x.shape);
    }
    calls.replace(product, std::move(made));
  }
  if (sum >= 0) calls.remove(sum);
  calls.remove(at);
}

}  // namespace

void join_norm_products(Program& p) { rewrite(p, join_norm_product); }

}  // namespace tapir::inline v0::ir
