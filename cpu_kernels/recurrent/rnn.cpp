// Note [Recurrent layers]
// What depends on the inputs alone, x W_ih^T over all steps, is one GEMM outside. Here a step adds h W_hh^T and makes gates of the sum, in one
// pass over tiles that stay in the cache: W_hh is packed into panels once per call, and the state is written into panels for the next step
// as it is made. Large batches give each thread rows of its own, which need no other thread; of small ones the threads share the units,
// and meet after each step. The backward pass goes the same way with W_hh transposed; dW is one GEMM over all steps.
#include <array>

#include "../../core/denormals.h"
#include "../../core/formulas/rnn.h"
#include "../kernels.h"
#include "../matmul/gemm.h"

namespace tapir::inline v0::cpu {
namespace {

/// c (R x kColumns, rows ld apart) = or += a b; a lies in a panel of `height` rows, of which the first R count.
template <class C, int R>
void multiply_rows(int64_t depth, const C* a, int64_t height, const C* b, C* c, int64_t ld, bool first) {
  using P = Panel<C>;
  constexpr int lanes = kLanes<C>;
  Vec<C> sum[R][P::kVectors] = {};
  for (int64_t k = 0; k < depth; ++k, a += height, b += P::kColumns) {
    Vec<C> row[P::kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < P::kVectors; ++v) row[v] = load(b + v * lanes);
#pragma GCC unroll 12
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < P::kVectors; ++v) sum[i][v] += row[v] * a[i];
  }
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < P::kVectors; ++v) {
      C* at = c + i * ld + v * lanes;
      store(at, first ? sum[i][v] : load(at) + sum[i][v]);
    }
}
template <class C> using MultiplyRows = void (*)(int64_t, const C*, int64_t, const C*, C*, int64_t, bool);
template <class C> constexpr auto multipliers = []<int... R>(std::integer_sequence<int, R...>) {
  return std::array<MultiplyRows<C>, sizeof...(R)>{&multiply_rows<C, R + 1>...};
}
(std::make_integer_sequence<int, Panel<C>::kRows>());

/// Rows of a matrix (m x depth) in panels that multiply_rows() takes.
template <class C> struct RowPanels {
  C* data = nullptr;
  int64_t height = 1, depth = 0;
  C* at(int64_t i, int64_t k) const { return data + i / height * height * depth + k * height + i % height; }
  void set(int64_t i, int64_t k0, int64_t n, const C* values) const {
    C* to = at(i, k0);
    for (int64_t j = 0; j < n; ++j) to[j * height] = values[j];
  }
  /// c (rows x kColumns, ld apart) = rows [i0, i0 + rows) times one panel of columns; i0: a multiple of height.
  void multiply(int64_t i0, int64_t rows, const C* columns, C* c, int64_t ld) const {
    using P = Panel<C>;
    for (int64_t k = 0; k < depth; k += P::kDepth)
      for (int64_t i = 0; i < rows; i += height)
        multipliers<C>[size_t(std::min(height, rows - i) - 1)](std::min(P::kDepth, depth - k), at(i0 + i, k), height,
                                                               columns + k * P::kColumns, c + i * ld, ld, k == 0);
  }
};

