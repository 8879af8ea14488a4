// Note [Recurrent layers on a GPU]
// What depends on the inputs alone is one GEMM outside (ops/recurrent/rnn.cpp). Here a step is two launches: h W_hh^T, and one kernel that
// makes gates, state and output of it; a projection takes two more. The state of all rows lies in the output h: rows that a step does not
// have stay as they are, which is what packed sequences ask for. The backward pass goes the same way; dW is one GEMM over all steps. cuDNN
// has no graph operation for recurrent layers, and its older interface wants weights in a buffer of its own.
#include <vector>

#include "../../core/formulas/rnn.h"
#include "../kernel.h"
#include "../kernels.h"
#include "../launch.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

/// Rows of a state one step before: of the step's own output where it has the row, else of where the layer began.
template <class C> struct Before {
  const C* inside;
  int64_t rows, stride;  // of `inside`
  const C* start;
  __device__ C at(int64_t row, int64_t unit, int64_t width) const {
    return row < rows ? inside[row * stride + unit] : start[row * width + unit];
  }
};

template <class C> struct ForwardStep {
  RnnOp op;
  int64_t rows, hidden;
  const C *x, *sums, *bias;  // (rows, G H), (rows, G H), (G H) or null
  C *h, *c, *y, *keep;       // (rows, H); y and keep may be null
};

template <class C> __global__ void rnn_step(const ForwardStep<C> s) {
  const int64_t H = s.hidden, gates = s.op == RnnOp::Lstm ? 4 : s.op == RnnOp::Gru ? 3 : 1;
  for (const int64_t i : grid_stride(s.rows * H)) {
    const int64_t row = i / H, unit = i % H, first = row * gates * H + unit;
    C x[4], sum[4], v[4], kept[5], h;
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= gates) continue;
      x[g] = s.x[first + g * H];
      sum[g] = s.sums[first + g * H] + (s.bias ? s.bias[g * H + unit] : C(0));
      v[g] = x[g] + sum[g];
    }
    if (s.op == RnnOp::Lstm) {
      const auto u = formulas::lstm_unit(v[0], v[1], v[2], v[3], s.c[i]);
      kept[0] = u.in, kept[1] = u.forget, kept[2] = u.cell, kept[3] = u.out, kept[4] = s.c[i] = u.c;
      h = u.h;
    } else if (s.op == RnnOp::Gru) {
      const auto u = formulas::gru_unit(v[0], v[1], x[2], sum[2], s.h[i]);
      kept[0] = u.reset, kept[1] = u.update, kept[2] = u.fresh, kept[3] = sum[2];
      h = u.h;
    } else {
      h = formulas::rnn_unit(s.op == RnnOp::Relu, v[0]);
    }
    s.h[i] = h;
    if (s.y) s.y[i] = h;
    const int count = s.op == RnnOp::Lstm ? 5 : 4;
    for (int g = 0; s.keep && g < count; ++g) s.keep[(row * count + g) * H + unit] = kept[g];
  }
}

template <class C> struct BackwardStep {
  RnnOp op;
  int64_t rows, hidden;
  const C *g, *dy;       // g (rows, H): the gradient of the state; dy (rows, H) is added, may be null
  const C *y, *keep;     // (rows, H) of Tanh and Relu, (rows, 4 H or 5 H) of the others
  Before<C> before;      // c of Lstm, h of Gru
  C *dx, *dgates;        // (rows, G H), and of Gru what reaches W_hh
  C *dh, *dc, *hiddens;  // dh of Gru, dc of Lstm (rows, H); hiddens: the state before its projection, may be null
};

template <class C> __device__ void lstm_gradient(const BackwardStep<C>& s, int64_t i, C g) {
  const int64_t H = s.hidden, row = i / H, unit = i % H;
  const C* const kept = s.keep + row * 5 * H + unit;
  C* const dx = s.dx + row * 4 * H + unit;
  const auto d = formulas::lstm_gradient(g, s.dc[i], kept[0], kept[H], kept[2 * H], kept[3 * H], kept[4 * H],
                                         s.before.at(row, unit, H));
  dx[0] = d.in, dx[H] = d.forget, dx[2 * H] = d.cell, dx[3 * H] = d.out;
  s.dc[i] = d.c;
  if (s.hiddens) s.hiddens[i] = kept[3 * H] * math::tanh(kept[4 * H]);
}
template <class C> __device__ void gru_gradient(const BackwardStep<C>& s, int64_t i, C g) {
  const int64_t H = s.hidden, row = i / H, unit = i % H, at = row * 3 * H + unit;
  const C* const kept = s.keep + row * 4 * H + unit;
  const auto d = formulas::gru_gradient(g, kept[0], kept[H], kept[2 * H], kept[3 * H], s.before.at(row, unit, H));
  s.dx[at] = s.dgates[at] = d.reset;
  s.dx[at + H] = s.dgates[at + H] = d.update;
  s.dx[at + 2 * H] = d.fresh, s.dgates[at + 2 * H] = d.state;
  s.dh[i] = d.h;
}

