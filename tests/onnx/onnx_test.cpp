#include <fstream>
#include <sstream>

#include <tapir/models/bert.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/llama.h>
#include <tapir/models/lstm_lm.h>
#include <tapir/models/mobilenet_v2.h>
#include <tapir/models/resnet.h>
#include <tapir/models/unet.h>
#include <tapir/models/vgg.h>
#include <tapir/models/vit.h>
#include <tapir/tapir.h>

#include "exported.h"
#include "wire.h"

using namespace tapir;
static bool contains(const std::string& s, const char* part) { return s.find(part) != std::string::npos; }
using tapir_tests::Exported;
using tapir_tests::Function;
using tapir_tests::message_of;
using tapir_tests::OnnxModel;
using tapir_tests::TemporaryFolder;
using Names = std::vector<std::string>;

namespace {

struct Net : nn::Module {
  nn::Conv2d conv1{1, 4, 3}, conv2{4, 8, 3, {.padding = 1}};
  nn::Dropout drop{0.5};
  nn::Linear fc{8 * 4 * 4, 10};
  Tensor forward(const Tensor& x) {
    auto h = max_pool2d(relu(conv2(relu(conv1(x)))), 2);
    return fc(drop(flatten(h, 1)));
  }
  TAPIR_FIELDS(conv1, conv2, drop, fc)
};

struct Mixed : nn::Module {
  Parameter a{arange(0., 6., 1., {.dtype = kFloat32}).reshape({2, 3}).t()};
  Parameter b{a};
  Buffer c{tensor({1, 2, 3})}, d{tensor({1., 2.}, {.dtype = kFloat16})}, e{tensor({1., 2.}, {.dtype = kBFloat16})},
      f{tensor({true, false, true})}, g{tensor({0.5}, {.dtype = kFloat64})};
  std::tuple<Tensor, Tensor, Tensor, Tensor> forward(const Tensor& x) {
    return {matmul(x, a) + matmul(x, b), where(f, c, 7), d.to(kFloat32) + e.to(kFloat32), g + 1};
  }
  TAPIR_FIELDS(a, b, c, d, e, f, g)
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}
template <class M> OnnxModel saved(M& model, const std::vector<Tensor>& x, const onnx::Options& o = {}) {
  TemporaryFolder folder;
  onnx::save(model, x, folder / "m.onnx", o);
  return OnnxModel(bytes_of(folder / "m.onnx"));
}
template <class F> std::string refused(F f, const std::vector<Tensor>& x, const onnx::Options& o = {}) {
  Function<F> model(f);
  return message_of<ValueError>([&] { saved(model, x, o); });
}
/// Weights that are no zeros, and statistics that are not trivial.
template <class M> M filled(M model) {
  NoGrad guard;
  for (auto& [name, p] : model.named_parameters()) p.dim() > 1 ? p.normal_(0, 0.08) : p.uniform_(0.5, 1);
  for (auto& [name, b] : model.named_buffers())
    if (is_floating(b.dtype())) b.uniform_(0.5, 1.5);
  return model;
}

}  // namespace

TEST_CASE("an ONNX file holds the graph, and the parameters under their names") {
  Net net;
  net.fc.eval();
  const OnnxModel m = saved(net, {randn({2, 1, 10, 10})});
  CHECK(m.ir_version == 8);
  CHECK(m.opset == 17);
  CHECK(m.ops() == "Conv Relu Conv Relu MaxPool Reshape Gemm");
  REQUIRE(m.inputs.size() == 1);
  CHECK(m.inputs[0] == std::pair<std::string, Names>("input", {"2", "1", "10", "10"}));
  CHECK(m.outputs[0] == std::pair<std::string, Names>("output", {"2", "10"}));
  CHECK(m.nodes[0].inputs == Names{"input", "conv1.weight", "conv1.bias"});
  CHECK(m.nodes[2].attributes.at("pads").numbers.at(8) == std::vector<uint64_t>{1, 1, 1, 1});
  CHECK(m.nodes[6].inputs[1] == "fc.weight");
  CHECK(m.nodes[6].attributes.at("transB").number(3) == 1);
  CHECK(m.nodes[6].outputs == Names{"output"});
  for (const auto& [name, t] : net.named_parameters()) {
    const auto& written = m.initializers.at(name);
    CHECK(written.type == 1);
    CHECK(written.dims == std::vector<uint64_t>(t.shape().begin(), t.shape().end()));
    CHECK(written.raw == std::string(static_cast<const char*>(t.data_ptr()), size_t(t.numel()) * 4));
  }
  CHECK((net.training && net.conv1.training && !net.fc.training));  // each as it was
}