/// Where a layer's operands lie, and how its work is shared out.
template <class C> class Layer {
 protected:
  using P = Panel<C>;
  static constexpr int64_t kUnits = P::kColumns;

  Layer(Context& ctx, V w, V projection, V h0, V batch_sizes, const RnnParams& p)
      : p_(p), lstm_(p.op == RnnOp::Lstm), gru_(p.op == RnnOp::Gru), gates_(lstm_  ? 4
                                                                            : gru_ ? 3
                                                                                   : 1),
        batch_(h0.sizes[0]), out_(h0.sizes[1]), hidden_(w.sizes[0] / gates_), kept_(lstm_  ? 5
                                                                                    : gru_ ? 4
                                                                                           : 0),
        projected_(projection.defined()), h0_(h0.as<C>()) {
    begin_ = ctx.scratch_of<int64_t>(p.steps + 1);
    begin_[0] = 0;
    for (int64_t t = 0; t < p.steps; ++t)
      begin_[t + 1] = begin_[t] + (batch_sizes.defined() ? batch_sizes.as<int64_t>()[t] : batch_);
    const int64_t threads = threads_here();
    by_rows_ = threads == 1 || batch_ == 0 || batch_ >= threads * P::kRows;
    buffer_rows_ = 2 * batch_ + P::kRows;
  }

  int64_t rows_of(int64_t t) const { return begin_[t + 1] - begin_[t]; }
  /// The k-th step in the order of the forward pass.
  int64_t step(int64_t k) const { return p_.reverse ? p_.steps - 1 - k : k; }
  /// Row b of `state` (N, width) one step earlier, or of `start` (B, width).
  const C* before(int64_t t, int64_t b, const C* state, const C* start, int64_t width, int64_t stride) const {
    const int64_t s = p_.reverse ? t + 1 : t - 1;
    const bool inside = s >= 0 && s < p_.steps && b < rows_of(s);
    return inside ? state + (begin_[s] + b) * stride : start + b * width;
  }
  /// A matrix whose element (unit, k) is data[unit * row + k * column], in panels of columns.
  C* pack(Context& ctx, const C* data, int64_t row, int64_t column, int64_t units, int64_t depth) const {
    const int64_t panels = (units + kUnits - 1) / kUnits;
    C* to = ctx.scratch_of<C>(panels * kUnits * depth);
    parallel_for(panels, std::max<int64_t>(1, kGrain / (kUnits * depth)), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        pack_matrix<int(kUnits)>(to + i * kUnits * depth, data + i * kUnits * row, row, column,
                                 std::min(kUnits, units - i * kUnits), depth);
    });
    return to;
  }
  /// run(first row, last row) for all rows. No piece is smaller than kRows but the last: panels of m rows fit into 2 m.
  template <class F> void share_rows(F&& run) const {
    if (!by_rows_) return run(0, batch_);
    parallel_for(batch_, std::max(int64_t(P::kRows), kGrain / (p_.steps * gates_ * hidden_ * out_)), run);
  }
  /// task(first unit, units, first row, rows) for tiles of `rows` x `units`, in parallel where the threads share the units.
  template <class F> void tiles(int64_t rows, int64_t units, int64_t height, int64_t depth, F&& task) const {
    const int64_t panels = (units + kUnits - 1) / kUnits, work = rows * kUnits * (depth + 16);
    parallel_for(panels, std::max<int64_t>(1, kGrain / (work + 1)), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        for (int64_t r = 0; r < rows; r += 4 * height)
          task(i * kUnits, std::min(kUnits, units - i * kUnits), r, std::min(4 * height, rows - r));
    });
  }
  static int64_t height_for(int64_t rows) {
    const int64_t panels = (rows + P::kRows - 1) / P::kRows;
    return (rows + panels - 1) / panels;
  }

  static constexpr int64_t kGrain = 1 << 19, kTile = 4 * P::kRows * kUnits;
  const RnnParams& p_;
  bool lstm_, gru_;
  int64_t gates_, batch_, out_, hidden_, kept_;
  bool projected_, by_rows_;
  int64_t buffer_rows_;
  const C* h0_;
  int64_t* begin_;
};

