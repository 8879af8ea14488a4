#include "../../core/formulas/rnn.h"
#include "rnn_layer.h"

// Gradients of recurrent layers: Note [Recurrent layers on a GPU].
namespace tapir::inline v0::cuda_kernels {
namespace {

/// From the gradient of the state behind a step to that of its gates. Rows that it does not have keep the gradient of their state: dh0.
template <class T> struct BackwardStep {
  using C = Compute<T>;
  StateProduct<T>
      product;  // gradients of the next step's gates, transposed weights: no sums of rows that end with this step
  bool relu;
  int64_t rows, carried;   // rows with gates; rows of which dc is there already
  const T *dy, *dh, *y;    // (rows, H) or null; dh: of the state at the end; y: of Tanh and Relu
  const C *dc_end, *keep;  // dc_end: of the cell at the end, or null
  Before<C> c;             // of Lstm
  Before<T> h;             // of Gru
  T *dh0, *dx, *dgates;    // (rows, H), (rows, G H), and of Gru what reaches W_hh
  C *dc, *dh_beside;       // (rows, H): of Lstm; of Gru, what reaches the state before beside W_hh
  T* hiddens;              // the state before its projection, or null
};

template <class T, RnnOp kOp> struct BackwardUnit {
  using Element = T;
  using Step = BackwardStep<T>;
  using C = Compute<T>;
  static constexpr int kSums = 1, kKept = kOp == RnnOp::Tanh ? 1 : kept_of(kOp);
  static constexpr bool kBackward = true;
  C kept[kKept], before, dy, dc, dh;

  __device__ __forceinline__ void load(const Step& s, int64_t row, int64_t unit) {
    if (row >= s.rows) return;
    const int64_t H = s.product.units, at = row * H + unit;
    dy = s.dy ? widen(s.dy[at]) : C(0);
    if constexpr (kOp == RnnOp::Tanh) {
      kept[0] = widen(s.y[at]);
    } else {
#pragma unroll
      for (int i = 0; i < kKept; ++i) kept[i] = s.keep[(row * kKept + i) * H + unit];
      if constexpr (kOp == RnnOp::Lstm) before = s.c.at(row, unit, H);
      else before = widen(s.h.at(row, unit, H));
    }
  }
  __device__ __forceinline__ void load_state(const Step& s, int64_t row, int64_t unit) {
    const int64_t at = row * s.product.units + unit;
    if (row >= s.product.state.rows) dh = s.dh ? widen(s.dh[at]) : C(0);
    else dh = kOp == RnnOp::Gru ? s.dh_beside[at] : C(0);
    if constexpr (kOp == RnnOp::Lstm)
      if (row < s.rows) dc = row < s.carried ? s.dc[at] : s.dc_end ? s.dc_end[at] : C(0);
  }
  __device__ __forceinline__ void finish(const Step& s, int64_t row, int64_t unit, const C (&sum)[1]) {
    const int64_t H = s.product.units, at = row * H + unit;
    const C reached = row < s.product.state.rows ? sum[0] + dh : dh;
    if (row >= s.rows) {
      s.dh0[at] = narrow<T>(reached);
      return;
    }
    const C g = reached + dy;
    T* const dx = s.dx + row * gates_of(kOp) * H + unit;
    if constexpr (kOp == RnnOp::Lstm) {
      const auto d = formulas::lstm_gradient(g, dc, kept[0], kept[1], kept[2], kept[3], kept[4], before);
      dx[0] = narrow<T>(d.in), dx[H] = narrow<T>(d.forget), dx[2 * H] = narrow<T>(d.cell), dx[3 * H] = narrow<T>(d.out);
      s.dc[at] = d.c;
      if (s.hiddens) s.hiddens[at] = narrow<T>(kept[3] * math::tanh(kept[4]));
    } else if constexpr (kOp == RnnOp::Gru) {
      const auto d = formulas::gru_gradient(g, kept[0], kept[1], kept[2], kept[3], before);
      T* const dgates = s.dgates + row * 3 * H + unit;
      dx[0] = dgates[0] = narrow<T>(d.reset), dx[H] = dgates[H] = narrow<T>(d.update);
      dx[2 * H] = narrow<T>(d.fresh), dgates[2 * H] = narrow<T>(d.state);
      s.dh_beside[at] = d.h;
    } else {
      dx[0] = narrow<T>(formulas::rnn_gradient(s.relu, g, kept[0]));
    }
  }
};

/// First rows of some steps; the first and the last two numbers are of their neighbours.
struct Begins {
  static constexpr int kMost = 250;
  int64_t of[kMost + 3];
  int count;
};
/// out (rows of the steps, width): what each row's state was one step before.
template <class T>
__global__ void states_before(T* out, const T* y, const T* start, const Begins b, int64_t width, bool reverse) {
  const int64_t first = b.of[1], rows = b.of[b.count + 1] - first;
  for (const int64_t i : grid_stride(rows * width)) {
    const int64_t row = first + i / width, column = i % width;
    int t = 1;
    for (int end = b.count + 1; end - t > 1;) {
      const int middle = (t + end) / 2;
      (b.of[middle] <= row ? t : end) = middle;
    }
    const int64_t* const source = b.of + (reverse ? t + 1 : t - 1);
    const int64_t at = row - b.of[t];
    out[i] = at < source[1] - source[0] ? y[(source[0] + at) * width + column] : start[at * width + column];
  }
}

template <class T> struct Backward {
  using C = Compute<T>;
  Context& ctx;
  const entry::RnnBackward& c;
  const RnnLayer<T> l;
  T* dgates;
  T *dout = nullptr, *hiddens = nullptr;  // of a projection, of all steps

  Backward(Context& ctx, const entry::RnnBackward& c)
      : ctx(ctx), c(c), l(ctx, c.w, c.h0, c.batch_sizes, c.params),
        dgates(c.params.op == RnnOp::Gru ? ctx.scratch_of<T>(l.total() * l.wide) : c.dx.as<T>()) {}

  /// Step t, or none, behind one of so many rows.
  template <RnnOp kOp> BackwardStep<T> step(int64_t t, int64_t behind) const {
    const int64_t rows = l.rows(t), at = t < 0 ? 0 : l.first(t), H = l.hidden;
    const C* const reserve = c.reserve.as<C>();
    BackwardStep<T> s{};
    s.product.rows = std::max(rows, behind), s.product.units = H;
    s.relu = c.params.op == RnnOp::Relu, s.rows = rows, s.carried = behind;
    s.dh = c.dh.as<T>(), s.dc_end = c.dc.as<C>();
    s.dh0 = c.dh0.as<T>(), s.dc = c.dc0.as<C>();
    s.dy = c.dy.defined() ? c.dy.as<T>() + at * l.out : nullptr, s.y = c.y.as<T>() + at * l.out;
    s.keep = reserve ? reserve + at * kept_of(kOp) * H : nullptr;
    if (kOp == RnnOp::Lstm) s.c = l.before(t, reserve + 4 * H, 5 * H, c.c0.as<C>());
    if (kOp == RnnOp::Gru) s.h = l.before(t, c.y.as<T>(), H, c.h0.as<T>());
    s.dx = c.dx.as<T>() + at * l.wide, s.dgates = dgates + at * l.wide;
    s.hiddens = hiddens ? hiddens + at * H : nullptr;
    return s;
  }

  template <RnnOp kOp> void run() {
    using Unit = BackwardUnit<T, kOp>;
    const int64_t H = l.hidden;
    C* const beside = kOp == RnnOp::Gru ? ctx.scratch_of<C>(l.batch * H) : nullptr;
    const bool one = c.params.steps > 1 && l.in_one_kernel(l.wide, {dgates});  // one step: no weights are turned for it
    T* const turned = one ? ctx.scratch_of<T>(l.wide * H) : nullptr;
    C* const sums = one ? nullptr : ctx.scratch_of<C>(l.batch * H);
    if (one) copy(ctx, {l.matrix(turned, H, l.wide), l.matrix(c.w.as<T>(), l.wide, H, true)});
    const T* gates = nullptr;
    for (int64_t k = c.params.steps, behind = 0; k-- >= 0; behind = l.rows(k < 0 ? -1 : l.step(k))) {
      BackwardStep<T> s = step<kOp>(k < 0 ? -1 : l.step(k), behind);
      s.product.state = {gates, behind, l.wide, nullptr}, s.product.depth = l.wide;
      s.product.weights = turned, s.product.sums = sums, s.dh_beside = beside;
      if (one) {
        launch_step<Unit>(ctx, "rnn_backward", s, k == c.params.steps - 1);
      } else {
        if (behind > 0) l.product(l.matrix(sums, behind, H), l.matrix(gates, behind, l.wide), c.w);
        launch(ctx, "rnn_backward", grid_of(s.product.rows * H), rnn_cells<Unit>, s);
      }
      gates = s.dgates;
    }
  }

  /// With a projection dh0 is the state's gradient all the way.
  void run_projected() {
    const int64_t n = l.total(), H = l.hidden;
    dout = ctx.scratch_of<T>(n * l.out), hiddens = ctx.scratch_of<T>(n * H);
    C* const sums = ctx.scratch_of<C>(l.batch * H);
    T* const dh = c.dh0.as<T>();
    if (c.dh.defined()) copy(ctx, {c.dh0, c.dh});
    else fill(ctx, {c.dh0, Scalar(0)});
    for (int64_t k = c.params.steps, behind = 0; k-- > 0;) {
      const int64_t t = l.step(k), rows = l.rows(t);
      BackwardStep<T> s = step<RnnOp::Lstm>(t, behind);
      const TensorView here = l.matrix(dout + l.first(t) * l.out, rows, l.out), state = l.matrix(dh, rows, l.out);
      if (s.dy) binary(ctx, {here, state, l.matrix(s.dy, rows, l.out), {BinaryOp::Add}});
      else copy(ctx, {here, state});
      l.product(l.matrix(sums, rows, H), here, c.projection);
      s.dy = nullptr, s.product.rows = s.product.state.rows = rows, s.product.sums = sums;
      launch(ctx, "rnn_backward", grid_of(rows * H), rnn_cells<BackwardUnit<T, RnnOp::Lstm>>, s);
      l.product(state, l.matrix(s.dgates, rows, l.wide), c.w);
      behind = rows;
    }
  }

  /// dw, dbias and dprojection, where defined, of all steps together.
  void weights() {
    const int64_t n = l.total();
    if (c.dw.defined()) {
      if (l.packed) packed_state_weights();
      else state_weights();
    }
    if (c.dbias.defined())
      reduce(ctx,
             {l.matrix(c.dbias.as<T>(), 1, l.wide), l.matrix(dgates, n, l.wide), {.op = ReduceOp::Sum, .dims = 1}});
    if (c.dprojection.defined())
      l.product(c.dprojection, l.matrix(dout, n, l.out, true), l.matrix(hiddens, n, l.hidden));
  }

 private:
  /// Steps of equal rows: the first one, and the others, whose states before lie in y.
  void state_weights() {
    const int64_t rows = l.total() - l.batch;
    const bool reverse = c.params.reverse;
    const auto gates = [&](int64_t first, int64_t n) { return l.matrix(dgates + first * l.wide, n, l.wide, true); };
    l.product(c.dw, gates(reverse ? rows : 0, l.batch), l.matrix(c.h0.as<T>(), l.batch, l.out));
    if (rows > 0)
      l.product(c.dw, gates(reverse ? 0 : l.batch, rows),
                l.matrix(c.y.as<T>() + (reverse ? l.batch * l.out : 0), rows, l.out), 1);
  }
  void packed_state_weights() {
    const int64_t steps = c.params.steps;
    T* const states = ctx.scratch_of<T>(l.total() * l.out);
    for (int64_t t = 0; t < steps; t += Begins::kMost) {
      Begins b;
      b.count = int(std::min<int64_t>(steps - t, Begins::kMost));
      for (int64_t i = 0; i < b.count + 3; ++i) b.of[i] = l.first(std::clamp<int64_t>(t + i - 1, 0, steps));
      launch(ctx, "rnn_backward", grid_of((b.of[b.count + 1] - b.of[1]) * l.out), states_before<T>,
             states + b.of[1] * l.out, c.y.as<T>(), c.h0.as<T>(), b, l.out, c.params.reverse);
    }
    l.product(c.dw, l.matrix(dgates, l.total(), l.wide, true), l.matrix(states, l.total(), l.out));
  }
};

}  // namespace

void rnn_backward(Context& ctx, const entry::RnnBackward& c) {
  for_rnn(c.y.dtype, c.params.op, [&]<class T, RnnOp kOp>() {
    Backward<T> backward(ctx, c);
    if (c.projection.defined()) backward.run_projected();
    else backward.template run<kOp>();
    backward.weights();
  });
}

}  // namespace tapir::inline v0::cuda_kernels
