#include <tapir/tapir.h>

#include "../catch.h"
using namespace tapir;

namespace {
struct Net : nn::Module {
  nn::Conv2d conv{3, 8, 3, {.padding = 1}};
  nn::BatchNorm2d bn{8};
  std::vector<nn::Linear> heads;
  Net() { heads.emplace_back(8, 10), heads.emplace_back(8, 2, nn::LinearOptions{.bias = false}); }
  Tensor forward(const Tensor& x) {
    const Tensor h = mean(relu(bn(conv(x))), {2, 3});
    heads[1](h);
    return heads[0](h);
  }
  TAPIR_FIELDS(conv, bn, heads)
};
struct Twice : nn::Module {
  nn::Linear used{2, 2}, idle{2, 2};
  Tensor forward(const Tensor& x) { return used(used(x)); }
  TAPIR_FIELDS(used, idle)
};
}  // namespace

TEST_CASE("a summary counts parameters, FLOPs, outputs and state, and leaves the model as it was") {
  Net net;
  const auto s = train::summary(net, {4, 3, 16, 16});
  REQUIRE(s.layers.size() == 5);
  CHECK(s.layers[0].type == "Net");
  CHECK(s.layers[1].output == Shape{4, 8, 16, 16});
  CHECK(s.layers[1].flops == 2. * 4 * 8 * 16 * 16 * 27);
  CHECK(s.layers[3].flops == 2. * 4 * 8 * 10);
  CHECK(s.flops == s.layers[1].flops + s.layers[3].flops + 2. * 4 * 8 * 2);
  CHECK(s.parameters == net.num_parameters());
  CHECK(s.state_bytes == 4 * (net.num_parameters() + 16) + 8);
  CHECK(s.output_bytes == 4 * (2 * 4 * 8 * 256 + 4 * 10 + 4 * 2));
  const std::string text = s.str();
  for (const char* part : {"conv: Conv2d", "(4, 8, 16, 16)", "224", "442 k", "FLOPs; state"})
    CHECK(text.find(part) != std::string::npos);
  CHECK(net.training);
  CHECK(net.bn.num_batches_tracked.item() == 0);
}

TEST_CASE("a summary of several inputs, tokens and layers that are called twice or never") {
  nn::Bilinear two(2, 3, 4);
  CHECK(train::summary(two, ones({5, 2}), ones({5, 3})).layers[0].output == Shape{5, 4});
  nn::Sequential words(nn::Embedding(10, 4), nn::Linear(4, 4));
  CHECK(train::summary(words, {2, 3}, {.dtype = kInt64}).layers[0].output == Shape{2, 3, 4});
  Twice net;
  const auto s = train::summary(net, {1, 2});
  CHECK(s.layers[1].calls == 2);
  CHECK(s.layers[1].flops == 16);
  CHECK(s.layers[2].calls == 0);
  CHECK(s.str().find("-") != std::string::npos);
}