template <class C> __global__ void rnn_gradient(const BackwardStep<C> s) {
  for (const int64_t i : grid_stride(s.rows * s.hidden)) {
    const C g = s.dy ? s.g[i] + s.dy[i] : s.g[i];
    if (s.op == RnnOp::Lstm) lstm_gradient(s, i, g);
    else if (s.op == RnnOp::Gru) gru_gradient(s, i, g);
    else s.dx[i] = formulas::rnn_gradient(s.op == RnnOp::Relu, g, s.y[i]);
  }
}

/// out (rows, width): what each row's state was one step before.
template <class C> __global__ void states_before(C* out, const Before<C> before, int64_t rows, int64_t width) {
  for (const int64_t i : grid_stride(rows * width)) out[i] = before.at(i / width, i % width, width);
}

/// Sizes of a layer, and which rows belong to which step; batch_sizes lie on the host.
template <class C> struct Layer {
  Context& ctx;
  const RnnParams& p;
  const TensorView& like;  // dtype and device
  int64_t gates, batch, out, hidden, wide;
  std::vector<int64_t> begin;
  const C* h0;

  Layer(Context& ctx, V w, V h0, V batch_sizes, const RnnParams& p)
      : ctx(ctx), p(p), like(w), gates(p.op == RnnOp::Lstm  ? 4
                                       : p.op == RnnOp::Gru ? 3
                                                            : 1),
        batch(h0.sizes[0]), out(h0.sizes[1]), hidden(w.sizes[0] / gates), wide(w.sizes[0]), begin(size_t(p.steps) + 1),
        h0(h0.as<C>()) {
    for (size_t t = 0; t < size_t(p.steps); ++t)
      begin[t + 1] = begin[t] + (batch_sizes.defined() ? batch_sizes.as<int64_t>()[t] : batch);
  }
  int64_t first(int64_t t) const { return begin[size_t(t)]; }
  int64_t rows(int64_t t) const { return first(t + 1) - first(t); }
  int64_t total() const { return begin.back(); }
  /// The k-th step in the order of the forward pass.
  int64_t step(int64_t k) const { return p.reverse ? p.steps - 1 - k : k; }
  /// `states` holds `width` numbers of each row, `stride` apart.
  Before<C> before(int64_t t, const C* states, int64_t stride, const C* start) const {
    const int64_t s = p.reverse ? t + 1 : t - 1;
    if (s < 0 || s >= p.steps) return {nullptr, 0, 0, start};
    return {states + first(s) * stride, rows(s), stride, start};
  }
  TensorView matrix(const C* data, int64_t rows, int64_t columns, bool transposed = false) const {
    TensorView v = like;
    v.data = const_cast<C*>(data), v.rank = 2;
    v.sizes[0] = transposed ? columns : rows, v.sizes[1] = transposed ? rows : columns;
    v.strides[0] = transposed ? 1 : columns, v.strides[1] = transposed ? columns : 1;
    return v;
  }
  /// A product gives its scratch memory back at once: a context holds only so many pieces.
  void product(V to, V a, V b, double beta = 0) const {
    Context step;
    step.device = ctx.device, step.deterministic = ctx.deterministic, step.stream = ctx.stream, step.table = ctx.table;
    matmul(step, {.out = to, .a = a, .b = b, .params = {.beta = beta}});
  }
};

template <class C> void forward(Context& ctx, const entry::Rnn& c) {
  const RnnParams& p = c.params;
  const Layer<C> l(ctx, c.w, c.h0, c.batch_sizes, p);
  C *const y = c.y.as<C>(), *const h = c.h.as<C>(), *const reserve = c.reserve.as<C>();
  const int64_t kept = p.op == RnnOp::Lstm ? 5 : 4;
  copy(ctx, {c.h, c.h0});
  if (c.c.data) copy(ctx, {c.c, c.c0});
  C* const sums = ctx.scratch_of<C>(l.batch * l.wide);
  C* const hiddens = c.projection.defined() ? ctx.scratch_of<C>(l.batch * l.hidden) : nullptr;
  for (int64_t k = 0; k < p.steps; ++k) {
    const int64_t t = l.step(k), rows = l.rows(t), at = l.first(t);
    l.product(l.matrix(sums, rows, l.wide), l.matrix(h, rows, l.out), l.matrix(c.w.as<C>(), l.wide, l.out, true));
    const ForwardStep<C> step{p.op,
                              rows,
                              l.hidden,
                              c.x.as<C>() + at * l.wide,
                              sums,
                              c.bias.as<C>(),
                              hiddens ? hiddens : h,
                              c.c.as<C>(),
                              hiddens ? nullptr : y + at * l.out,
                              reserve ? reserve + at * kept * l.hidden : nullptr};
    launch(ctx, "rnn", grid_of(rows * l.hidden), rnn_step<C>, step);
    if (!hiddens) continue;
    const TensorView projected = l.matrix(y + at * l.out, rows, l.out);
    l.product(projected, l.matrix(hiddens, rows, l.hidden), l.matrix(c.projection.as<C>(), l.out, l.hidden, true));
    copy(ctx, {l.matrix(h, rows, l.out), projected});
  }
}

