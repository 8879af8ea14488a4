#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../../core/formulas/matrix_exp.h"
#include "../kernels.h"
#include "linalg.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

using solver::Matrices;

/// Square matrices on which the table's own kernels work.
struct Calculator {
  const Context& whole;
  const TensorView& like;

  Matrices room(Context& owner) const {
    return room_for(owner, like, like.sizes[like.rank - 1], like.sizes[like.rank - 1]);
  }
  TensorView view(const Matrices& m) const { return view_of(m, like); }
  /// to = a b
  void product(const Matrices& to, const Matrices& a, const Matrices& b) const {
    PartContext ctx(whole);
    const auto flat = [&](const Matrices& m) {  // of rank 3
      TensorView v = view(m);
      const int64_t n = m.rows;
      v.rank = 3;
      v.sizes[0] = m.batch, v.sizes[1] = v.sizes[2] = n;
      v.strides[0] = n * n, v.strides[1] = 1, v.strides[2] = n;
      return v;
    };
    matmul(ctx, {.out = flat(to), .a = flat(a), .b = flat(b), .params = {}});
  }
  /// to += factor a
  void add(const Matrices& to, double factor, const Matrices& a) const {
    PartContext ctx(whole);
    binary(ctx, {view(to), view(to), view(a), {BinaryOp::Add, Scalar(factor)}});
  }
  void add_identity(const Matrices& to, double factor) const {
    PartContext ctx(whole);
    TensorView d = view(to);
    --d.rank;
    d.strides[d.rank - 1] = to.rows + 1;
    binary(ctx, {d, d, TensorView(Scalar(factor), to.dtype), {BinaryOp::Add}});
  }
  void set(const Matrices& to, V from) const {
    PartContext ctx(whole);
    copy(ctx, {view(to), from});
  }
  /// to = sum of factors[i] terms[i]
  void combine(const Matrices& to, std::initializer_list<double> factors, std::initializer_list<Matrices> terms) const {
    {
      PartContext ctx(whole);
      fill(ctx, {view(to), 0.0});
    }
    for (size_t i = 0; i < terms.size(); ++i) add(to, factors.begin()[i], terms.begin()[i]);
  }
};

/// One number per matrix, to be broadcast over it.
TensorView factors(Context& ctx, V like, const std::vector<double>& values) {
  TensorView v = like;
  v.data = upload(ctx, values.data(), int64_t(values.size())), v.dtype = kFloat64;
  v.sizes[v.rank - 2] = v.sizes[v.rank - 1] = 1, v.strides[v.rank - 2] = v.strides[v.rank - 1] = 0;
  for (int64_t d = v.rank - 2, step = 1; d-- > 0; step *= v.sizes[d]) v.strides[d] = step;
  TensorView narrow = v;
  narrow.dtype = like.dtype, narrow.data = ctx.scratch(int64_t(values.size()) * size_of(like.dtype));
  copy(ctx, {narrow, v});
  return narrow.expand(like.shape());
}

/// The even and the odd terms of the approximant of exp(a) (core/formulas/matrix_exp.h).
void pade(const Calculator& c, const Matrices& even, const Matrices& odd, const Matrices& a, const Matrices& work) {
  constexpr auto& b = kPade13;
  PartContext ctx(c.whole);
  const Matrices a2 = c.room(ctx), a4 = c.room(ctx), a6 = c.room(ctx);
  c.product(a2, a, a), c.product(a4, a2, a2), c.product(a6, a4, a2);
  c.combine(work, {b[13], b[11], b[9]}, {a6, a4, a2});
  c.product(even, a6, work);
  c.add(even, b[7], a6), c.add(even, b[5], a4), c.add(even, b[3], a2), c.add_identity(even, b[1]);
  c.product(odd, a, even);
  c.combine(work, {b[12], b[10], b[8]}, {a6, a4, a2});
  c.product(even, a6, work);
  c.add(even, b[6], a6), c.add(even, b[4], a4), c.add(even, b[2], a2), c.add_identity(even, b[0]);
}

/// y = (even - odd)^-1 (even + odd)
void divide(const Calculator& c, V y, const Matrices& even, const Matrices& odd) {
  PartContext ctx(c.whole);
  const Matrices lu = c.room(ctx), right = c.room(ctx), sum = c.room(ctx);
  c.combine(lu, {1, -1}, {even, odd}), c.combine(sum, {1, 1}, {even, odd});
  const int64_t n = lu.rows;
  TensorView order = y, sign = y;
  order.rank = y.rank - 1, sign.rank = y.rank - 2, order.dtype = kInt32;
  order.data = ctx.scratch_of<int>(lu.batch * n), sign.data = ctx.scratch(lu.batch * size_of(y.dtype));
  for (TensorView* v : {&order, &sign})
    for (int64_t d = v->rank, step = 1; d-- > 0; step *= v->sizes[d]) v->strides[d] = step;
  const TensorView factored = c.view(right), outs[] = {factored, order, sign}, ins[] = {c.view(lu)};
  {
    PartContext part(c.whole);
    linalg(part, {outs, ins, {LinalgOp::Lu}});
  }
  const TensorView solution[] = {y}, system[] = {factored, order, c.view(sum)};
  PartContext part(c.whole);
  linalg(part, {solution, system, {LinalgOp::LuSolve}});
}

}  // namespace

/// Scaling and squaring, each matrix with its own number of halvings.
void matrix_exp(Context& ctx, V y, V a) {
  if (y.numel() == 0) return;
  const Calculator c{ctx, y};
  const Matrices x = columns_of(ctx, a), even = c.room(ctx), odd = c.room(ctx), work = c.room(ctx);
  double* const there = ctx.scratch_of<double>(x.batch);
  column_norms(ctx, there, x);
  std::vector<double> norms(size_t(x.batch)), scale(norms.size(), 1);
  download(ctx, norms.data(), there, x.batch);
  std::vector<int> halvings(norms.size(), 0);
  for (size_t i = 0; i < norms.size(); ++i) {
    if (!std::isfinite(norms[i])) scale[i] = std::numeric_limits<double>::quiet_NaN();
    else halvings[i] = halvings_for(norms[i]);
    if (halvings[i]) scale[i] = std::ldexp(1.0, -halvings[i]);
  }
  {
    PartContext part(ctx);
    binary(part, {c.view(x), c.view(x), factors(part, y, scale), {BinaryOp::Mul}});
  }
  pade(c, even, odd, x, work);
  divide(c, c.view(x), even, odd);
  const int most = *std::max_element(halvings.begin(), halvings.end());
  for (int i = 0; i < most; ++i) {
    c.product(work, x, x);
    for (int64_t b = 0; b < x.batch; ++b) {  // where it is not squared any more, it stays
      if (halvings[size_t(b)] <= i) continue;
      check_cuda(cudaMemcpyAsync(x.at(b), work.at(b), size_t(x.bytes()), cudaMemcpyDeviceToDevice, stream_of(ctx)),
                 "matrix_exp");
    }
  }
  copy(ctx, {y, c.view(x)});
}

}  // namespace tapir::inline v0::cuda_kernels