TEST_CASE("what dtypes, layouts and sharing become in an ONNX file") {
  Mixed mixed;
  const OnnxModel m = saved(mixed, {ones({1, 3})}, {.input_names = {"x"}, .output_names = {"p", "q", "r", "s"}});
  CHECK(m.inputs[0].first == "x");
  CHECK(m.outputs[3].first == "s");
  const auto& a = m.initializers.at("a");
  CHECK(a.dims == std::vector<uint64_t>{3, 2});
  const float rows[] = {0, 3, 1, 4, 2, 5};  // logical order, whatever the strides
  CHECK(a.raw == std::string(reinterpret_cast<const char*>(rows), sizeof(rows)));
  CHECK(!m.initializers.count("b"));
  CHECK(m.initializers.at("c").type == 7);
  CHECK(m.initializers.at("d").type == 10);
  CHECK(m.initializers.at("e").type == 16);
  CHECK(m.initializers.at("f").type == 9);
  CHECK(m.initializers.at("f").raw == std::string("\1\0\1", 3));
  CHECK(m.initializers.at("g").type == 11);
}

TEST_CASE("an ONNX file of any batch") {
  Net net;
  const OnnxModel m = saved(net, {randn({1, 1, 10, 10})}, {.dynamic_batch = true});
  CHECK(m.inputs[0].second == Names{"batch", "1", "10", "10"});
  CHECK(m.outputs[0].second == Names{"batch", "10"});
  CHECK(m.ops() == "Conv Relu Conv Relu MaxPool Reshape Gemm");
  const Tensor x = randn({3, 4});
  CHECK(contains(refused([](const Tensor& x) { return mean(x, 0); }, {x}, {.dynamic_batch = true}), "every batch") ==
        false);
  CHECK(contains(refused([](const Tensor& x) { return var(x, 0); }, {x}, {.dynamic_batch = true}),
                 "[onnx::save] expected a model whose graph is the same for every batch"));
  CHECK(contains(refused([](const Tensor& x) { return x.size(0) > 2 ? x + 1 : x * 2; }, {x}, {.dynamic_batch = true}),
                 "other operations for another batch"));
  CHECK(contains(refused([](const Tensor& x) { return sum(x); }, {tensor({1.})[0]}, {.dynamic_batch = true}),
                 "batch dimension"));
}

TEST_CASE("what has no ONNX form, or looks at values, is refused by name and place") {
  const Tensor x = randn({2, 3});
  const std::string host = refused([](const Tensor& x) { return sum(x).item() > 0 ? x : -x; }, {x});
  CHECK(contains(host, "[item] expected nothing that the host must read while a program is recorded"));
  CHECK(contains(host, "onnx_test.cpp:"));
  CHECK(contains(refused([](const Tensor& x) { return nonzero(x); }, {x}), "[nonzero]"));
  const std::string op = refused([](const Tensor& x) { return atan2(x, x + 1); }, {x});
  CHECK(contains(op, "[onnx::save] expected operations that ONNX has a form for in opset 17, got binary(Atan2)"));
  CHECK(contains(op, "called in"));
  CHECK(contains(refused([](const Tensor& x) { return dropout(x, 0.5, true); }, {x}), "dropout"));
  CHECK(contains(refused([](const Tensor& x) { return x + randn({3}); }, {x}), "random(Normal)"));
  CHECK(contains(refused(
                     [](const Tensor& x) {
                       return adaptive_max_pool2d(reshape(x, {1, 1, 2, 3}), {1, 2});
                     },
                     {x}),
                 "windows of different sizes"));
  CHECK(sum(x).numel() == 1);
  CHECK(std::isfinite(sum(x).item()));  // eager goes on
}

