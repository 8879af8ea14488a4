// cuda_kernels/recurrent: layers and their gradients beside the CPU's.
#include <tapir/core/backend.h>

#include "kernels.h"

using namespace tapir;

namespace {
using List = std::vector<Tensor>;
struct Layer {
  RnnOp op;
  int64_t steps, batch, inputs, hidden;
  bool reverse = false;
  std::vector<int64_t> sizes = {};  // of the steps' batches
  int64_t projected = 0;
  bool biased = true, shifted = false;  // shifted: h begins at no multiple of 16 bytes
};

/// Results, then the gradients of x, h, c and the weights.
List run(const Layer& l, DType dtype, Device device) {
  const int64_t gates = l.op == RnnOp::Lstm ? 4 : l.op == RnnOp::Gru ? 3 : 1;
  const int64_t out = l.projected ? l.projected : l.hidden, wide = gates * l.hidden;
  int64_t rows = 0;
  for (const int64_t n : l.sizes) rows += n;
  uint64_t seed = 1;
  List all;
  const auto operand = [&](const Shape& shape, double scale) {
    const Tensor x = (numbers(shape, kFloat32, ++seed) * scale).to(dtype).to(device);
    return all.emplace_back(x.detach().requires_grad_());
  };
  const double scale = 1 / std::sqrt(double(out));
  const Tensor x = operand(l.sizes.empty() ? Shape{l.steps, l.batch, l.inputs} : Shape{rows, l.inputs}, 0.7);
  Tensor h = operand({l.batch * out + 1}, 0.7), c;
  h = l.shifted ? view(narrow(h, 0, 1, l.batch * out), {l.batch, out})
                : view(narrow(h, 0, 0, l.batch * out), {l.batch, out});
  if (l.op == RnnOp::Lstm) c = operand({l.batch, l.hidden}, 0.7);
  RnnWeights w{operand({wide, l.inputs}, 0.5), operand({wide, out}, scale)};
  if (l.biased) w.bias_ih = operand({wide}, 0.3), w.bias_hh = operand({wide}, 0.3);
  if (l.projected) w.weight_hr = operand({out, l.hidden}, 1 / std::sqrt(double(l.hidden)));
  RnnLayerOptions options{.reverse = l.reverse};
  if (!l.sizes.empty()) options.batch_sizes = tensor(l.sizes);
  const RnnResult r = rnn_layer(l.op, x, h, c, w, options);
  List results = {r.output, r.h};
  if (c.defined()) results.push_back(r.c);
  Tensor sum;
  for (const Tensor& y : results) {
    const Tensor part = tapir::sum(y * numbers(y.shape(), dtype, ++seed).to(device));
    sum = sum.defined() ? sum + part : part;
  }
  sum.backward();
  for (const Tensor& operand : all) results.push_back(operand.grad());
  return results;
}
void check(const Layer& l, DType dtype) {
  const List host = run(l, dtype, kCPU), device = run(l, dtype, kCUDA);
  const bool rounds_over_kink =
      l.op == RnnOp::Relu && dtype == kBFloat16;  // a sum near 0 has another sign, and gradient
  for (size_t i = 0; i < (rounds_over_kink ? 2 : host.size()); ++i) {
    CAPTURE(int(l.op), l.steps, l.batch, l.hidden, l.reverse, std::string(name_of(dtype)), i);
    CHECK(difference(device[i], host[i]) < 4 * rounding(dtype));
  }
}
int64_t library_products() {
  const std::string report = cuda::library_report();
  const size_t at = report.find("served: ", report.find("cuBLASLt"));
  return at == std::string::npos ? 0 : std::atoll(report.c_str() + at + 8);
}
constexpr RnnOp kOps[] = {RnnOp::Tanh, RnnOp::Relu, RnnOp::Lstm, RnnOp::Gru};
}  // namespace

TEST_CASE("cuda rnn: results and gradients of every operation and dtype") {
  NEEDS_CUDA
  for (const DType dtype : kFloats)
    for (const RnnOp op : kOps)
      for (const bool reverse : {false, true}) {
        check({op, 3, 5, 6, 16, reverse}, dtype);
        check({op, 3, 3, 5, 7, reverse}, dtype);  // no whole packs: products of the library
        check({op, 4, 3, 8, 24, reverse, {3, 2, 2, 1}}, dtype);
        check({op, 3, 41, 4, 24, reverse, {41, 38, 3}}, dtype);
        check({op, 1, 2, 4, 8, reverse}, dtype);
      }
}

