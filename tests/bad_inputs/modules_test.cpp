// Modules and state. BI-189 and the compile errors of BI-190 and BI-197 stand in tests/compile_fail/fields.cpp, BI-190's other half in
// tests/nn/container_test.cpp, BI-202 in tests/nn/hooks_test.cpp.
#include <optional>

#include "refused.h"

namespace {
struct Net : nn::Module {
  std::vector<nn::Linear> layers;
  nn::BatchNorm1d bn{3};
  Net() { layers.emplace_back(4, 3), layers.emplace_back(3, 3); }
  Tensor forward(const Tensor& x) { return layers[1](bn(layers[0](x))); }
  TAPIR_FIELDS(layers, bn)
};
StateDict changed(nn::Module& m, auto&& f) {
  StateDict out;
  for (auto& [name, t] : m.state_dict()) out.append(name, f(t));
  return out;
}
Values weights(nn::Module& m) {
  Values out;
  for (auto& [name, t] : m.state_dict())
    for (double v : values(t)) out.push_back(v);
  return out;
}
}  // namespace

TEST_CASE("BI-191 the wrong width says where, what was expected and what came") {
  Net net;
  REFUSED(net(ones({2, 5})), "layers.0: Linear", "4", "(2, 5)");
  CHECK(net(ones({2, 4})).shape() == Shape{2, 3});
}

TEST_CASE("BI-192 an input on the host, the module on a device") {
  if (!cuda::is_available()) SKIP_TEST("no CUDA device");
  Net net;
  net.to(kCUDA);
  REFUSED(net(ones({2, 4})), "layers.0: Linear", "cpu", "cuda:0");
}

TEST_CASE("BI-193 missing, unexpected and mis-shaped names in one message; the module is untouched") {
  Net net;
  StateDict state = changed(net, [](const Tensor&t) { return t.to(kFloat64) + 1; }), bad;
  for (auto& [name, t] : state)
    if (name != "bn.bias")
      bad.append(name == "bn.weight" ? "bn.gamma" : name, name == "layers.1.weight" ? ones({3, 4}) : t);
  const Values before = weights(net);
  REFUSED(net.load_state_dict(bad), "Missing key(s)", "\"bn.weight\", \"bn.bias\"", "Unexpected key(s)", "bn.gamma",
          "size mismatch for layers.1.weight", "(3, 4)", "(3, 3)");
  REFUSED(net.load_state_dict(bad, {.strict = false}), "size mismatch");
  CHECK(weights(net) == before);
}

TEST_CASE("BI-194 a state of another dtype is cast; integers for floats are refused") {
  Net net;
  const Values before = weights(net);
  for (DType t : {kFloat64, kFloat16, kBFloat16}) {
    net.load_state_dict(changed(net, [&](const Tensor& x) { return is_floating(x.dtype()) ? x.to(t) : x; }));
    CHECK(net.layers[0].weight.dtype() == kFloat32);
    CHECK(close(weights(net), before, 0.01));
  }
  REFUSED(net.load_state_dict(changed(net, [](const Tensor& x) { return x.to(kInt32); })), "dtype mismatch",
          "layers.0.weight", "int32", "float32");
}

TEST_CASE("BI-195 the prefix of a wrapper") {
  Net net;
  StateDict wrapped;
  for (auto& [name, t] : net.state_dict()) wrapped.append("_orig_mod." + name, t + 1);
  REFUSED(net.load_state_dict(wrapped), "_orig_mod.", "strip_prefix");
  net.load_state_dict(wrapped, {.strip_prefix = "_orig_mod."});
  CHECK(values(net.bn.bias) == Values{1, 1, 1});
}

TEST_CASE("BI-196 a tied parameter is one parameter with two names") {
  Net net;
  net.layers[1].bias = net.bn.bias;
  CHECK(net.parameters().size() == 5);
  CHECK(net.state_dict().contains("layers.1.bias"));
  CHECK(net.state_dict().contains("bn.bias"));
  const auto copy = net.clone();
  CHECK(copy.layers[1].bias.is_same(copy.bn.bias));
}

