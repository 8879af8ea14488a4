#include <tapir/core/backend.h>

#include "helpers.h"

namespace {
struct Layer {
  RnnOp op;
  RnnLayerOptions options;
  /// Inputs: x, h, weights (ih, hh), biases, then c of Lstm and weight_hr.
  std::vector<Tensor> run(const std::vector<Tensor>& in) const {
    const bool lstm = op == RnnOp::Lstm;
    RnnWeights w{in[2], in[3], in[4], in[5]};
    if (in.size() > 7) w.weight_hr = in[7];
    const RnnResult r = rnn_layer(op, in[0], in[1], lstm ? in[6] : Tensor(), w, options);
    return lstm ? std::vector<Tensor>{r.output, r.h, r.c} : std::vector<Tensor>{r.output, r.h};
  }
};
std::vector<Tensor> operands(RnnOp op, const Shape& x, int64_t batch, int64_t hidden, int64_t projected = 0) {
  const int64_t gates = op == RnnOp::Lstm ? 4 : op == RnnOp::Gru ? 3 : 1, out = projected ? projected : hidden;
  std::vector<Shape> shapes = {
      x, {batch, out}, {gates * hidden, x[x.size() - 1]}, {gates * hidden, out}, gates * hidden, gates * hidden};
  if (op == RnnOp::Lstm) shapes.push_back({batch, hidden});
  if (projected) shapes.push_back({projected, hidden});
  std::vector<Tensor> out_list;
  for (const Shape& s : shapes) out_list.push_back((randn(s, {.dtype = kFloat64}) * 0.4).detach().requires_grad_());
  return out_list;
}
Values all_values(const std::vector<Tensor>& list) {
  Values v;
  for (const Tensor& t : list)
    for (double x : values(t)) v.push_back(x);
  return v;
}
}  // namespace

TEST_CASE("The fused gradient of a layer is that of its steps, for any batch and number of threads") {
  manual_seed(1);
  const int before = get_num_threads();
  for (const RnnOp op : {RnnOp::Tanh, RnnOp::Relu, RnnOp::Gru, RnnOp::Lstm})
    for (const bool reverse : {false, true})
      for (const int64_t batch : {1, 3, 40})
        for (const int threads : {1, 2}) {
          set_num_threads(threads);
          const Layer layer{op, {.reverse = reverse}};
          const auto in = operands(op, {3, batch, 5}, batch, 37, op == RnnOp::Lstm && batch == 3 ? 20 : 0);
          const auto out = layer.run(in);
          std::vector<Tensor> g;
          for (const Tensor& y : out) g.push_back(randn(y.shape(), {.dtype = kFloat64}));
          const auto fused = grad(out, in, g, {.retain_graph = true}), steps = grad(out, in, g, {.create_graph = true});
          CHECK(close(all_values(fused), all_values(steps), 1e-10));
        }
  set_num_threads(before);
}

TEST_CASE("Layers have second derivatives") {
  manual_seed(2);
  for (const RnnOp op : {RnnOp::Tanh, RnnOp::Gru, RnnOp::Lstm}) {
    const Layer layer{op, {}};
    CHECK(gradients_hold([&](const std::vector<Tensor>& in) { return layer.run(in); }, operands(op, {2, 2, 2}, 2, 2)));
  }
}

TEST_CASE("Rows of a packed layer are those of each sequence alone") {
  manual_seed(3);
  const std::vector<int64_t> lengths = {4, 3, 1};
  for (const RnnOp op : {RnnOp::Tanh, RnnOp::Gru, RnnOp::Lstm})
    for (const bool reverse : {false, true}) {
      const Tensor sizes = tensor({3, 2, 2, 1});
      auto in = operands(op, {8, 5}, 3, 6);
      const auto packed = Layer{op, {.reverse = reverse, .batch_sizes = sizes}}.run(in);
      for (int64_t b = 0; b < 3; ++b) {
        std::vector<Tensor> rows, outputs;
        for (int64_t t = 0, at = 0; t < lengths[size_t(b)]; at += sizes.select(0, t).item<int64_t>(), ++t)
          rows.push_back(in[0].narrow(0, at + b, 1)), outputs.push_back(packed[0].narrow(0, at + b, 1));
        auto alone = in;
        alone[0] = stack(rows), alone[1] = in[1].narrow(0, b, 1);
        if (op == RnnOp::Lstm) alone[6] = in[6].narrow(0, b, 1);
        const auto want = Layer{op, {.reverse = reverse}}.run(alone);
        CHECK(close(values(stack(outputs)), values(want[0]), 1e-12));
        CHECK(close(values(packed[1].select(0, b)), values(want[1]), 1e-12));
      }
    }
}

TEST_CASE("A layer of no sequences gives empty results and zero gradients") {
  auto in = operands(RnnOp::Lstm, {3, 0, 5}, 0, 4);
  const auto out = Layer{RnnOp::Lstm, {}}.run(in);
  CHECK(out[0].shape() == Shape{3, 0, 4});
  sum(out[0]).backward();
  for (size_t i = 2; i < 6; ++i) CHECK(values(in[i].grad()) == Values(size_t(in[i].numel()), 0));
}

TEST_CASE("A layer refuses operands that do not fit") {
  const auto in = operands(RnnOp::Gru, {3, 2, 5}, 2, 4);
  const auto text = [&](size_t i, const Tensor& x, const RnnLayerOptions& o = {}) {
    auto changed = in;
    changed[i] = x;
    return error_of([&] { Layer{RnnOp::Gru, o}.run(changed); });
  };
  const TensorOptions f64{.dtype = kFloat64};
  CHECK(mentions(text(0, zeros({3, 2, 6}, f64)), {"5 features", "(3, 2, 6)"}));
  CHECK(mentions(text(0, zeros({3, 3, 5}, f64)), {"(T, 2, in)", "(3, 3, 5)"}));
  CHECK(mentions(text(0, zeros({3, 2, 5})), {"one floating-point dtype"}));
  CHECK(mentions(text(1, zeros({2, 5}, f64)), {"h of shape (2, 4)", "(2, 5)"}));
  CHECK(mentions(text(3, zeros({12, 5}, f64)), {"weight_hh", "(12, 4)"}));
  CHECK(mentions(text(4, zeros(11, f64)), {"bias_ih", "(12,)"}));
  CHECK(mentions(text(4, Tensor()), {"both biases"}));
  const Tensor rows = zeros({5, 5}, f64);
  CHECK(mentions(text(0, rows, {.batch_sizes = tensor({2, 3})}), {"3 at step 1"}));
  CHECK(mentions(text(0, rows, {.batch_sizes = tensor({2, 0})}), {"0 at step 1"}));
  CHECK(mentions(text(0, rows, {.batch_sizes = tensor({3, 2})}), {"start with 2", "3 at step 0"}));
  CHECK(mentions(text(0, rows, {.batch_sizes = tensor({2, 2})}), {"(4, in)", "(5, 5)"}));
}
