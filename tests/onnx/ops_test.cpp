// Every operation that an export knows, against onnxruntime.
#include <tapir/tapir.h>

#include "exported.h"

using namespace tapir;
using tapir_tests::Exported;
using tapir_tests::Function;

namespace {

Exported* models;
template <class F> void op(const std::string& name, const std::vector<Tensor>& x, F f, const onnx::Options& o = {}) {
  Function<F> model(f);
  models->add(name, model, x, o);
}
template <class M> void module(const std::string& name, M model, const Tensor& x, const onnx::Options& o = {}) {
  NoGrad guard;
  for (auto& p : model.parameters()) p.normal_(0, 0.3);
  for (auto& [key, b] : model.named_buffers())
    if (is_floating(b.dtype())) b.uniform_(0.5, 1.5);
  models->add(name, model, {x}, o);
}
#define OP(inputs, ...) op(next_name(), inputs, [](const Tensor& x) { return __VA_ARGS__; })
#define OP2(inputs, ...) op(next_name(), inputs, [](const Tensor& x, const Tensor& y) { return __VA_ARGS__; })
std::string next_name() {
  static int n = 0;
  return "op" + std::to_string(n++);
}

void pointwise() {
  const std::vector<Tensor> one{randn({3, 4, 5})}, positive{rand({3, 5}) + 0.1}, pair{randn({3, 4, 5}), randn({4, 1})},
      whole{randint(-9, 9, {4, 6}), randint(1, 5, {6})}, unit{rand({7}) * 1.8 - 0.9};
  OP(one, neg(abs(x)) + exp(x) * sign(x));
  OP(positive, sqrt(log(x) * log(x)) + rsqrt(x) + log2(x) + log10(x) + log1p(x) + expm1(x) + exp2(x) + reciprocal(x));
  OP(one, sin(x) + cos(x) + tan(x) + sinh(x) + cosh(x) + tanh(x) + atan(x) + asinh(x) + erf(x) + erfc(x));
  OP(unit, asin(x) + acos(x) + atanh(x) + acosh(x + 3));
  OP(one, floor(x) + ceil(x) + round(x) + trunc(x) + frac(x));
  OP(one, sigmoid(x) + silu(x) + gelu(x) + gelu(x, "tanh") + mish(x) + softplus(x) + hardswish(x));
  OP(one, hardsigmoid(x) + leaky_relu(x, 0.2) + elu(x) + selu(x) + celu(x, 0.7) + logsigmoid(x) + softsign(x) +
              tanhshrink(x));
  OP(one, hardshrink(x) + softshrink(x) + threshold(x, 0.1, 7) + clamp(x, -0.5, 0.7) + relu6(x) + hardtanh(x));
  OP(one, pow(x, 2) + pow(abs(x), 2.5) + pow(x, 3) + square(x));
  OP(one, glu(narrow(x, 2, 0, 4), -1));
  OP2(pair, x + 2 * y - x / (abs(y) + 1) + maximum(x, y) * minimum(x, y) + pow(abs(x), y));
  OP2(pair, where(gt(x, y), x, y) + where(logical_and(le(x, 0), ne(y, 1)), 1.0, 0.0));
  OP2(pair, logical_not(eq(x, y)));
  OP2(pair,
      lerp(x, expand(y, x.shape()), 0.3) + addcmul(x, x, y, 0.5) + fmod(x, abs(y) + 1) + remainder(x, abs(y) + 1));
  OP2(whole, x * y + floor_divide(x, y) + remainder(x, y) - x);
  OP2(whole, div(x, y));
  OP2(whole, bitwise_and(gt(x, 0), lt(x, y)));
  OP(one, x.to(kFloat64) + 1);
  OP(one, (x * 10).to(kInt32));
  OP(one, masked_fill(x, lt(x, 0), 0.25));
  OP(one, isnan(sqrt(x)));
}

void shapes() {
  const std::vector<Tensor> one{randn({2, 3, 4, 6})}, pair{randn({2, 3, 4}), randn({2, 5, 4})};
  OP(one, permute(x, {3, 0, 2, 1}) + 1);
  OP(one, x[{Slice(), 1, Slice(1, 3)}] * 2);
  OP(one, x.slice(3, 0, 6, 2) + x.slice(3, 1, 6, 2));
  OP(one, x.slice(3, 1, 6, 3).contiguous());
  OP(one, x.slice(2, 0, 4, 3).contiguous());
  OP(one, transpose(flatten(x, 2), 1, 2).contiguous());
  OP(one, chunk(transpose(x, 1, 3), 3, 1)[1] + 1);
  OP(one, unsqueeze(select(x, 1, 2), 0) + expand(x[{0, 0, 0, 0}], {1, 2, 4, 6}));
  OP(one, expand(select(x, 2, 1).slice(2, 0, 1), {2, 3, 5}).contiguous());
  OP(one, x.flatten());
  OP(one, unfold(x, {2, 2}));
  OP(one, tensor_split(x, 2, 3)[1] + 1);
  OP2(pair, cat({x, y}, 1));
  OP2(pair, stack({x, y.narrow(1, 1, 3)}, 2));
  OP(one, pad(x, {1, 2, 0, 3}) + 1);
  OP(one, pad(x, {1, 2}, {.value = 4.5}));
  OP(one, pad(x, {1, 2, 2, 1}, {.mode = "reflect"}));
  OP(one, pad(x, {2, 1, 1, 2}, {.mode = "replicate"}));
  OP(one, flip(x, {1, 3}));
  OP(one, roll(x, 2, 3));
  OP(one, repeat(x, {1, 2, 1, 3}));
  OP(one, pixel_shuffle(reshape(x, {2, 4, 3, 6}), 2));
  OP(one, tril(select(x, 0, 1)));
  op("in place", one, [](const Tensor& x) {
    Tensor y = x.clone();
    y.select(1, 1).mul_(3);
    y.slice(3, 1, 6, 2).copy_(x.slice(3, 0, 6, 2));
    relu_(y);
    return y;
  });
  op("two results", one, [](const Tensor& x) { return std::pair(x + 1, x); });
  op("a constant beside it", one, [](const Tensor& x) {
    return x + tensor({1., 2., 3., 4., 5., 6.}, {.dtype = kFloat32}) + ones({4, 1});
  });
}

void reductions() {
  const std::vector<Tensor> one{randn({3, 4, 5})}, whole{randint(0, 9, {4, 6})};
  OP(one, sum(x, {0, 2}) + mean(x, {0, 2}));
  OP(one, sum(x, 1, {.keepdim = true}) * amax(x, 1, {.keepdim = true}) - amin(x, 1, {.keepdim = true}));
  OP(one, prod(x, 2) + var(x, 2) + tapir::std(x, 2) + logsumexp(x, 2) + norm(x, 2, 2) + norm(x, 1, 2) + norm(x, 3, 2));
  OP(one, mean(x));
  OP(one, any(gt(x, 1), 1));
  OP(one, all(gt(x, -1), 1));
  OP(one, argmax(x, 1));
  OP(one, argmin(x, 2, {.keepdim = true}));
  OP(one, cumsum(x, 1));
  OP(one, ::std::get<0>(topk(x, 2, 1)));
  OP(one, ::std::get<1>(sort(x, 2)));
  OP(one, softmax(x, 1) + log_softmax(x, -1));
  OP(one, ::std::get<0>(max(x, 1)) + norm(x));
  OP(whole, sum(x, 1));
  OP(whole, cumsum(x.to(kInt32), 0));
}

void indexing() {
  const std::vector<Tensor> table{randn({7, 3}), randint(0, 7, {2, 4})}, rows{randn({4, 5}), randint(0, 4, {2, 5})},
      places{randn({6, 5, 2}), randint(0, 5, {3})};
  OP2(table, embedding(y, x));
  OP2(table, index_select(x, 0, flatten(y)));
  OP2(rows, gather(x, 0, y));
  OP2(rows, scatter(x, 0, y, ones({2, 5})));
  OP2(rows, scatter_add(x, 0, y, full({2, 5}, 2.0)));
  OP2(places, x[{y, y}] + 1);
  OP2(places, index_add(x, 1, y, ones({6, 3, 2})));
  OP2(places, index_fill(x, 1, y, 9));
  OP2(table, one_hot(y, x.size(0)));
}

void products() {
  const std::vector<Tensor> ab{randn({2, 3, 4}), randn({2, 4, 5})}, mats{randn({3, 4}), randn({5, 4})},
      heads{randn({2, 4, 6, 8}), randn({2, 2, 6, 8})};
  OP2(ab, matmul(x, y));
  OP2(ab, matmul(x, y[0]));
  OP2(mats, matmul(x, t(y)));
  OP2(mats, addmm(ones({5}), x, t(y), {.beta = 2, .alpha = 0.5}));
  OP2(mats, mv(x, select(y, 0, 1)));
  OP2(ab, einsum("bij,bjk->bki", {x, y}));
  OP2(heads, scaled_dot_product_attention(x, y, y, {.is_causal = true, .enable_gqa = true}));
  OP2(heads, scaled_dot_product_attention(x, x, x, {.attn_mask = gt(y[{0, 0, Slice(), Slice(0, 6)}], 0.5)}));
  OP2(heads, scaled_dot_product_attention(x, x, x, {.attn_mask = y[{0, 0, Slice(), Slice(0, 6)}]}));
}

void networks() {
  const Tensor image = randn({2, 4, 9, 11}), line = randn({2, 4, 12}), volume = randn({1, 4, 5, 6, 7});
  module("conv1d", nn::Conv1d(4, 6, 3, {.padding = 1, .dilation = 2}), line);
  module("conv2d", nn::Conv2d(4, 6, 3, {.stride = 2, .padding = 1, .groups = 2}), image);
  module("conv3d", nn::Conv3d(4, 2, 2), volume);
  module("conv_transpose", nn::ConvTranspose2d(4, 6, 3, {.stride = 2, .padding = 1, .output_padding = 1}), image);
  module("max_pool", nn::MaxPool2d(3, {.stride = 2, .padding = 1, .ceil_mode = true}), image);
  module("avg_pool", nn::AvgPool2d(3, {.stride = 2, .padding = 1, .count_include_pad = false}), image);
  module("avg_pool1d", nn::AvgPool1d(4), line);
  module("adaptive", nn::AdaptiveAvgPool1d(3), line);
  module("adaptive to other sizes", nn::AdaptiveAvgPool2d(Dims{4, 13}), image);
  module("adaptive maxima", nn::AdaptiveMaxPool2d(Dims{3, 1}), image);
  module("batch_norm", nn::BatchNorm2d(4), image);
  module("batch_norm of batches", nn::BatchNorm2d(4, {.track_running_stats = false}), image);
  module("layer_norm", nn::LayerNorm({9, 11}), image);
  module("group_norm", nn::GroupNorm(2, 4), image);
  module("instance_norm", nn::InstanceNorm2d(4, {.affine = true}), image);
  module("rms_norm", nn::RMSNorm(12), line);
  module("prelu", nn::PReLU(4), image);
  module("upsample", nn::Upsample({.scale_factor = {2}}), image);
  module("lstm", nn::LSTM(12, 7, {.num_layers = 2, .bidirectional = true, .proj_size = 3}), line);
  module("gru", nn::GRU(12, 7, {.batch_first = true, .bidirectional = true}), line);
  module("rnn", nn::RNN(12, 7), line);
  module("encoder", nn::TransformerEncoderLayer(12, 3, {.dim_feedforward = 20}), line);
  op("bilinear", {image}, [](const Tensor& x) { return interpolate(x, {.size = Dims{5, 20}, .mode = "bilinear"}); });
  op("bicubic", {image}, [](const Tensor& x) {
    return interpolate(x, {.size = Dims{5, 20}, .mode = "bicubic", .align_corners = true});
  });
  op("opset 18", {image}, [](const Tensor& x) { return mean(x, {2, 3}) + amax(x, {2, 3}); }, {.opset = 18});
  op("opset 20", {image}, [](const Tensor& x) { return layer_norm(x, {11}) + gelu(x); }, {.opset = 20});
}

}  // namespace

TEST_CASE("operations that are exported to ONNX give onnxruntime what they give us") {
  manual_seed(4);
  Exported exported;
  models = &exported;
  pointwise(), shapes(), reductions(), indexing(), products(), networks();
  const int status = exported.run();
  if (status == 77) SKIP_TEST("no onnxruntime for Python");
  CHECK(status == 0);
}