TEST_CASE(
    "BI-197, BI-198, BI-200 modules that are cloned, moved, and resized while an optimizer holds their parameters") {
  static_assert(!std::is_copy_constructible_v<Net> && std::is_nothrow_move_constructible_v<Net>);
  std::optional<Net> net(std::in_place);
  optim::SGD opt(net->parameters(), {.lr = 1});
  Net moved = std::move(*net);
  net.reset();
  for (int i = 0; i < 50; ++i) moved.layers.emplace_back(3, 3);  // the vector's memory moves
  const Values before = values(moved.layers[0].weight), fresh = values(moved.layers[9].weight);
  const Tensor y = moved(randn({8, 4}));
  sum(y * y + moved.layers[9](y)).backward();
  opt.step();
  CHECK(values(moved.layers[0].weight) != before);
  CHECK(values(moved.layers[9].weight) == fresh);  // new parameters are not the optimizer's
  Net twin = moved.clone();
  opt.step();
  CHECK(values(twin.layers[0].weight) != values(moved.layers[0].weight));
}

TEST_CASE("BI-199 modules are of floating-point dtypes") {
  Net net;
  for (DType t : {kInt32, kInt64, kBool, kUInt8}) REFUSED(net.to(t), "floating point", name_of(t).data());
  CHECK(net.layers[0].weight.dtype() == kFloat32);
}

TEST_CASE("BI-201 Sequential without stages, and a stage that takes another rank") {
  const Tensor x = ones({2, 3});
  CHECK(nn::Sequential()(x).is_same(x));
  nn::Sequential net(nn::Linear(3, 4), nn::ReLU(), nn::Conv2d(3, 4, 3));
  REFUSED(net(x), "2: Conv2d", "conv2d", "(2, 4)");
  nn::Sequential pair(nn::Linear(3, 4), nn::Bilinear(2, 2, 2));
  REFUSED(pair(x), "1: Bilinear", "forward(Tensor)");
}

TEST_CASE("BI-203 batch norm of one sample in training says which one") {
  Net net;
  REFUSED(net(ones({1, 4})), "more than 1 value per channel", "bn: BatchNorm1d");
  net.eval();
  CHECK(net(ones({1, 4})).shape() == Shape{1, 3});
}

TEST_CASE("options of layers that are out of their range") {
  REFUSED(nn::Conv2d(3, 4, {3, 3, 3}), "Conv2d", "kernel_size", "(3, 3, 3)");
  REFUSED(nn::Conv1d(3, 4, 0), "Conv1d", "kernel_size", "(0,)");
  REFUSED(nn::Conv1d(3, 4, 1, {.groups = 2}), "Conv1d", "divisible by groups", "3", "2");
  REFUSED(nn::Conv3d(3, 4, 1, {.stride = 0}), "Conv3d", "stride");
  REFUSED(nn::ConvTranspose2d(3, 4, 1, {.output_padding = -1}), "ConvTranspose2d", "output_padding", "-1");
  REFUSED(nn::GroupNorm(3, 4), "GroupNorm", "divisible by num_groups", "4", "3");
  REFUSED(nn::BatchNorm3d(0), "BatchNorm3d", "num_features");
  REFUSED(nn::InstanceNorm2d(3)(ones({3, 4})), "InstanceNorm2d", "3D or 4D", "(3, 4)");
  REFUSED(nn::InstanceNorm1d(3, {.affine = true})(ones({2, 4, 5})), "InstanceNorm1d", "3 channels", "(2, 4, 5)");
  REFUSED(nn::ZeroPad2d({1, 2}), "ZeroPad2d", "one or 4", "(1, 2)");
  REFUSED(nn::Upsample({}), "Upsample", "either size or scale_factor");
  REFUSED(nn::Upsample({.size = 2, .scale_factor = {2}}), "Upsample", "both");
  REFUSED(nn::Dropout3d(1.5), "Dropout3d", "between 0 and 1", "1.5");
  REFUSED(nn::PReLU(0), "PReLU", "num_parameters");
  REFUSED(nn::Softmax2d()(ones({2, 3})), "Softmax2d", "3D or 4D");
  REFUSED(nn::EmbeddingBag(3, 2, {.mode = "median"}), "EmbeddingBag", "median");
  REFUSED(nn::EmbeddingBag(3, 2, {.padding_idx = 3}), "EmbeddingBag", "padding_idx", "3");
  REFUSED(nn::Bilinear(0, 2, 2), "Bilinear", "in1_features");
}
