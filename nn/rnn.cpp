#include "rnn.h"

#include <cmath>
#include <tuple>

#include "../core/backend.h"
#include "../core/fail_as.h"
#include "../ops/create.h"
#include "../ops/dropout.h"
#include "../ops/indexing.h"
#include "../ops/rnn.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "init.h"
#include "layer_count.h"

namespace tapir::inline v0::nn {
namespace {

const char* name_of(RnnOp op) { return op == RnnOp::Lstm ? "LSTM" : op == RnnOp::Gru ? "GRU" : "RNN"; }
int64_t gates_of(RnnOp op) { return op == RnnOp::Lstm ? 4 : op == RnnOp::Gru ? 3 : 1; }
RnnOp op_of(const char* name, const std::string& nonlinearity) {
  check(nonlinearity == "tanh" || nonlinearity == "relu", "[{}] expected nonlinearity tanh or relu, got {}", name,
        nonlinearity);
  return nonlinearity == "relu" ? RnnOp::Relu : RnnOp::Tanh;
}
Parameter weight(const Shape& shape, int64_t hidden) {
  Parameter w(empty(shape));
  const double bound = 1 / std::sqrt(double(hidden));
  init::uniform_(w, -bound, bound);
  return w;
}
void check_sizes(const std::string& name, int64_t input, int64_t hidden) {
  constexpr int64_t kMost = int64_t(1) << 40;
  check(input >= 0 && hidden > 0 && input <= kMost && hidden <= kMost,
        "[{}] expected input_size from 0 to 2^40 and hidden_size from 1 to 2^40, got {} and {}", name, input, hidden);
}
void check_tensor_type(const std::string& name, const char* what, const Tensor& x, DType weights) {
  check(modes.autocast || x.dtype() == weights, "[{}] expected {} of the weights' dtype {}, got {}", name, what,
        weights, x);
}

}  // namespace

RNNBase::RNNBase(RnnOp op, int64_t input, int64_t hidden, const LSTMOptions& o) try
    : op(op), input_size(input), hidden_size(hidden), num_layers(o.num_layers), proj_size(o.proj_size), bias(o.bias),
      batch_first(o.batch_first), bidirectional(o.bidirectional), dropout(o.dropout) {
  const char* name = name_of(op);
  check_sizes(name, input, hidden);
  check_layers(name, "num_layers", num_layers, 1);
  check(dropout >= 0 && dropout <= 1, "[{}] expected dropout in [0, 1], got {}", name, dropout);
  check(proj_size >= 0 && proj_size < hidden, "[{}] expected proj_size in [0, hidden_size = {}), got {}", name, hidden,
        proj_size);
  const int64_t wide = gates_of(op) * hidden, out = proj_size > 0 ? proj_size : hidden, directions = bidirectional + 1;
  for (int64_t layer = 0; layer < num_layers; ++layer)
    for (int64_t d = 0; d < directions; ++d) {
      weights.push_back(weight({wide, layer == 0 ? input : directions * out}, hidden));
      weights.push_back(weight({wide, out}, hidden));
      for (int i = 0; bias && i < 2; ++i) weights.push_back(weight(wide, hidden));
      if (proj_size > 0) weights.push_back(weight({out, hidden}, hidden));
    }
} catch (...) {
  fail_as(name_of(op));
}

std::string RNNBase::weight_name(size_t i) const {
  const int64_t at = int64_t(i) / per_layer(), kind = int64_t(i) % per_layer(), directions = bidirectional + 1;
  const char* const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"};
  return tapir::format("{}_l{}{}", names[bias || kind < 2 ? kind : 4], at / directions,
                       at % directions ? "_reverse" : "");
}
void RNNBase::tapir_rename(std::vector<Field>& fields) {
  size_t i = 0;
  for (Field& f : fields)
    if (f.kind == Field::Kind::Parameter) f.name = weight_name(i++);
}
std::string RNNBase::extra_repr() {
  std::string s = tapir::format("{}, {}", input_size, hidden_size);
  if (proj_size > 0) s += tapir::format(", proj_size={}", proj_size);
  if (num_layers != 1) s += tapir::format(", num_layers={}", num_layers);
  if (!bias) s += ", bias=False";
  if (batch_first) s += ", batch_first=True";
  if (dropout != 0) s += tapir::format(", dropout={}", dropout);
  if (bidirectional) s += ", bidirectional=True";
  return s;
}

Shape RNNBase::state_shape(int64_t batch, bool cell) const {
  return {num_layers * (bidirectional + 1), batch, cell || proj_size == 0 ? hidden_size : proj_size};
}
void RNNBase::check_input(const Tensor& x, bool packed) const {
  const char* name = name_of(op);
  check(x.defined(), "[{}] expected an input, got an undefined tensor", name);
  if (packed) check(x.dim() == 2, "[{}] expected packed rows (N, {}), got {}", name, input_size, x);
  else check(x.dim() == 2 || x.dim() == 3, "[{}] expected input to be 2D or 3D, got {}D instead: {}", name, x.dim(), x);
  check(x.size(-1) == input_size, "[{}] input.size(-1) must be equal to input_size: expected {}, got {} of {}", name,
        input_size, x.size(-1), x);
  check_tensor_type(name, "input", x, weight_type());
  check(packed || x.size(x.dim() == 3 && batch_first ? 1 : 0) > 0,
        "[{}] expected sequence length to be larger than 0, got {}", name, x);
}
void RNNBase::check_state(const LSTMState& s, int64_t batch) const {
  const char* name = name_of(op);
  const bool lstm = op == RnnOp::Lstm;
  check(!lstm || s.h.defined() == s.c.defined(), "[{}] expected both h and c of the state or none, got one", name);
  for (const Tensor* t : {&s.h, &s.c}) {
    if (!t->defined()) continue;
    const char* what = !lstm ? "hidden" : t == &s.h ? "hidden[0]" : "hidden[1]";
    const Shape want = state_shape(batch, t == &s.c);
    check(t->shape() == want, "[{}] expected {} size {}, got {}", name, what, want, t->shape());
    check_tensor_type(name, what, *t, weight_type());
  }
}

DType RNNBase::weight_type() const {
  for (const Parameter& w : weights)
    if (w.defined()) return w.dtype();
  return kFloat32;  // all of them quantized
}
RnnResult RNNBase::run_layer(int64_t at, const Tensor& x, const LSTMState& state, const Tensor& batch_sizes) {
  check((at + 1) * per_layer() <= int64_t(weights.size()), "[{}] expected at least {} weights, got {} (moved from?)",
        name_of(op), (at + 1) * per_layer(), int64_t(weights.size()));
  const Parameter* w = &weights[size_t(at * per_layer())];
  RnnWeights of_layer{w[0], w[1]};
  if (bias) of_layer.bias_ih = w[2], of_layer.bias_hh = w[3];
  if (proj_size > 0) of_layer.weight_hr = w[bias ? 4 : 2];
  const bool reverse = bidirectional && at % 2 == 1;
  return rnn_layer(op, x, state.h, state.c, of_layer, {.reverse = reverse, .batch_sizes = batch_sizes});
}

RNNBase::Result RNNBase::run(const Tensor& input, const LSTMState& given, const Tensor& batch_sizes) {
  const bool lstm = op == RnnOp::Lstm, packed = batch_sizes.defined();
  const int64_t batch = packed ? batch_sizes.data<int64_t>()[0] : input.size(1), directions = bidirectional + 1;
  check_state(given, batch);
  const TensorOptions like{.dtype = input.dtype(), .device = input.device()};
  const Shape h_shape = state_shape(batch, false), c_shape = state_shape(batch, true);
  const Tensor h0 = given.h.defined() ? given.h : zeros(h_shape, like);
  const Tensor c0 = given.c.defined() || !lstm ? given.c : zeros(c_shape, like);
  Tensor x = input;
  std::vector<Tensor> h, c;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t at = layer * directions + d;
      RnnResult r = run_layer(at, x, {select(h0, 0, at), lstm ? select(c0, 0, at) : Tensor()}, batch_sizes);
      outputs.push_back(r.output), h.push_back(r.h), c.push_back(r.c);
    }
    x = directions == 2 ? cat(outputs, -1) : outputs[0];
    if (dropout > 0 && layer < num_layers - 1) x = tapir::dropout(x, dropout, training);
  }
  return {x, {stack(h), lstm ? stack(c) : Tensor()}};
}

