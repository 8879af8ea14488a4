#include "../../core/formulas/rnn.h"
#include "rnn_layer.h"

// Recurrent layers, forward: Note [Recurrent layers on a GPU].
namespace tapir::inline v0::cuda_kernels {
namespace {

template <class T> struct ForwardStep {
  using C = Compute<T>;
  StateProduct<T> product;
  bool relu;
  int64_t ends;       // rows from here on end with this step
  const T *x, *bias;  // (rows, G H), (G H) or null
  Before<C> c;        // of Lstm
  T *y, *h;           // (rows, H); h, of rows that end, may be null
  C *c_now, *keep;    // (rows, H); keep may be null
};

template <class T, RnnOp kOp> struct ForwardUnit {
  using Element = T;
  using Step = ForwardStep<T>;
  using C = Compute<T>;
  static constexpr int kSums = gates_of(kOp);
  static constexpr bool kBackward = false;
  C x[kSums], bias, before;  // x with what is only added to it; bias: of what Gru's reset gate multiplies

  __device__ __forceinline__ void load(const Step& s, int64_t row, int64_t unit) {
    const int64_t H = s.product.units;
#pragma unroll
    for (int g = 0; g < kSums; ++g) {
      x[g] = widen(s.x[(row * kSums + g) * H + unit]);
      const C b = s.bias ? widen(s.bias[g * H + unit]) : C(0);
      if (kOp == RnnOp::Gru && g == 2) bias = b;
      else x[g] += b;
    }
  }
  __device__ __forceinline__ void load_state(const Step& s, int64_t row, int64_t unit) {
    if constexpr (kOp == RnnOp::Lstm) before = s.c.at(row, unit, s.product.units);
    else if constexpr (kOp == RnnOp::Gru) before = widen(s.product.state.at(row, unit, s.product.units));
  }
  __device__ __forceinline__ void finish(const Step& s, int64_t row, int64_t unit, const C (&sum)[kSums]) {
    const int64_t H = s.product.units, at = row * H + unit;
    C v[kSums], h;
#pragma unroll
    for (int g = 0; g < kSums; ++g) v[g] = x[g] + sum[g];
    C* const keep = s.keep ? s.keep + row * kept_of(kOp) * H + unit : nullptr;
    if constexpr (kOp == RnnOp::Lstm) {
      const auto u = formulas::lstm_unit(v[0], v[1], v[2], v[3], before);
      if (keep) keep[0] = u.in, keep[H] = u.forget, keep[2 * H] = u.cell, keep[3 * H] = u.out, keep[4 * H] = u.c;
      s.c_now[at] = u.c, h = u.h;
    } else if constexpr (kOp == RnnOp::Gru) {
      const C state_sum = sum[2] + bias;
      const auto u = formulas::gru_unit(v[0], v[1], x[2], state_sum, before);
      if (keep) keep[0] = u.reset, keep[H] = u.update, keep[2 * H] = u.fresh, keep[3 * H] = state_sum;
      h = u.h;
    } else {
      h = formulas::rnn_unit(s.relu, v[0]);
    }
    s.y[at] = narrow<T>(h);
    if (s.h && row >= s.ends) s.h[at] = narrow<T>(h);
  }
};

/// Sums of a step by the library.
template <class T> void make_sums(const RnnLayer<T>& l, const StateProduct<T>& p) {
  auto* const sums = const_cast<Compute<T>*>(p.sums);
  const TensorView w = l.matrix(p.weights, l.wide, l.out, true);
  const int64_t inside = p.inside(), rest = p.rows - inside;
  if (inside > 0) l.product(l.matrix(sums, inside, l.wide), l.matrix(p.state.inside, inside, l.out), w);
  if (rest > 0)
    l.product(l.matrix(sums + inside * l.wide, rest, l.wide), l.matrix(p.state.start + inside * l.out, rest, l.out), w);
}

template <class T, RnnOp kOp> void forward(Context& ctx, const entry::Rnn& c) {
  using C = Compute<T>;
  const RnnParams& p = c.params;
  const RnnLayer<T> l(ctx, c.w, c.h0, c.batch_sizes, p);
  T *const y = c.y.as<T>(), *const h = c.h.as<T>();
  C *const cell = c.c.as<C>(), *const reserve = c.reserve.as<C>();
  const bool one = l.in_one_kernel(l.out, {y, c.h0.data, c.w.data}), projected = c.projection.defined();
  C* const sums = one ? nullptr : ctx.scratch_of<C>(l.batch * l.wide);
  T* const hiddens = projected ? ctx.scratch_of<T>(l.batch * l.hidden) : nullptr;
  for (int64_t k = 0; k < p.steps; ++k) {
    const int64_t t = l.step(k), rows = l.rows(t), at = l.first(t);
    T* const outputs = y + at * l.out;
    const ForwardStep<T> step{{l.before(t, y, l.out, c.h0.as<T>()), rows, c.w.as<T>(), l.hidden, l.out, sums},
                              p.op == RnnOp::Relu,
                              k + 1 < p.steps ? l.rows(l.step(k + 1)) : 0,
                              c.x.as<T>() + at * l.wide,
                              c.bias.as<T>(),
                              {cell, k == 0 ? 0 : l.rows(l.step(k - 1)), l.hidden, c.c0.as<C>()},
                              projected ? hiddens : outputs,
                              projected ? nullptr : h,
                              cell,
                              reserve ? reserve + at * kept_of(kOp) * l.hidden : nullptr};
    using Unit = ForwardUnit<T, kOp>;
    if (one) {
      launch_step<Unit>(ctx, "rnn", step, k == 0 || projected);
    } else {
      make_sums(l, step.product);
      launch(ctx, "rnn", grid_of(rows * l.hidden), rnn_cells<Unit>, step);
    }
    if (!projected) continue;
    l.product(l.matrix(outputs, rows, l.out), l.matrix(hiddens, rows, l.hidden),
              l.matrix(c.projection.as<T>(), l.out, l.hidden, true));
    if (const int64_t n = step.ends; n < rows)
      copy(ctx, {l.matrix(h + n * l.out, rows - n, l.out), l.matrix(outputs + n * l.out, rows - n, l.out)});
  }
}

}  // namespace

void rnn(Context& ctx, const entry::Rnn& c) {
  for_rnn(c.y.dtype, c.params.op, [&]<class T, RnnOp kOp>() { forward<T, kOp>(ctx, c); });
}

}  // namespace tapir::inline v0::cuda_kernels