/// What the backward pass keeps of all steps beside its outputs.
template <class C> struct Kept { C *dgates, *dout, *hiddens; };

/// dw, dbias and dprojection, where defined, of all steps together.
template <class C> void weight_gradients(const Layer<C>& l, const entry::RnnBackward& c, Kept<C> kept) {
  const int64_t n = l.total();
  if (c.dw.defined()) {
    C* const states = l.ctx.template scratch_of<C>(n * l.out);
    for (int64_t t = 0; t < l.p.steps; ++t)
      launch(l.ctx, "rnn_backward", grid_of(l.rows(t) * l.out), states_before<C>, states + l.first(t) * l.out,
             l.before(t, c.y.as<C>(), l.out, l.h0), l.rows(t), l.out);
    l.product(c.dw, l.matrix(kept.dgates, n, l.wide, true), l.matrix(states, n, l.out));
  }
  if (c.dbias.defined())
    reduce(l.ctx,
           {l.matrix(c.dbias.as<C>(), 1, l.wide), l.matrix(kept.dgates, n, l.wide), {.op = ReduceOp::Sum, .dims = 1}});
  if (c.dprojection.defined())
    l.product(c.dprojection, l.matrix(kept.dout, n, l.out, true), l.matrix(kept.hiddens, n, l.hidden));
}

template <class C> void backward(Context& ctx, const entry::RnnBackward& c) {
  const RnnParams& p = c.params;
  const Layer<C> l(ctx, c.w, c.h0, c.batch_sizes, p);
  const bool lstm = p.op == RnnOp::Lstm, gru = p.op == RnnOp::Gru;
  C *const dx = c.dx.as<C>(), *const dh = c.dh0.as<C>();
  const C *const dy = c.dy.as<C>(), *const y = c.y.as<C>(), *const reserve = c.reserve.as<C>();
  const auto start = [&](V to, V from) { from.defined() ? copy(ctx, {to, from}) : fill(ctx, {to, Scalar(0)}); };
  start(c.dh0, c.dh);
  if (lstm) start(c.dc0, c.dc);
  Kept<C> kept{gru ? ctx.scratch_of<C>(l.total() * l.wide) : dx, nullptr, nullptr};
  C* g = dh;
  if (c.projection.defined()) {
    kept.dout = ctx.scratch_of<C>(l.total() * l.out), kept.hiddens = ctx.scratch_of<C>(l.total() * l.hidden);
    g = ctx.scratch_of<C>(l.batch * l.hidden);
  }
  for (int64_t k = p.steps; k-- > 0;) {
    const int64_t t = l.step(k), rows = l.rows(t), at = l.first(t);
    const C* dy_here = dy ? dy + at * l.out : nullptr;
    const TensorView dh_here = l.matrix(dh, rows, l.out);
    if (c.projection.defined()) {
      const TensorView dout = l.matrix(kept.dout + at * l.out, rows, l.out);
      if (dy) binary(ctx, {dout, dh_here, l.matrix(dy_here, rows, l.out), {BinaryOp::Add}});
      else copy(ctx, {dout, dh_here});
      dy_here = nullptr;
      l.product(l.matrix(g, rows, l.hidden), dout, c.projection);
    }
    const C* const states = lstm ? reserve + 4 * l.hidden : y;
    const BackwardStep<C> step{
        p.op,
        rows,
        l.hidden,
        g,
        dy_here,
        lstm || gru ? nullptr : y + at * l.hidden,
        reserve ? reserve + at * (lstm ? 5 : 4) * l.hidden : nullptr,
        lstm || gru ? l.before(t, states, lstm ? 5 * l.hidden : l.hidden, lstm ? c.c0.as<C>() : l.h0) : Before<C>(),
        dx + at * l.wide,
        kept.dgates + at * l.wide,
        dh,
        c.dc0.as<C>(),
        kept.hiddens ? kept.hiddens + at * l.hidden : nullptr};
    launch(ctx, "rnn_backward", grid_of(rows * l.hidden), rnn_gradient<C>, step);
    l.product(dh_here, l.matrix(kept.dgates + at * l.wide, rows, l.wide), c.w, gru ? 1 : 0);
  }
  weight_gradients(l, c, kept);
}

}  // namespace

void rnn(Context& ctx, const entry::Rnn& c) {
  if (c.h.numel() == 0) return;
  if (c.y.dtype == kFloat64) forward<double>(ctx, c);
  else forward<float>(ctx, c);
}

void rnn_backward(Context& ctx, const entry::RnnBackward& c) {
  if (c.y.dtype == kFloat64) backward<double>(ctx, c);
  else backward<float>(ctx, c);
}

}  // namespace tapir::inline v0::cuda_kernels