template <class C> class Forward : Layer<C> {
  using Base = Layer<C>;
  using Base::batch_, Base::begin_, Base::gates_, Base::h0_, Base::hidden_, Base::kept_, Base::kUnits, Base::out_,
      Base::p_, Base::projected_, Base::rows_of, Base::step;

 public:
  Forward(Context& ctx, const entry::Rnn& c)
      : Base(ctx, c.w, c.projection, c.h0, c.batch_sizes, c.params), y_(c.y.as<C>()), h_(c.h.as<C>()), c_(c.c.as<C>()),
        reserve_(c.reserve.as<C>()), x_(c.x.as<C>()), bias_(c.bias.as<C>()) {
    if (c.params.steps == 1) multiply_once(ctx, c);
    else pack_weights(ctx, c.w.as<C>());
    if (projected_) projection_ = Base::pack(ctx, c.projection.as<C>(), hidden_, 1, out_, hidden_);
    if (!bias_) {
      C* zeros = ctx.scratch_of<C>(gates_ * hidden_);
      std::fill_n(zeros, gates_ * hidden_, C(0));
      bias_ = zeros;
    }
    if (c_) std::copy_n(c.c0.as<C>(), batch_ * hidden_, c_);
    states_ = ctx.scratch_of<C>(2 * this->buffer_rows_ * out_);
    if (projected_) hiddens_ = ctx.scratch_of<C>(this->buffer_rows_ * hidden_);
  }

  void run() {
    Base::share_rows([&](int64_t first, int64_t last) {
      const int64_t m = last - first, height = Base::height_for(m);
      const RowPanels<C> hidden{projected_ ? hiddens_ + 2 * first * hidden_ : nullptr, height, hidden_};
      RowPanels<C> state{states_ + 4 * first * out_, height, out_}, next = state;
      next.data += (m + Panel<C>::kRows) * out_;
      for (int64_t i = 0; i < m && !products_; ++i)
        state.set(i, 0, out_, h0_ + (first + i) * out_), next.set(i, 0, out_, h0_ + (first + i) * out_);
      for (int64_t k = 0; k < p_.steps; ++k, std::swap(state, next)) {
        const int64_t t = step(k), rows = std::min(last, rows_of(t)) - first;
        if (rows <= 0) continue;
        Base::tiles(rows, hidden_, height, gates_ * out_, [&](int64_t u, int64_t n, int64_t i0, int64_t count) {
          alignas(64) C sums[4 * Base::kTile];
          for (int64_t g = 0; g < gates_ && !products_; ++g)
            state.multiply(i0, count, w_ + g * panel_ + u * out_, sums + g * kUnits, gates_ * kUnits);
          for (int64_t i = 0; i < count && products_; ++i)
            for (int64_t g = 0; g < gates_; ++g)
              std::copy_n(products_ + ((first + i0 + i) * gates_ + g) * hidden_ + u, n,
                          sums + (i * gates_ + g) * kUnits);
          for (int64_t i = 0; i < count; ++i)
            row(t, first + i0 + i, i0 + i, u, n, sums + i * gates_ * kUnits, projected_ ? hidden : next);
        });
        if (projected_) project(t, first, rows, height, hidden, next);
      }
    });
    for (int64_t t = 0; t < p_.steps; ++t)  // where each row ended
      for (int64_t b = p_.reverse || t == p_.steps - 1 ? 0 : rows_of(t + 1); b < rows_of(t) && !(p_.reverse && t); ++b)
        std::copy_n(y_ + (begin_[t] + b) * out_, out_, h_ + b * out_);
  }

 private:
  void pack_weights(Context& ctx, const C* w) {
    const int64_t padded = (hidden_ + kUnits - 1) / kUnits * kUnits;
    panel_ = padded * out_;  // of one gate
    w_ = ctx.scratch_of<C>(gates_ * panel_);
    parallel_for(gates_ * (padded / kUnits), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t gate = i / (padded / kUnits), u = i % (padded / kUnits) * kUnits;
        pack_matrix<int(kUnits)>(w_ + gate * panel_ + u * out_, w + (gate * hidden_ + u) * out_, out_, 1,
                                 std::min(kUnits, hidden_ - u), out_);
      }
    });
  }
  /// h W_hh^T of a single step: no other would make up for packing.
  void multiply_once(Context& ctx, const entry::Rnn& c) {
    products_ = ctx.scratch_of<C>(batch_ * gates_ * hidden_);
    TensorView products = c.x, w = c.w;
    products.data = products_;
    std::swap(w.sizes[0], w.sizes[1]), std::swap(w.strides[0], w.strides[1]);
    matmul(ctx, {.out = products, .a = c.h0, .b = w, .params = {}});
  }
  /// Units [u, u + n) of row b: sums of h W_hh^T become gates, and these the new state.
  void row(int64_t t, int64_t b, int64_t i, int64_t u, int64_t n, const C* s, const RowPanels<C>& to) const {
    const int64_t at = begin_[t] + b;
    const C* x = x_ + at * gates_ * hidden_ + u;
    C* keep = reserve_ ? reserve_ + at * kept_ * hidden_ + u : nullptr;
    alignas(64) C h[kUnits];
    if (p_.op == RnnOp::Lstm) lstm(n, x, s, bias_ + u, c_ + b * hidden_ + u, keep, h);
    else if (p_.op == RnnOp::Gru) gru(n, x, s, bias_ + u, Base::before(t, b, y_, h0_, out_, out_) + u, keep, h);
    else {
      const C* bias = bias_ + u;
      const bool relu = p_.op == RnnOp::Relu;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) h[j] = formulas::rnn_unit(relu, x[j] + s[j] + bias[j]);
    }
    if (p_.steps > 1 || projected_) to.set(i, u, n, h);
    if (!projected_) std::copy_n(h, n, y_ + at * out_ + u);
  }
  void lstm(int64_t n, const C* x, const C* s, const C* bias, C* c, C* keep, C* h) const {
    const int64_t H = hidden_;
    alignas(64) C gates[4 * kUnits];
    C *in = gates, *forget = in + kUnits, *cell = forget + kUnits, *out = cell + kUnits;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const auto sum = [&](int64_t g) { return x[g * H + j] + s[g * kUnits + j] + bias[g * H + j]; };
      const auto unit = formulas::lstm_unit(sum(0), sum(1), sum(2), sum(3), c[j]);
      in[j] = unit.in, forget[j] = unit.forget, cell[j] = unit.cell, out[j] = unit.out;
      c[j] = unit.c, h[j] = unit.h;
    }
    if (!keep) return;
    for (int64_t g = 0; g < 4; ++g) std::copy_n(gates + g * kUnits, n, keep + g * H);
    std::copy_n(c, n, keep + 4 * H);
  }
  void gru(int64_t n, const C* x, const C* s, const C* bias, const C* before, C* keep, C* h) const {
    const int64_t H = hidden_;
    alignas(64) C kept[4 * kUnits];
    C *reset = kept, *update = reset + kUnits, *fresh = update + kUnits, *old = fresh + kUnits;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const auto sum = [&](int64_t g) { return x[g * H + j] + s[g * kUnits + j] + bias[g * H + j]; };
      old[j] = s[2 * kUnits + j] + bias[2 * H + j];
      const auto unit = formulas::gru_unit(sum(0), sum(1), x[2 * H + j], old[j], before[j]);
      reset[j] = unit.reset, update[j] = unit.update, fresh[j] = unit.fresh, h[j] = unit.h;
    }
    for (int64_t g = 0; keep && g < 4; ++g) std::copy_n(kept + g * kUnits, n, keep + g * H);
  }
  void project(int64_t t, int64_t first, int64_t rows, int64_t height, const RowPanels<C>& hidden,
               const RowPanels<C>& to) const {
    Base::tiles(rows, out_, height, hidden_, [&](int64_t u, int64_t n, int64_t i0, int64_t count) {
      alignas(64) C sums[Base::kTile];
      hidden.multiply(i0, count, projection_ + u * hidden_, sums, kUnits);
      for (int64_t i = 0; i < count; ++i) {
        to.set(i0 + i, u, n, sums + i * kUnits);
        std::copy_n(sums + i * kUnits, n, y_ + (begin_[t] + first + i0 + i) * out_ + u);
      }
    });
  }

  C *y_, *h_, *c_, *reserve_, *w_ = nullptr, *products_ = nullptr, *projection_ = nullptr, *states_,
                              *hiddens_ = nullptr;
  const C *x_, *bias_;
  int64_t panel_ = 0;
};