TEST_CASE("cuda rnn: pieces of rows, units that fill no block, packs that fill no round") {
  NEEDS_CUDA
  for (const DType dtype : kFloats) {
    for (const RnnOp op : kOps) check({op, 2, 70, 8, 40}, dtype);
    check({RnnOp::Gru, 3, 33, 4, 136, true}, dtype);
    check({RnnOp::Lstm, 3, 9, 4, 72, false, {}, 0, false}, dtype);
    check({RnnOp::Lstm, 3, 9, 4, 32, false, {}, 0, true, true}, dtype);
    check({RnnOp::Lstm, 2, 0, 4, 8}, dtype);
  }
}

TEST_CASE("cuda rnn: weights beyond what a block holds") {
  NEEDS_CUDA
  for (const DType dtype : {kFloat32, kBFloat16}) check({RnnOp::Tanh, 2, 2, 4, 1040}, dtype);
  check({RnnOp::Lstm, 2, 2, 4, 328}, kFloat32);
  check({RnnOp::Lstm, 2, 2, 4, 712}, kFloat16);
}

TEST_CASE("cuda rnn: projections") {
  NEEDS_CUDA
  for (const DType dtype : kFloats)
    for (const bool reverse : {false, true}) {
      check({RnnOp::Lstm, 3, 10, 4, 24, reverse, {}, 16}, dtype);
      check({RnnOp::Lstm, 4, 3, 4, 7, reverse, {3, 2, 2, 1}, 5}, dtype);
      check({RnnOp::Lstm, 3, 12, 4, 16, reverse, {12, 11, 10}, 8}, dtype);
    }
}

TEST_CASE("cuda rnn: many packed steps") {
  NEEDS_CUDA
  std::vector<int64_t> sizes(300, 1);
  std::fill_n(sizes.begin(), 260, 2);
  for (const bool reverse : {false, true}) check({RnnOp::Gru, 300, 2, 4, 8, reverse, sizes}, kFloat64);
}

TEST_CASE("cuda rnn: NaN and infinity stay in their rows") {
  NEEDS_CUDA
  manual_seed(1);
  for (const DType dtype : kFloats) {
    Tensor x = randn({2, 40, 8}), h = randn({40, 16}), w = randn({48, 16}), in = randn({48, 8});
    h[3][5] = NAN, h[36][0] = INFINITY, h[7][15] = -INFINITY;
    const auto layer = [&](Device device) {
      const auto at = [&](const Tensor& t) { return t.to(dtype).to(device); };
      return rnn_layer(RnnOp::Gru, at(x), at(h), {}, {at(in), at(w)}).output;
    };
    CHECK(difference(layer(kCUDA), layer(kCPU)) < 4 * rounding(dtype));
  }
}

TEST_CASE("cuda rnn: a step is one kernel, without products of the library") {
  NEEDS_CUDA
  if (std::getenv("TAPIR_CHECK")) return;  // composite forms run too
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const auto products = [&](int64_t steps) {
      const int64_t before = library_products();
      run({RnnOp::Lstm, steps, 12, 16, 32}, dtype, kCUDA);
      return library_products() - before;
    };
    CHECK(products(4) == products(9));
  }
}

TEST_CASE("cuda rnn: second derivatives of 16-bit layers are those of their steps") {
  NEEDS_CUDA
  const auto second = [](Device device) {
    Tensor x = numbers({2, 3, 8}, kBFloat16, 1).to(device).requires_grad_();
    const Tensor h = numbers({3, 8}, kBFloat16, 2).to(device), w = numbers({32, 8}, kBFloat16, 3).to(device) * 0.3;
    const RnnResult r = rnn_layer(RnnOp::Lstm, x, h, h, {w, w});
    const Tensor first = grad({sum(square(r.output))}, {x}, {}, {.create_graph = true})[0];
    return grad({sum(square(first))}, {x})[0];
  };
  CHECK(difference(second(kCUDA), second(kCPU)) < 0.1);
}