RNNBase::Result RNNBase::run(const Tensor& input, const LSTMState& given) {
  check_input(input, false);
  if (input.dim() == 3) {
    Result r = run(batch_first ? transpose(input, 0, 1) : input, given, Tensor());
    if (batch_first) r.output = transpose(r.output, 0, 1);
    return r;
  }
  const auto with_batch = [&](const Tensor& s) {
    check(!s.defined() || s.dim() == 2, "[{}] for unbatched 2-D input, the state should also be 2-D, but got {}-D",
          name_of(op), s.defined() ? s.dim() : 0);
    return s.defined() ? unsqueeze(s, 1) : s;
  };
  Result r = run(unsqueeze(input, 1), {with_batch(given.h), with_batch(given.c)}, Tensor());
  for (Tensor* t : {&r.output, &r.state.h, &r.state.c})
    if (t->defined()) *t = squeeze(*t, 1);
  return r;
}

PackedSequence RNNBase::run(const PackedSequence& input, LSTMState& state) {
  check_input(input.data, true);
  check(input.batch_sizes.defined() && input.batch_sizes.dim() == 1 && input.batch_sizes.numel() > 0 &&
            input.batch_sizes.dtype() == kInt64 && input.batch_sizes.device().is_cpu() &&
            input.batch_sizes.data<int64_t>()[0] > 0,
        "[{}] expected batch_sizes as int64 (T) on the host, above 0, got {}", name_of(op), input.batch_sizes);
  check_state(state, input.batch_sizes.data<int64_t>()[0]);
  const auto ordered = [&](const Tensor& s, const Tensor& order) {
    return s.defined() && order.defined() ? index_select(s, 1, order) : s;
  };
  const Tensor &sorted = input.sorted_indices, &unsorted = input.unsorted_indices;
  const Result r = run(input.data, {ordered(state.h, sorted), ordered(state.c, sorted)}, input.batch_sizes);
  state = {ordered(r.state.h, unsorted), ordered(r.state.c, unsorted)};
  return {r.output, input.batch_sizes, sorted, unsorted};
}

