// `run ops NAME|INPUTS|PASS STEPS`: one operation on inputs such as 100x100,4000:100 (ops.py says what a word means).
#include <tapir/tapir.h>

#include <chrono>
#include <map>
#include <sstream>
#include <stdexcept>

#include "workloads.h"

using namespace tapir;
using List = std::vector<Tensor>;
using Call = Tensor (*)(const List& in);

#define OP(name, ...)                                               \
  {                                                                 \
    name, [](const List& in) -> Tensor {                            \
      [[maybe_unused]] const Tensor& x = in[0];                     \
      [[maybe_unused]] const Tensor& y = in[in.size() > 1 ? 1 : 0]; \
      return __VA_ARGS__;                                           \
    }                                                               \
  }
static const std::map<std::string, Call> calls = {
    OP("add", x + y),
    OP("sub", x - y),
    OP("mul", x* y),
    OP("div", x / y),
    OP("add_scalar", x + 2),
    OP("add_", Tensor(x).add_(y)),
    OP("copy_", Tensor(x).copy_(y)),
    OP("maximum", maximum(x, y)),
    OP("lt", lt(x, y)),
    OP("where", where(in[2], x, y)),
    OP("addcmul", addcmul(x, y, in[2], 0.5)),
    OP("lerp", lerp(x, y, 0.3)),
    OP("pow", pow(x, 2.5)),
    OP("clamp", clamp(x, 0.2, 0.8)),
    OP("abs", abs(x)),
    OP("neg", -x),
    OP("sqrt", sqrt(x)),
    OP("rsqrt", rsqrt(x)),
    OP("exp", exp(x)),
    OP("log", log(x)),
    OP("sin", sin(x)),
    OP("erf", erf(x)),
    OP("tanh", tanh(x)),
    OP("sigmoid", sigmoid(x)),
    OP("relu", relu(x)),
    OP("gelu", gelu(x)),
    OP("silu", silu(x)),
    OP("to_bfloat16", x.to(kBFloat16)),
    // reductions and scans
    OP("sum", sum(x)),
    OP("sum_rows", sum(x, 1)),
    OP("sum_columns", sum(x, 0)),
    OP("mean_rows", mean(x, 1)),
    OP("amax_rows", amax(x, 1)),
    OP("max_rows", max(x, 1).first),
    OP("argmax_rows", argmax(x, 1)),
    OP("var_rows", var(x, 1)),
    OP("norm", norm(x)),
    OP("logsumexp_rows", logsumexp(x, 1)),
    OP("cumsum_rows", cumsum(x, 1)),
    OP("sort_rows", sort(x, 1).first),
    OP("topk_rows", topk(x, 10, 1).first),
    // networks
    OP("softmax", softmax(x, 1)),
    OP("log_softmax", log_softmax(x, 1)),
    OP("layer_norm", layer_norm(x, {x.size(1)}, y, in[2])),
    OP("batch_norm", batch_norm(x, {}, {}, y, in[2], {.training = true})),
    OP("cross_entropy", cross_entropy(x, y)),
    OP("mse_loss", mse_loss(x, y)),
    OP("bce_with_logits", binary_cross_entropy_with_logits(x, y)),
    OP("dropout", dropout(x, 0.1, true)),
    OP("linear", linear(x, y, in[2])),
    OP("matmul", matmul(x, y)),
    OP("bmm", bmm(x, y)),
    OP("conv2d", conv2d(x, y, in[2], {.padding = 1})),
    OP("depthwise", conv2d(x, y, in[2], {.padding = 1, .groups = x.size(1)})),
    OP("max_pool2d", max_pool2d(x, 2)),
    OP("avg_pool2d", avg_pool2d(x, 2)),
    OP("attention", scaled_dot_product_attention(x, y, in[2])),
    OP("causal_attention", scaled_dot_product_attention(x, y, in[2], {.is_causal = true})),
    OP("interpolate", interpolate(x, {.scale_factor = {2.0}, .mode = "bilinear"})),
    // shapes and indices
    OP("cat", cat({x, y}, 1)),
    OP("stack", stack({x, y}, 0)),
    OP("contiguous", x.t().contiguous()),
    OP("pad", pad(x, {1, 2, 3, 4})),
    OP("tril", tril(x)),
    OP("flip", flip(x, 1)),
    OP("gather", gather(x, 1, y)),
    OP("index_add", index_add(x, 0, in[2], y)),
    OP("index_select", index_select(x, 0, y)),
    OP("embedding", embedding(y, x)),
    OP("scatter_add", scatter_add(x, 1, in[2], y)),
    OP("masked_fill", masked_fill(x, y, 0)),
    OP("einsum", einsum("ij,kj->ik", {x, y})),
};

/// "2500x4000" of float32 in (0, 1); "t" behind it: transposed (channels_last where there are four dims); "b": expanded from its first
/// row; "100:" before it: integers in [0, 100); "2:" makes bool.
static Tensor input(std::string word) {
  const char layout = word.back();
  if (layout == 't' || layout == 'b') word.pop_back();
  const size_t colon = word.find(':');
  const int64_t high = colon == std::string::npos ? 0 : std::stoll(word);
  Dims shape;
  std::istringstream sizes(colon == std::string::npos ? word : word.substr(colon + 1));
  for (std::string size; std::getline(sizes, size, 'x');) shape.push_back(std::stoll(size));
  const Dims wanted = shape;
  const bool image = shape.size() == 4;
  if (layout == 'b') shape[0] = 1;
  if (layout == 't' && !image) std::swap(shape.end()[-1], shape.end()[-2]);
  Tensor x = (high ? randint(0, high, Shape(shape)) : rand(Shape(shape))).to(bench_device);
  if (high == 2) x = x.to(kBool);
  if (layout == 't') return image ? x.to(kChannelsLast) : x.transpose(-1, -2);
  return layout == 'b' ? x.expand(Shape(wanted)) : x;
}

Run op(const std::string& variant) {
  std::istringstream words(variant);
  std::string name, inputs, pass, word;
  std::getline(words, name, '|'), std::getline(words, inputs, '|'), std::getline(words, pass, '|');
  const auto found = calls.find(name);
  if (found == calls.end()) throw std::runtime_error("there is no operation '" + name + "'");
  const Call call = found->second;
  List in, leaves;
  for (std::istringstream list(inputs); std::getline(list, word, ',');) {
    in.push_back(input(word));
    if (pass == "both" && is_floating(in.back().dtype())) leaves.push_back(in.back().requires_grad_());
  }
  Tensor weight;
  if (pass == "both") weight = ones_like(call(in).detach());
  return [=](int64_t steps) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) {
      GradMode mode(pass == "both");
      const Tensor y = call(in);
      if (pass == "both") grad({y}, leaves, {weight});
    }
    wait_for_bench_device();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / double(steps);
  };
}