TEST_CASE("arguments of onnx::save that do not fit") {
  Net net;
  const Tensor x = randn({1, 1, 10, 10});
  const auto message = [&](const std::vector<Tensor>& in, const onnx::Options& o) {
    return message_of<ValueError>([&] { saved(net, in, o); });
  };
  CHECK(contains(message({x}, {.opset = 16}), "expected an opset from 17 to 20, got 16"));
  CHECK(contains(message({x}, {.input_names = {"a", "b"}}), "expected 1 input names, got 2"));
  CHECK(contains(message({x}, {.output_names = {"a", "b"}}), "expected 1 output names, got 2"));
  CHECK(contains(message({x}, {.input_names = {"fc.weight"}}), "\"fc.weight\" twice"));
  CHECK(contains(message({x}, {.input_names = {"y"}, .output_names = {"y"}}), "\"y\" twice"));
  CHECK(contains(message({Tensor()}, {}), "an undefined tensor"));
  CHECK(contains(message({x, x}, {}), "forward() takes 2 tensors"));
  CHECK(contains(message({x, x, x, x}, {}), "expected 1 to 3 inputs"));
  CHECK(contains(message({randn({1, 2, 10, 10})}, {}), "conv2d"));  // the model's own error
  CHECK(net.training);
  CHECK_THROWS_AS(onnx::save(net, x, "/nonexistent/m.onnx"), RuntimeError);
  TemporaryFolder folder;
  onnx::save(net, x, folder / "m.onnx");
  const std::string before = bytes_of(folder / "m.onnx");
  CHECK_THROWS_AS(onnx::save(net, randn({1, 2, 10, 10}), folder / "m.onnx"), ValueError);
  CHECK(bytes_of(folder / "m.onnx") == before);
  CHECK(tapir_tests::names_in(folder.path).size() == 1);
}

TEST_CASE("models that are exported to ONNX give onnxruntime what they give us") {
  manual_seed(5);
  Exported exported;
  for (const bool any : {false, true}) {
    const onnx::Options o{.dynamic_batch = any};
    const auto add = [&](const std::string& name, auto model, const Tensor& x) {
      exported.add(name + (any ? "_any" : ""), model, {x}, o);
    };
    const Tensor tokens = randint(0, 101, {4, 12});
    add("mlp", filled(nn::Sequential(nn::Linear(8, 16), nn::GELU(), nn::Linear(16, 4))), randn({3, 8}));
    add("net", filled(Net()), randn({2, 1, 10, 10}));
    add("resnet18", filled(models::resnet18({.num_classes = 10})), randn({2, 3, 64, 64}));
    add("mobilenet_v2", filled(models::mobilenet_v2({.num_classes = 10})), randn({1, 3, 64, 64}));
    add("vgg11", filled(models::vgg11({.num_classes = 10})), randn({1, 3, 64, 64}));
    add("vit",
        filled(models::VisionTransformer(
            {.image_size = 32, .patch_size = 8, .layers = 2, .heads = 4, .hidden = 64, .mlp = 128})),
        randn({5, 3, 32, 32}));
    add("gpt2",
        filled(
            models::GPT2LMHeadModel({.vocab_size = 101, .n_positions = 32, .n_embd = 48, .n_layer = 2, .n_head = 4})),
        tokens);
    add("bert",
        filled(models::BertModel({.vocab_size = 101,
                                  .hidden_size = 48,
                                  .num_hidden_layers = 2,
                                  .num_attention_heads = 4,
                                  .intermediate_size = 96,
                                  .max_position_embeddings = 32})),
        tokens);
    add("llama",
        filled(models::LlamaForCausalLM({.vocab_size = 101,
                                         .hidden_size = 48,
                                         .intermediate_size = 96,
                                         .num_hidden_layers = 2,
                                         .num_attention_heads = 4,
                                         .num_key_value_heads = 2,
                                         .max_position_embeddings = 32})),
        tokens);
    add("lstm", filled(models::LSTMLanguageModel(101, 24)), tokens);
    add("unet", filled(models::unet({.width = 8, .depth = 2})), randn({2, 3, 37, 41}));
  }
  const int status = exported.run();
  if (status == 77) SKIP_TEST("no onnxruntime for Python");
  CHECK(status == 0);
}
