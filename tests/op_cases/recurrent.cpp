// Recurrent layers and cells.
#include <tapir/core/backend.h>

#include <cmath>

#include "case.h"

namespace op_cases {

namespace {
struct Operands {
  Array x, h, c;  // (T, B, in), (B, P), (B, H)
  Array w_ih, w_hh, b_ih, b_hh, w_hr;
};
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// The outputs of all steps and the last states, number by number. rows[t]: how many sequences step t has.
Arrays recurrence(RnnOp op, Operands o, bool reverse = false, std::vector<int64_t> rows = {}) {
  const int64_t gates = op == RnnOp::Lstm ? 4 : op == RnnOp::Gru ? 3 : 1, hidden = o.w_ih.shape[0] / gates;
  const bool packed = !rows.empty(), projected = !o.w_hr.v.empty();
  const int64_t batch = o.h.shape[0], out = o.h.shape[1], inputs = o.w_ih.shape[1];
  if (!packed) rows.assign(size_t(o.x.shape[0]), batch);
  std::vector<int64_t> begin(1, 0);
  for (int64_t n : rows) begin.push_back(begin.back() + n);
  Array y(packed ? Shape{begin.back(), out} : Shape{o.x.shape[0], batch, out});
  for (int64_t k = 0; k < int64_t(rows.size()); ++k) {
    const int64_t t = reverse ? int64_t(rows.size()) - 1 - k : k;
    for (int64_t b = 0; b < rows[size_t(t)]; ++b) {
      const double* x = o.x.v.data() + (begin[size_t(t)] + b) * inputs;
      const auto from_input = [&](int64_t row) {
        double sum = o.b_ih.v.empty() ? 0 : o.b_ih.v[size_t(row)];
        for (int64_t i = 0; i < inputs; ++i) sum += o.w_ih.at({row, i}) * x[i];
        return sum;
      };
      const auto from_state = [&](int64_t row) {
        double sum = o.b_hh.v.empty() ? 0 : o.b_hh.v[size_t(row)];
        for (int64_t i = 0; i < out; ++i) sum += o.w_hh.at({row, i}) * o.h.at({b, i});
        return sum;
      };
      const auto gate = [&](int64_t g, int64_t u) { return from_input(g * hidden + u) + from_state(g * hidden + u); };
      std::vector<double> next;
      for (int64_t u = 0; u < hidden; ++u) {
        if (op == RnnOp::Tanh) next.push_back(std::tanh(gate(0, u)));
        else if (op == RnnOp::Relu) next.push_back(std::max(0.0, gate(0, u)));
        else if (op == RnnOp::Gru) {
          const double r = sigmoid_of(gate(0, u)), z = sigmoid_of(gate(1, u));
          const double n = std::tanh(from_input(2 * hidden + u) + r * from_state(2 * hidden + u));
          next.push_back((1 - z) * n + z * o.h.at({b, u}));
        } else {
          double& c = o.c.at({b, u});
          c = sigmoid_of(gate(1, u)) * c + sigmoid_of(gate(0, u)) * std::tanh(gate(2, u));
          next.push_back(sigmoid_of(gate(3, u)) * std::tanh(c));
        }
      }
      for (int64_t u = 0; u < out; ++u) {
        double v = projected ? 0 : next[size_t(u)];
        for (int64_t i = 0; projected && i < hidden; ++i) v += o.w_hr.at({u, i}) * next[size_t(i)];
        y.v[size_t((begin[size_t(t)] + b) * out + u)] = v;
      }
      for (int64_t u = 0; u < out; ++u) o.h.at({b, u}) = y.v[size_t((begin[size_t(t)] + b) * out + u)];
    }
  }
  if (op == RnnOp::Lstm) return {y, o.h, o.c};
  return {y, o.h};
}
List layer(RnnOp op, const List& x, const RnnLayerOptions& o = {}, bool projected = false) {
  const bool lstm = op == RnnOp::Lstm;
  const size_t w = lstm ? 3 : 2, b = w + 2;
  RnnWeights weights{x[w], x[w + 1]};
  if (x.size() > b + 1) weights.bias_ih = x[b], weights.bias_hh = x[b + 1];
  if (projected) weights.weight_hr = x.back();
  const RnnResult r = rnn_layer(op, x[0], x[1], lstm ? x[2] : Tensor(), weights, o);
  return lstm ? List{r.output, r.h, r.c} : List{r.output, r.h};
}
Operands operands(RnnOp op, const Arrays& x, bool projected = false) {
  const bool lstm = op == RnnOp::Lstm;
  const size_t w = lstm ? 3 : 2, b = w + 2;
  const Array none(0);
  const bool biased = x.size() > b + 1;
  return {x[0], x[1], lstm ? x[2] : none, x[w], x[w + 1], biased ? x[b] : none, biased ? x[b + 1] : none, projected ? x.back() : none};
}
}  // namespace

void recurrent_cases(Table& table) {
  const auto line = [](Case& c) -> Case& { return c.in({kUnit}).within(128).finite_only().no_expand(); };
  const Tensor sizes = tensor({3, 2, 2, 1});
  const std::vector<int64_t> rows = {3, 2, 2, 1};
  for (const bool reverse : {false, true}) {
    for (const RnnOp op : {RnnOp::Tanh, RnnOp::Relu})
      line(CASE(rnn_layer, layer(op, x, {.reverse = reverse})))
          .on("(3,2,4) (2,5) (5,4) (5,5) (5) (5) | (2,0,4) (0,5) (5,4) (5,5) | (1,1,0) (1,2) (2,0) (2,2) | (2,30,3) (30,40) (40,3) (40,40) (40) (40)")
          .EXPECT(recurrence(op, operands(op, x), reverse));
    line(CASE(rnn_layer, layer(RnnOp::Gru, x, {.reverse = reverse})))
        .on("(3,2,4) (2,5) (15,4) (15,5) (15) (15) | (2,0,4) (0,5) (15,4) (15,5) | (2,30,3) (30,35) (105,3) (105,35)")
        .EXPECT(recurrence(RnnOp::Gru, operands(RnnOp::Gru, x), reverse));
    line(CASE(rnn_layer, layer(RnnOp::Gru, x, {.reverse = reverse, .batch_sizes = sizes})))
        .on("(8,4) (3,5) (15,4) (15,5) (15) (15)")
        .EXPECT(recurrence(RnnOp::Gru, operands(RnnOp::Gru, x), reverse, rows));
    line(CASE(rnn_layer, layer(RnnOp::Lstm, x, {.reverse = reverse})))
        .on("(3,2,4) (2,5) (2,5) (20,4) (20,5) (20) (20) | (2,0,4) (0,5) (0,5) (20,4) (20,5) | (2,30,3) (30,35) (30,35) (140,3) (140,35)")
        .perf("(64,32,512) (32,512) (32,512) (2048,512) (2048,512) (2048) (2048)")
        .EXPECT(recurrence(RnnOp::Lstm, operands(RnnOp::Lstm, x), reverse));
    line(CASE(rnn_layer, layer(RnnOp::Lstm, x, {.reverse = reverse, .batch_sizes = sizes}, true)))
        .on("(8,4) (3,2) (3,5) (20,4) (20,2) (20) (20) (2,5)")
        .EXPECT(recurrence(RnnOp::Lstm, operands(RnnOp::Lstm, x, true), reverse, rows));
  }
  const auto cell = [](RnnOp op, const Arrays& x) {  // one step of a layer
    Operands o = operands(op, x);
    o.x.shape = {1, o.x.shape[0], o.x.shape[1]};
    Arrays y = recurrence(op, o);
    y.erase(y.begin());
    return y;
  };
  line(CASE(rnn_tanh_cell, rnn_tanh_cell(x[0], x[1], {x[2], x[3], x[4], x[5]}))).on("(2,4) (2,5) (5,4) (5,5) (5) (5)").EXPECT(cell(RnnOp::Tanh, x));
  line(CASE(rnn_relu_cell, rnn_relu_cell(x[0], x[1], {x[2], x[3]}))).on("(2,4) (2,5) (5,4) (5,5)").EXPECT(cell(RnnOp::Relu, x));
  line(CASE(gru_cell, gru_cell(x[0], x[1], {x[2], x[3], x[4], x[5]}))).on("(2,4) (2,5) (15,4) (15,5) (15) (15)").EXPECT(cell(RnnOp::Gru, x));
  line(CASE(lstm_cell, lstm_cell(x[0], x[1], x[2], {x[3], x[4], x[5], x[6]}))).on("(2,4) (2,5) (2,5) (20,4) (20,5) (20) (20)").EXPECT(cell(RnnOp::Lstm, x));
}

}  // namespace op_cases