RNN::RNN(int64_t input, int64_t hidden, const RNNOptions& o)
    : RNNBase(op_of("RNN", o.nonlinearity), input, hidden,
              {o.num_layers, o.bias, o.batch_first, o.dropout, o.bidirectional}),
      nonlinearity(o.nonlinearity) {}

GRU::GRU(int64_t input, int64_t hidden, const GRUOptions& o)
    : RNNBase(RnnOp::Gru, input, hidden, {o.num_layers, o.bias, o.batch_first, o.dropout, o.bidirectional}) {}

#define TAPIR_FORWARD(Name)                                                      \
  Name::Output Name::forward(const Tensor& input, const Tensor& state) {         \
    Result r = run(input, {state, {}});                                          \
    return {r.output, r.state.h};                                                \
  }                                                                              \
  Name::Packed Name::forward(const PackedSequence& input, const Tensor& state) { \
    LSTMState s{state, {}};                                                      \
    PackedSequence output = run(input, s);                                       \
    return {output, s.h};                                                        \
  }
TAPIR_FORWARD(RNN)
TAPIR_FORWARD(GRU)
#undef TAPIR_FORWARD

LSTM::LSTM(int64_t input, int64_t hidden, const LSTMOptions& o) : RNNBase(RnnOp::Lstm, input, hidden, o) {}
LSTM::Output LSTM::forward(const Tensor& input, const LSTMState& state) {
  Result r = run(input, state);
  return {r.output, r.state};
}
LSTM::Packed LSTM::forward(const PackedSequence& input, const LSTMState& state) {
  LSTMState s = state;
  PackedSequence output = run(input, s);
  return {output, s};
}