template <class C> class Backward : Layer<C> {
  using Base = Layer<C>;
  using Base::batch_, Base::begin_, Base::gates_, Base::h0_, Base::hidden_, Base::kept_, Base::kUnits, Base::out_,
      Base::p_, Base::projected_, Base::rows_of, Base::step;

 public:
  Backward(Context& ctx, const entry::RnnBackward& c)
      : Base(ctx, c.w, c.projection, c.h0, c.batch_sizes, c.params), call_(c), dx_(c.dx.as<C>()), dh_(c.dh0.as<C>()),
        dc_(c.dc0.as<C>()), dy_(c.dy.as<C>()), y_(c.y.as<C>()), reserve_(c.reserve.as<C>()), c0_(c.c0.as<C>()),
        total_(begin_[c.params.steps]) {
    const int64_t wide = gates_ * hidden_;
    if (c.params.steps > 1) w_ = Base::pack(ctx, c.w.as<C>(), 1, out_, out_, wide);
    const auto start = [](C* to, V from, int64_t n) {
      if (from.defined()) std::copy_n(from.as<C>(), n, to);
      else std::fill_n(to, n, C(0));
    };
    start(dh_, c.dh, batch_ * out_);
    if (dc_) start(dc_, c.dc, batch_ * hidden_);
    dgates_ = this->gru_ ? ctx.scratch_of<C>(total_ * wide) : dx_;
    panels_ = ctx.scratch_of<C>(2 * this->buffer_rows_ * wide);
    if (projected_) {
      projection_ = Base::pack(ctx, c.projection.as<C>(), 1, hidden_, hidden_, out_);
      out_panels_ = ctx.scratch_of<C>(this->buffer_rows_ * out_);
      dout_ = ctx.scratch_of<C>(total_ * out_), hiddens_ = ctx.scratch_of<C>(total_ * hidden_);
    }
  }

  void run(Context& ctx) {
    Base::share_rows([&](int64_t first, int64_t last) {
      const int64_t m = last - first, height = Base::height_for(m), wide = gates_ * hidden_;
      const RowPanels<C> outer{projected_ ? out_panels_ + 2 * first * out_ : nullptr, height, out_};
      RowPanels<C> now{panels_ + 4 * first * wide, height, wide}, before = now;
      before.data += (m + Panel<C>::kRows) * wide;
      int64_t pending = 0;  // rows of the step before, whose gates have not reached dh yet
      for (int64_t k = p_.steps; k-- > 0; std::swap(now, before)) {
        const int64_t t = step(k), rows = std::max<int64_t>(0, std::min(last, rows_of(t)) - first);
        if (projected_) {
          Base::tiles(pending, out_, height, wide, [&](auto... tile) { reach_state(first, before, tile...); });
          begin_projected(t, first, rows, outer);
          Base::tiles(rows, hidden_, height, out_, [&](int64_t u, int64_t n, int64_t i0, int64_t count) {
            alignas(64) C sums[Base::kTile];
            outer.multiply(i0, count, projection_ + u * out_, sums, kUnits);
            for (int64_t i = i0; i < i0 + count; ++i) row(t, first + i, i, u, n, sums + (i - i0) * kUnits, now);
          });
        } else {
          Base::tiles(std::max(rows, pending), hidden_, height, wide,
                      [&](int64_t u, int64_t n, int64_t i0, int64_t count) {
                        if (i0 < pending) reach_state(first, before, u, n, i0, std::min(count, pending - i0));
                        for (int64_t i = i0; i < std::min(i0 + count, rows); ++i) {
                          alignas(64) C g[kUnits];
                          const C* from = dh_ + (first + i) * out_ + u;
                          const C* dy = dy_ ? dy_ + (begin_[t] + first + i) * out_ + u : nullptr;
                          for (int64_t j = 0; j < n; ++j) g[j] = dy ? from[j] + dy[j] : from[j];
                          row(t, first + i, i, u, n, g, now);
                        }
                      });
        }
        pending = rows;
      }
      if (w_) Base::tiles(pending, out_, height, wide, [&](auto... tile) { reach_state(first, before, tile...); });
    });
    if (p_.steps <= 1) {  // W_hh is not packed
      const TensorView dgates = matrix(dgates_, total_, gates_ * hidden_);
      matmul(ctx, {.out = call_.dh0, .a = dgates, .b = call_.w, .params = {.beta = this->gru_ ? 1.0 : 0.0}});
    }
    weights(ctx);
  }

 private:
  /// dh of a tile = (Gru: what is there +) dgates W_hh.
  void reach_state(int64_t first, const RowPanels<C>& gates, int64_t u, int64_t n, int64_t i0, int64_t count) const {
    alignas(64) C sums[Base::kTile];
    gates.multiply(i0, count, w_ + u * gates_ * hidden_, sums, kUnits);
    for (int64_t i = 0; i < count; ++i) {
      C* dh = dh_ + (first + i0 + i) * out_ + u;
      const C* s = sums + i * kUnits;
      for (int64_t j = 0; j < n; ++j) dh[j] = this->gru_ ? dh[j] + s[j] : s[j];
    }
  }
  void begin_projected(int64_t t, int64_t first, int64_t rows, const RowPanels<C>& outer) const {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = (begin_[t] + first + i) * out_;
      const C* dh = dh_ + (first + i) * out_;
      for (int64_t j = 0; j < out_; ++j) dout_[at + j] = dy_ ? dh[j] + dy_[at + j] : dh[j];
      outer.set(i, 0, out_, dout_ + at);
    }
  }
  /// Units [u, u + n) of row b: with g = d(hidden state), the gradients of the gates' sums and of what came from the step before.
  void row(int64_t t, int64_t b, int64_t i, int64_t u, int64_t n, const C* g, const RowPanels<C>& to) const {
    const int64_t at = begin_[t] + b, H = hidden_;
    C* dx = dx_ + at * gates_ * H + u;
    C* dgates = dgates_ + at * gates_ * H + u;
    const C* kept = reserve_ ? reserve_ + at * kept_ * H + u : nullptr;
    if (this->lstm_) {
      const C* before = Base::before(t, b, reserve_ + 4 * H, c0_, H, 5 * H) + u;
      lstm(n, g, kept, before, dc_ + b * H + u, dx, projected_ ? hiddens_ + at * H + u : nullptr);
    } else if (this->gru_) {
      gru(n, g, kept, Base::before(t, b, y_, h0_, H, H) + u, dh_ + b * H + u, dx, dgates);
    } else {
      const C* y = y_ + at * H + u;
      const bool relu = p_.op == RnnOp::Relu;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) dx[j] = formulas::rnn_gradient(relu, g[j], y[j]);
    }
    for (int64_t gate = 0; gate < gates_ && w_; ++gate) to.set(i, gate * H + u, n, dgates + gate * H);
  }
  void lstm(int64_t n, const C* g, const C* kept, const C* before, C* dc, C* dx, C* hidden) const {
    const int64_t H = hidden_;
    const C *in = kept, *forget = kept + H, *cell = kept + 2 * H, *out = kept + 3 * H, *c = kept + 4 * H;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const auto d = formulas::lstm_gradient(g[j], dc[j], in[j], forget[j], cell[j], out[j], c[j], before[j]);
      dx[j] = d.in, dx[H + j] = d.forget, dx[2 * H + j] = d.cell, dx[3 * H + j] = d.out;
      dc[j] = d.c;
    }
    for (int64_t j = 0; hidden && j < n; ++j) hidden[j] = out[j] * math::tanh(c[j]);
  }
  void gru(int64_t n, const C* g, const C* kept, const C* before, C* dh, C* dx, C* dgates) const {
    const int64_t H = hidden_;
    const C *reset = kept, *update = kept + H, *fresh = kept + 2 * H, *old = kept + 3 * H;
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const auto d = formulas::gru_gradient(g[j], reset[j], update[j], fresh[j], old[j], before[j]);
      dx[j] = d.reset, dx[H + j] = d.update, dx[2 * H + j] = d.fresh;
      dgates[j] = d.reset, dgates[H + j] = d.update, dgates[2 * H + j] = d.state;
      dh[j] = d.h;
    }
  }

  TensorView matrix(C* data, int64_t rows, int64_t columns, bool transposed = false) const {
    TensorView v = call_.dx;
    v.data = data, v.rank = 2;
    v.sizes[0] = transposed ? columns : rows, v.sizes[1] = transposed ? rows : columns;
    v.strides[0] = transposed ? 1 : columns, v.strides[1] = transposed ? columns : 1;
    return v;
  }
  void weights(Context& ctx) const {
    const int64_t wide = gates_ * hidden_;
    if (call_.dw.defined()) {
      C* states = ctx.scratch_of<C>(total_ * out_);
      parallel_for(p_.steps, 1 + (1 << 15) / (batch_ * out_ + 1), [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t)
          for (int64_t b = 0; b < rows_of(t); ++b)
            std::copy_n(Base::before(t, b, y_, h0_, out_, out_), out_, states + (begin_[t] + b) * out_);
      });
      const TensorView dgates = matrix(dgates_, total_, wide, true), before = matrix(states, total_, out_);
      matmul(ctx, {.out = call_.dw, .a = dgates, .b = before, .params = {}});
    }
    if (call_.dbias.defined()) {
      const TensorView row = matrix(call_.dbias.as<C>(), 1, wide), dgates = matrix(dgates_, total_, wide);
      reduce(ctx, {row, dgates, {.op = ReduceOp::Sum, .dims = 1}});
    }
    if (call_.dprojection.defined()) {
      const TensorView dout = matrix(dout_, total_, out_, true), hiddens = matrix(hiddens_, total_, hidden_);
      matmul(ctx, {.out = call_.dprojection, .a = dout, .b = hiddens, .params = {}});
    }
  }

  const entry::RnnBackward& call_;
  C *dx_, *dh_, *dc_, *dgates_, *panels_, *w_ = nullptr, *projection_ = nullptr, *out_panels_ = nullptr,
                                          *dout_ = nullptr, *hiddens_ = nullptr;
  const C *dy_, *y_, *reserve_, *c0_;
  int64_t total_;
};

}  // namespace

void rnn(Context& ctx, const entry::Rnn& c) {
  if (c.h.numel() == 0) return;
  const detail::FlushDenormals flush(c.y.dtype);  // states fade from step to step
  if (c.y.dtype == kFloat64) Forward<double>(ctx, c).run();
  else Forward<float>(ctx, c).run();
}

void rnn_backward(Context& ctx, const entry::RnnBackward& c) {
  const detail::FlushDenormals flush(c.y.dtype);  // so do their gradients
  if (c.y.dtype == kFloat64) Backward<double>(ctx, c).run(ctx);
  else Backward<float>(ctx, c).run(ctx);
}

}  // namespace tapir::inline v0::cpu
