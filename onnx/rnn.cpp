#include "ops.h"

namespace tapir::inline v0::onnx {
namespace {

/// (B, G H) in equal parts, one for each gate.
std::vector<Value> split(Builder& b, const Value& x, int64_t parts) {
  Shape shape = x.shape;
  shape[1] /= parts;
  std::vector<Value> out;
  std::vector<std::string> names;
  for (int64_t i = 0; i < parts; ++i) out.push_back({b.fresh(), x.dtype, shape}), names.push_back(out.back().name);
  b.graph.nodes.push_back(
      {"Split", {x.name, b.extents(std::vector<int64_t>(size_t(parts), shape[1]))}, names, {{"axis", 1}}});
  return out;
}

/// The weights of a layer: values of the outer graph, which a step uses by name.
struct Weights {
  Value w;  // (P, G H)
  std::optional<Value> bias, projection;
};

struct State {
  Value h, c;
};

/// The state after one step. gates: (B, G H), the inputs' part of the gates' sums.
State step(Builder& b, RnnOp op, const Value& gates, const State& s, const Weights& w) {
  const auto two = [&](const char* name, const Value& x, const Value& y) { return b.pointwise(name, {x, y}); };
  Value sums = b.node("MatMul", {s.h.name, w.w.name}, gates.dtype, gates.shape);
  if (w.bias) sums = b.pointwise("Add", {*w.bias, sums});
  if (op == RnnOp::Tanh || op == RnnOp::Relu)
    return {b.unary(op == RnnOp::Tanh ? "Tanh" : "Relu", two("Add", gates, sums)), s.c};
  if (op == RnnOp::Gru) {
    const auto x = split(b, gates, 3), y = split(b, sums, 3);
    const Value r = b.unary("Sigmoid", two("Add", x[0], y[0])), z = b.unary("Sigmoid", two("Add", x[1], y[1]));
    const Value n = b.unary("Tanh", two("Add", x[2], two("Mul", r, y[2])));
    return {two("Add", n, two("Mul", z, two("Sub", s.h, n))), s.c};
  }
  std::vector<Value> x = split(b, two("Add", gates, sums), 4);  // i f g o
  for (Value& gate : x) gate = b.cast(gate, s.c.dtype);         // float32, where the state has 16 bits
  const Value kept = two("Mul", b.unary("Sigmoid", x[1]), s.c);
  const Value c = two("Add", kept, two("Mul", b.unary("Sigmoid", x[0]), b.unary("Tanh", x[2])));
  Value h = b.cast(two("Mul", b.unary("Sigmoid", x[3]), b.unary("Tanh", c)), s.h.dtype);
  if (w.projection) h = b.node("MatMul", {h.name, w.projection->name}, h.dtype, s.h.shape);
  return {h, c};
}

}  // namespace

/// A Scan over the steps. Its body takes h, c and the gates of one step and gives h, c and the output of that step.
void rnn(Export& e) {
  using entry::Rnn;
  const auto p = e.call->params<RnnParams>();
  if (e.has(&Rnn::batch_sizes)) e.refuse("; sequences of different lengths are not exported");
  if (e.has(&Rnn::reserve)) e.refuse("; what a gradient needs is not exported");
  const bool lstm = p.op == RnnOp::Lstm;
  const Value h = e.read(&Rnn::h0), c = lstm ? e.read(&Rnn::c0) : Value();
  const int64_t wide = e.view(&Rnn::x).shape[1];
  const Value gates = e.b.reshape(e.read(&Rnn::x), {p.steps, h.shape[0], wide});
  Weights w{e.values.read(transposed(e.view(&Rnn::w))), {}, {}};
  if (e.has(&Rnn::bias)) w.bias = e.read(&Rnn::bias);
  if (e.has(&Rnn::projection)) w.projection = e.values.read(transposed(e.view(&Rnn::projection)));

  Builder body(e.b.fresh());
  const Value row{body.fresh(), gates.dtype, {h.shape[0], wide}};
  const State before{{body.fresh(), h.dtype, h.shape}, {body.fresh(), c.dtype, c.shape}};
  const State after = step(body, p.op, row, before, w);
  const Value output = body.unary("Identity", after.h);
  const auto port = [](const Value& v) {
    return Port{v.name, v.dtype, std::vector<int64_t>(size_t(v.shape.size()), Port::kAny)};
  };
  body.graph.inputs = {port(before.h)}, body.graph.outputs = {port(after.h)};
  if (lstm) body.graph.inputs.push_back(port(before.c)), body.graph.outputs.push_back(port(after.c));
  body.graph.inputs.push_back(port(row)), body.graph.outputs.push_back(port(output));

  const Value y{e.b.fresh(), h.dtype, {p.steps, h.shape[0], h.shape[1]}}, last_h{e.b.fresh(), h.dtype, h.shape},
      last_c{e.b.fresh(), c.dtype, c.shape};
  const std::vector<int64_t> direction{p.reverse};
  const auto names = [&](const Value& a, const Value& b, const Value& c) {
    return lstm ? std::vector<std::string>{a.name, b.name, c.name} : std::vector<std::string>{a.name, c.name};
  };
  e.b.graph.nodes.push_back({"Scan",
                             names(h, c, gates),
                             names(last_h, last_c, y),
                             {{"body", std::make_shared<Graph>(body.graph)},
                              {"num_scan_inputs", 1},
                              {"scan_input_directions", direction},
                              {"scan_output_directions", direction}}});
  e.write(&Rnn::y, y), e.write(&Rnn::h, last_h);
  if (lstm) e.write(&Rnn::c, last_c);
}

}  // namespace tapir::inline v0::onnx