RNNCellBase::RNNCellBase(RnnOp op, int64_t input, int64_t hidden, bool bias) try
    : op(op), input_size(input), hidden_size(hidden) {
  check_sizes(name_of(op) + std::string("Cell"), input, hidden);
  const int64_t wide = gates_of(op) * hidden;
  weight_ih = weight({wide, input}, hidden), weight_hh = weight({wide, hidden}, hidden);
  if (bias) bias_ih = weight(wide, hidden), bias_hh = weight(wide, hidden);
} catch (...) {
  fail_as((name_of(op) + std::string("Cell")).c_str());
}
std::string RNNCellBase::extra_repr() {
  std::string s = tapir::format("{}, {}", input_size, hidden_size);
  if (!bias_ih.defined()) s += ", bias=False";
  return op == RnnOp::Relu ? s + ", nonlinearity=relu" : s;
}
LSTMState RNNCellBase::step(const Tensor& x, const LSTMState& given) {
  const std::string name = name_of(op) + std::string("Cell");
  check(x.defined() && (x.dim() == 1 || x.dim() == 2), "[{}] expected input to be 1D or 2D, got {}", name, x);
  check(x.size(-1) == input_size, "[{}] expected input with {} features, got {}", name, input_size, x);
  check_tensor_type(name, "input", x, weight_ih.dtype());
  const bool lstm = op == RnnOp::Lstm, single = x.dim() == 1;
  check(!lstm || given.h.defined() == given.c.defined(), "[{}] expected both h and c of the state or none, got one",
        name);
  Shape want = x.shape();
  want[want.size() - 1] = hidden_size;
  const auto state = [&](const Tensor& s, const char* what) {
    if (!s.defined()) return zeros({single ? 1 : x.size(0), hidden_size}, {.dtype = x.dtype(), .device = x.device()});
    check(s.shape() == want, "[{}] expected {} size {}, got {}", name, what, want, s.shape());
    check_tensor_type(name, what, s, weight_ih.dtype());
    return single ? unsqueeze(s, 0) : s;
  };
  const Tensor h = state(given.h, lstm ? "hidden[0]" : "hidden"), c = lstm ? state(given.c, "hidden[1]") : Tensor();
  const Tensor rows = single ? unsqueeze(x, 0) : x;
  const RnnWeights w{weight_ih, weight_hh, bias_ih, bias_hh};
  LSTMState next;
  if (lstm) std::tie(next.h, next.c) = lstm_cell(rows, h, c, w);
  else
    next.h = op == RnnOp::Gru    ? gru_cell(rows, h, w)
             : op == RnnOp::Relu ? rnn_relu_cell(rows, h, w)
                                 : rnn_tanh_cell(rows, h, w);
  for (Tensor* t : {&next.h, &next.c})
    if (single && t->defined()) *t = squeeze(*t, 0);
  return next;
}

RNNCell::RNNCell(int64_t input, int64_t hidden, const RNNCellOptions& o)
    : RNNCellBase(op_of("RNNCell", o.nonlinearity), input, hidden, o.bias) {}
Tensor RNNCell::forward(const Tensor& input, const Tensor& h) { return step(input, {h, {}}).h; }
GRUCell::GRUCell(int64_t input, int64_t hidden, const CellOptions& o)
    : RNNCellBase(RnnOp::Gru, input, hidden, o.bias) {}
Tensor GRUCell::forward(const Tensor& input, const Tensor& h) { return step(input, {h, {}}).h; }
LSTMCell::LSTMCell(int64_t input, int64_t hidden, const CellOptions& o)
    : RNNCellBase(RnnOp::Lstm, input, hidden, o.bias) {}
LSTMState LSTMCell::forward(const Tensor& input, const LSTMState& state) { return step(input, state); }

TAPIR_DEFINE_FIELDS(RNNBase, RNN, GRU, LSTM, RNNCellBase, RNNCell, GRUCell, LSTMCell)

LSTM::Output LSTM::operator()(const Tensor& input, const LSTMState& state) { return detail::call(*this, input, state); }
LSTMState LSTMCell::operator()(const Tensor& input, const LSTMState& state) {
  return detail::call(*this, input, state);
}

}  // namespace tapir::inline v0::nn
