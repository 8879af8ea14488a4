// Numbers in braces are PyTorch 2.15's.
#include <tapir/core/backend.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/resnet.h>
#include <tapir/nn/replace.h>
#include <tapir/tapir.h>

#include <limits>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
/// Exact numbers: (i mul mod m - off) / div
Tensor sequence(int64_t n, int64_t m = 1000, int64_t off = 400, int64_t mul = 7919, double div = 64) {
  return (remainder(arange(0, n) * mul, m) - off).to(kFloat32) / div;
}
const Tensor x = sequence(12).view({3, 4});
void equal(const Tensor& got, const std::vector<double>& want, double tolerance = 0) {
  const auto v = got.to(kFloat64).flatten().to_vector<double>();
  REQUIRE(v.size() == want.size());
  for (size_t i = 0; i < v.size(); ++i) CHECK(v[i] == Approx(want[i]).margin(tolerance).epsilon(1e-6));
}
double distance(const Tensor& a, const Tensor& b) { return amax(abs(a - b)).item(); }
std::string names_of(const StateDict& state) {
  std::string out;
  for (auto& [name, t] : state) out += name + " ";
  return out;
}
bool contains(const std::string& text, const char* part) { return text.find(part) != text.npos; }
const Tensor scales = tensor({0.05f, 0.011f, 0.03f});
const Tensor zero_points = tensor({int64_t(3), int64_t(-7), int64_t(0)}).to(kInt32);

struct Net : nn::Module {
  nn::Conv2d conv{3, 8, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn{8};
  nn::Conv2d second{8, 16, 3, {.stride = 2}};
  nn::Linear fc{16, 5};
  Tensor forward(const Tensor& x) { return fc(mean(relu(second(relu(bn(conv(x))))), {2, 3})); }
  TAPIR_FIELDS(conv, bn, second, fc)
};
Net net() {
  manual_seed(3);
  Net n;
  for (int i = 0; i < 3; ++i) n(randn({8, 3, 9, 9}));  // running statistics
  n.eval();
  return n;
}
struct Twice : nn::Module {
  nn::Conv2d conv{2, 2, 1};
  nn::BatchNorm2d bn{2};
  Tensor forward(const Tensor& x) {
    const Tensor h = conv(x);
    return bn(h) + h;
  }
  TAPIR_FIELDS(conv, bn)
};
struct Language : nn::Module {
  nn::Embedding embed{11, 8};
  nn::LSTM lstm{8, 12, {.num_layers = 2, .bidirectional = true}};
  nn::Linear out{24, 11};
  Tensor forward(const Tensor& tokens) { return out(lstm(embed(tokens)).output); }
  TAPIR_FIELDS(embed, lstm, out)
};
}  // namespace

TEST_CASE("quantize_per_tensor and quantize_per_channel give PyTorch's integers") {
  equal(quantize_per_tensor(x, 0.05, 3, kUInt8), {0, 165, 140, 115, 89, 64, 39, 13, 0, 0, 0, 0});
  equal(quantize_per_tensor(x, 0.07, -5, kInt8), {-94, 111, 93, 75, 57, 39, 20, 2, -16, -34, -52, -70});
  equal(quantize_per_channel(x, scales, zero_points, 0, kInt8),
        {-122, 127, 127, 115, 127, 127, 127, 40, -25, -67, -109, -128});
  equal(quantize_per_channel(x, tensor({0.05f, 0.011f, 0.03f, 0.2f}), tensor({3, 200, 0, 128}).to(kInt32), -1, kUInt8),
        {0, 255, 228, 156, 89, 255, 59, 131, 0, 17, 0, 105});
  equal(dequantize_per_channel(quantize_per_channel(x, scales, zero_points, 0, kInt8), scales, zero_points, 0),
        {-6.25, 6.20000029, 6.20000029, 5.5999999, 1.47399998, 1.47399998, 1.47399998, 0.51700002, -0.75, -2.00999999,
         -3.26999998, -3.83999991});
  CHECK(quantize_per_tensor(x, 0.05, 3, kInt32).dtype() == kInt32);
}

TEST_CASE("fake_quantize passes the gradient straight through") {
  const Tensor weights = arange(0, 12).to(kFloat32).view({3, 4});
  Tensor y = x.clone().requires_grad_();
  Tensor f = fake_quantize_per_tensor_affine(y, 0.02, 10, 0, 255);
  equal(f.detach(), {-0.199999988, 4.9000001, 4.9000001, 4.9000001, 4.31999969, 3.03999996, 1.77999997, 0.519999981,
                     -0.199999988, -0.199999988, -0.199999988, -0.199999988});
  sum(f * weights).backward();
  equal(y.grad(), {0, 0, 0, 0, 4, 5, 6, 7, 0, 0, 0, 0});
  y = x.clone().requires_grad_();
  f = fake_quantize_per_channel_affine(y, scales, zero_points, 0, -128, 127);
  equal(f.detach(), {-6.25, 6.20000029, 6.20000029, 5.5999999, 1.47399998, 1.47399998, 1.47399998, 0.51700002, -0.75,
                     -2.00999999, -3.26999998, -3.83999991});
  sum(f * weights).backward();
  equal(y.grad(), {0, 0, 0, 3, 0, 0, 0, 7, 8, 9, 10, 0});
}

TEST_CASE("observers choose PyTorch's scales and zero points") {
  using quant::Range;
  const Tensor a = sequence(500), b = sequence(500, 997, 100, 31, 128), c = sequence(500, 811, 500, 77, 32);
  const auto check = [&](const quant::ObserverOptions& o, double scale, int64_t zero) {
    quant::Observer observer(o);
    observer(a), observer(b), observer(c);
    const auto q = observer.calculate_qparams();
    CHECK(q.scale.item() == Approx(scale).epsilon(1e-5));
    CHECK(q.zero_point.item<int64_t>() == zero);
    CHECK(q.scale.dtype() == kFloat32);
  };
  check({.range = Range::MinMax}, 0.0991421565, 158);
  check({.range = Range::MinMax, .dtype = kInt8, .symmetric = true}, 0.12254902, 0);
  check({.range = Range::MinMax, .symmetric = true}, 0.12254902, 128);
  check({.range = Range::MovingAverage}, 0.0612880029, 103);
  check({.range = Range::Histogram}, 0.0990937501, 158);
  quant::Observer tail;
  const Tensor h = (remainder(arange(0, 2000) * 7919, 1000) - 500).to(kFloat32) / 500;
  tail(pow(h, 9) * 20);
  CHECK(tail.calculate_qparams().scale.item() == Approx(0.154019967).epsilon(2e-2));
  quant::Observer channels({.range = Range::PerChannel, .dtype = kInt8, .symmetric = true});
  channels(x), channels(x * 0.5 + 1);
  equal(channels.calculate_qparams().scale, {0.0636029392, 0.0338235311, 0.0356617644});
}

// What PyTorch's observers, quantize_per_tensor and quantize_per_channel give in 8 bits; its own layer uses 7 of them.
TEST_CASE("a dynamic linear layer quantizes weights and activations as PyTorch does") {
  const Tensor w = sequence(40, 701, 350, 53, 512).view({5, 8}), bias = sequence(5);
  quant::DynamicLinear layer(w, bias);
  equal(layer(sequence(8).view({1, 8})), {-13.7881888, 17.2944529, 6.19304085, 3.89781093, 10.5575007}, 1e-4);
  CHECK(names_of(layer.state_dict()) == "weight scale bias ");
  CHECK(layer.weight.dtype() == kInt8);
  CHECK(layer.str() == "DynamicLinear(in_features=8, out_features=5, bias=True)");
}

TEST_CASE("integer products are exact") {
  manual_seed(1);
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {3, 7, 130}, {70, 5, 64}, {9, 66, 200}}) {
    const Tensor w = randint(-128, 128, {n, k}).to(kInt8), scale = rand(n) + 0.1;
    const Tensor q = randint(0, 256, {m, k}), a = (q - 77).to(kFloat32) * 0.5;
    const Tensor y =
        quantized_linear(a, w, scale, {.input_scale = full({}, 0.5), .input_zero_point = full({}, 77).to(kInt32)});
    const Tensor exact = linear(a.to(kFloat64), w.to(kFloat64)) * scale.to(kFloat64);
    CHECK(distance(y.to(kFloat64), exact) <= 1e-6 * amax(abs(exact)).item());
  }
}

TEST_CASE("8-bit convolutions agree with float ones on the same integers") {
  manual_seed(2);
  struct Shapes {
    Shape x, w;
    ConvOptions o;
  };
  for (const auto& s : std::vector<Shapes>{{{2, 3, 9, 8}, {8, 3, 3, 3}, {.stride = 2, .padding = 1}},
                                           {{1, 16, 7, 7}, {6, 16, 1, 1}, {}},
                                           {{1, 34, 7, 7}, {34, 17, 1, 1}, {.groups = 2}},
                                           {{1, 30, 6, 6}, {102, 10, 3, 3}, {.padding = 1, .groups = 3}},
                                           {{2, 8, 6, 6}, {8, 2, 3, 3}, {.padding = 1, .groups = 4}},
                                           {{1, 4, 11, 9}, {5, 4, 3, 2}, {.padding = {2, 1}, .dilation = 2}},
                                           {{2, 64, 8, 8}, {32, 64, 3, 3}, {.padding = "same"}},
                                           {{2, 3, 6, 6}, {4, 3, 2, 2}, {.padding = "same"}},
                                           {{2, 5, 30}, {4, 5, 5}, {.stride = 2, .padding = 2}},
                                           {{1, 2, 5, 6, 7}, {3, 2, 2, 3, 3}, {.padding = 1}},
                                           {{4, 9, 9}, {5, 4, 3, 3}, {}}})
    for (bool last : {false, true}) {
      const int64_t rank = s.w.size(), o = s.w[0];
      Tensor a = (randint(0, 256, s.x) - 100).to(kFloat32) * 0.25;
      const Tensor w = randint(-128, 128, s.w).to(kInt8), scale = rand(o) + 0.1, bias = randn(o);
      if (last && a.dim() == 4) a = a.contiguous(kChannelsLast);
      const Tensor y = quantized_conv(a, w, scale, full({}, 0.25), full({}, 100).to(kInt32), bias, s.o);
      Shape along = Dims::filled(rank, 1);
      along[0] = o;
      const Tensor wide = w.to(kFloat64) * scale.to(kFloat64).view(along);
      const auto conv = rank == 3 ? conv1d : rank == 4 ? conv2d : conv3d;
      const Tensor exact = conv(a.to(kFloat64), wide, bias.to(kFloat64), s.o);
      REQUIRE(y.shape() == exact.shape());
      CHECK(distance(y.to(kFloat64), exact) <= 1e-6 * amax(abs(exact)).item());
    }
}

TEST_CASE("the composite forms, which a device without the kernels uses, agree with the kernels") {
  manual_seed(4);
  NoGrad guard;
  const Tensor w = randint(-128, 128, {12, 64}).to(kInt8), scale = rand(12) + 0.1, a = randn({5, 64}), bias = randn(12);
  const Tensor filter = randint(-128, 128, {6, 4, 3, 3}).to(kInt8), image = randn({2, 4, 7, 7});
  const Tensor step = full({}, 0.05), zero = full({}, 90).to(kInt32);
  const Tensor holes = a.clone();  // with a NaN, which a static range makes 0
  holes.select(0, 1).narrow(0, 3, 1).fill_(NAN), image.select(0, 1).select(0, 2).narrow(0, 1, 1).fill_(NAN);
  const auto four = quant::quantize_weight(randn({12, 64}), {.bits = 4});
  const auto all = [&] {
    return std::vector<Tensor>{
        quantized_linear(a, w, scale, {.bias = bias}), quantized_linear(a, w, scale, {.bias = bias, .dynamic = true}),
        quantized_linear(holes, w, scale, {.bias = bias, .input_scale = step, .input_zero_point = zero}),
        quantized_linear(a, four.weight, four.scale, {.bits = 4}),
        quantized_conv(image, filter, rand(6) * 0 + 0.3, step, zero, randn(6) * 0 + 1, {.stride = 2, .padding = 1})};
  };
  const std::vector<Tensor> kernels = all();
  BackendTable without = backend(Device(kCPU));
  without.quant_matmul = nullptr, without.quant_conv = nullptr;
  ScopedMode<const BackendTable*> mode(modes.tables[int(DeviceType::CPU)], &without);
  const std::vector<Tensor> composites = all();
  for (size_t i = 0; i < kernels.size(); ++i)
    CHECK(distance(kernels[i], composites[i]) <= 1e-5 * amax(abs(kernels[i])).item());
}

TEST_CASE("weights of 4 bits: packing, and products for one row and many") {
  const Tensor q = (remainder(arange(0, 6 * 64) * 7, 16) - 8).to(kInt8).view({6, 64});
  CHECK(pack_int4(q).shape() == Shape{6, 32});
  CHECK(equal(unpack_int4(pack_int4(q)), q));
  manual_seed(1);
  for (int64_t bits : {8, 4})
    for (int64_t group : {32, 64, 0}) {
      const Tensor w = randn({33, 256});
      const auto s = quant::quantize_weight(w, {.bits = bits, .group = group});
      const Tensor wide = dequantize_weight(s.weight, s.scale, bits);
      CHECK(distance(wide, w) <= (bits == 8 ? 0.02 : 0.8));
      for (int64_t rows : {1, 3, 8, 9, 40}) {
        Tensor a = randn({rows, 256}).requires_grad_();
        const Tensor y = quantized_linear(a, s.weight, s.scale, {.bits = bits});
        CHECK(distance(y, linear(a, wide)) <= 1e-4);
        sum(y).backward();
        CHECK(distance(a.grad(), expand(sum(wide, 0), a.shape())) <= 1e-4);
      }
    }
  CHECK(quantized_linear(randn({2, 256}).to(kBFloat16), ones({3, 256}).to(kInt8), ones(3)).dtype() == kBFloat16);
}

TEST_CASE("weights of 4 bits lose nothing beside an outlier, by any number of rows and with any groups") {
  manual_seed(11);
  NoGrad guard;
  for (const int64_t k : {32, 96, 192, 384, 1056})
    for (const int64_t group : {32, 64, 96, 192}) {
      if (k % group) continue;
      Tensor w = randn({19, k}), x = randn({9, k}) * 1e-3;
      w.select(1, 5).fill_(0);
      x.select(1, 5).fill_(1e6);
      const auto four = quant::quantize_weight(w, {.bits = 4, .group = group});
      const Tensor wide = dequantize_weight(four.weight, four.scale, 4).to(kFloat64),
                   exact = linear(x.to(kFloat64), wide);
      const Tensor most = linear(abs(x).to(kFloat64), abs(wide)) * 1e-6;
      REQUIRE(amax(most).item() < 1e-4);  // the outlier has no part in it
      for (const int64_t rows : {1, 4, 7, 8, 9}) {
        const Tensor y = quantized_linear(narrow(x, 0, 0, rows), four.weight, four.scale, {.bits = 4});
        INFO(k << " " << group << " " << rows);
        CHECK(le(abs(y - narrow(exact, 0, 0, rows)), narrow(most, 0, 0, rows)).all().item<bool>());
      }
    }
}

TEST_CASE("static quantization: folding, calibration, names, saving") {
  Net n = net();
  const Tensor images = randn({16, 3, 9, 9});
  NoGrad guard;
  const Tensor exact = n(images);
  Net q = quant::quantize(n, images, [&](Net& net) { net(images); });
  CHECK(distance(q(images), exact) <= 0.05 * amax(abs(exact)).item());
  CHECK(distance(q(images), exact) > 0);
  CHECK(distance(n(images), exact) == 0);  // a copy
  CHECK(
      names_of(q.state_dict()) ==
      "conv.weight conv.scale conv.bias conv.input_scale conv.input_zero_point second.weight second.scale second.bias "
      "second.input_scale second.input_zero_point fc.weight fc.scale fc.bias fc.input_scale fc.input_zero_point ");
  CHECK(q.parameters().empty());
  CHECK(contains(q.str(), "(bn): Identity()"));
  CHECK(contains(q.str(), "(fc): Linear(in_features=16"));
  CHECK(q.conv.weight.defined() == false);
  Net copy = q.clone();
  CHECK(distance(copy(images), q(images)) == 0);

  // A file goes into a model that was prepared and converted without data.
  Net other = quant::prepare(n, images);
  quant::convert_(other, {.uncalibrated = true});
  CHECK(distance(other(images), q(images)) > 0);
  const std::string path = "quantize_test.safetensors";
  io::save_safetensors(path, q.state_dict());
  other.load_state_dict(io::load_safetensors(path));
  std::remove(path.c_str());
  CHECK(distance(other(images), q(images)) == 0);
  CHECK(contains(error_of([&] { other.load_state_dict(n.state_dict(), {.strict = false}); }), "dtype mismatch"));
}

TEST_CASE("a ResNet folds all its batch norms") {
  manual_seed(0);
  auto net = models::resnet18({.num_classes = 10, .width = 8, .small_images = true});
  NoGrad guard;
  net(randn({4, 3, 32, 32}));
  net.eval();
  const Tensor images = randn({4, 3, 32, 32}), exact = net(images);
  auto folded = net.clone();
  CHECK(quant::fold_batch_norm_(folded, images) == 20);
  CHECK(distance(folded(images), exact) <= 1e-4 * amax(abs(exact)).item());
  auto q = quant::quantize(net, images, [&](auto& net) { net(images); });
  CHECK(distance(q(images), exact) <= 0.1 * amax(abs(exact)).item());
}

TEST_CASE("a batch norm over another dimension than a linear layer's outputs stays") {
  nn::Sequential net(nn::Linear(8, 16), nn::BatchNorm1d(4)), same(nn::Linear(8, 4), nn::BatchNorm1d(4));
  NoGrad guard;
  for (nn::Sequential* n : {&net, &same}) {
    const Tensor x = randn({5, 4, 8});
    (*n)(x), n->eval();
    CHECK(quant::fold_batch_norm_(*n, x) == 0);
  }
}

TEST_CASE("a batch norm whose input is read elsewhere is refused") {
  Twice net;
  net(randn({4, 2, 3, 3}) * 3 + 1);
  CHECK(contains(error_of([&] { quant::prepare(net, randn({2, 2, 3, 3})); }), "read elsewhere"));
}

TEST_CASE("dynamic quantization of linear layers and an LSTM") {
  manual_seed(5);
  Language net;
  net.eval();
  NoGrad guard;
  const Tensor tokens = randint(0, 11, {6, 4}), exact = net(tokens);
  Language q = quant::quantize_dynamic(net);
  CHECK(distance(q(tokens), exact) <= 0.05);
  CHECK(distance(q(tokens), exact) > 0);
  CHECK(contains(names_of(q.state_dict()), "lstm.bias_ih_l0 lstm.bias_hh_l0"));
  CHECK(contains(names_of(q.state_dict()), "lstm.weight_ih_l1_reverse lstm.weight_ih_l1_reverse_scale"));
  CHECK(q.state_dict().at("lstm.weight_hh_l0").dtype() == kInt8);
  CHECK(contains(q.str(), "DynamicLSTM(8, 12, num_layers=2, bidirectional=True)"));
  Language other = quant::quantize_dynamic(net);
  other.load_state_dict(q.state_dict());
  CHECK(distance(other(tokens), q(tokens)) == 0);

  // Packed sequences and states go the same way.
  const Tensor rows = net.embed(tokens);
  const auto packed = nn::pack_padded_sequence(rows, {6, 4, 3, 1});
  const auto a = net.lstm(packed), b = q.lstm(packed);
  CHECK(distance(a.output.data, b.output.data) <= 0.05);
  CHECK(distance(a.state.c, b.state.c) <= 0.05);
  const nn::LSTMState start{randn({4, 4, 12}), randn({4, 4, 12})};
  CHECK(distance(net.lstm(rows, start).state.h, q.lstm(rows, start).state.h) <= 0.05);
}

TEST_CASE("weight-only quantization of GPT-2: hooks, ties, caches") {
  manual_seed(6);
  models::GPT2LMHeadModel net({.vocab_size = 65, .n_positions = 16, .n_embd = 64, .n_layer = 2, .n_head = 2});
  net.eval();
  NoGrad guard;
  const Tensor tokens = randint(0, 65, {2, 8}), exact = net(tokens);
  for (int64_t bits : {8, 4}) {
    auto q = quant::quantize_weights(net, {.bits = bits, .group = 32});
    CHECK(distance(q(tokens), exact) <= (bits == 8 ? 0.02 : 0.3));
    CHECK(q.state_dict().at("transformer.h.0.attn.c_attn.weight").is_contiguous());  // no copy at each call
    auto cache = q.new_cache(2, 16);
    CHECK(distance(q(tokens, cache), q(tokens)) <= 1e-4);
    CHECK(q.state_dict().at("transformer.h.0.attn.c_attn.weight").dtype() == (bits == 8 ? kInt8 : kUInt8));
    int calls = 0;
    q.transformer.h[0].mlp.c_fc.register_forward_hook([&](nn::Module&, auto&, auto&) { ++calls; });
    q(tokens);
    CHECK(calls == 1);
  }
  auto table = quant::quantize_weights(net, {.embeddings = true, .skip = {"transformer.wpe", "transformer.h"}});
  CHECK(distance(table(tokens), exact) <= 0.05);
  CHECK(table.state_dict().at("transformer.wte.weight").dtype() == kInt8);
}

TEST_CASE("bad inputs of quantization are typed errors") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(contains(error_of([] { quantize_per_tensor(x, 0, 0, kInt8); }), "scale above 0"));
  CHECK(contains(error_of([] { quantize_per_tensor(x, -1, 0, kInt8); }), "scale above 0"));
  CHECK(contains(error_of([&] { quantize_per_tensor(x, nan, 0, kInt8); }), "scale above 0"));
  CHECK(contains(error_of([] { quantize_per_tensor(x, 1, 300, kUInt8); }), "`zero_point` must be between"));
  CHECK(contains(error_of([] { quantize_per_tensor(x, 1, 0, kInt64); }), "expected dtype"));
  CHECK(contains(error_of([] { quantize_per_tensor(Tensor(), 1, 0, kInt8); }), "undefined"));
  CHECK(contains(error_of([] { quantize_per_tensor(x.to(kInt32), 1, 0, kInt8); }), "floats"));
  CHECK(contains(error_of([] { quantize_per_channel(x, ones(4), {}, 0, kInt8); }), "expected 3 scales"));
  CHECK(contains(error_of([] { quantize_per_channel(x, zeros(3), {}, 0, kInt8); }), "scales above 0"));
  CHECK(contains(error_of([] { quantize_per_channel(x, ones(3), zeros(2), 0, kInt8); }), "must match"));
  CHECK(contains(error_of([] { fake_quantize_per_tensor_affine(x, 1, 0, 10, 5); }), "quant_min"));
  CHECK(contains(error_of([] { quant::quantize_weight(x, {.bits = 3}); }), "8 or 4 bits"));
  CHECK(contains(error_of([] { quant::quantize_weight(ones({4, 96}), {.bits = 4}); }), "divides the 96 columns"));
  CHECK(contains(error_of([] { quant::quantize_weight(ones({4, 96}), {.bits = 4, .group = 48}); }), "32, 64, 128"));
  CHECK(contains(error_of([&] { quant::quantize_weight(full({2, 2}, nan)); }), "NaN or infinity"));
  CHECK(contains(error_of([&] { quant::quantize_weight(full({2, 2}, inf)); }), "NaN or infinity"));
  CHECK(contains(error_of([] { pack_int4(full({2, 2}, 9).to(kInt8)); }), "[-8, 7]"));
  CHECK(contains(error_of([] { pack_int4(ones({2, 3}).to(kInt8)); }), "even"));
  CHECK(contains(error_of([] { quantized_linear(x, ones({2, 5}).to(kInt8), ones(2)); }), "(..., 5)"));
  CHECK(contains(error_of([] { quantized_linear(x, ones({2, 4}).to(kInt8), ones(2), {.bits = 5}); }), "8 or 4 bits"));
  CHECK(contains(error_of([] { quantized_linear(x, ones({2, 4}).to(kInt8), ones({2, 3})); }), "groups that divide"));
  for (const int zero : {-1, 256, 40000}) {  // on the CPU alone: another device would have to be waited for
    const Tensor point = full({}, zero).to(kInt32), one = full({}, 1.0);
    const auto linear_by = [&] {
      quantized_linear(ones({2, 4}), ones({2, 4}).to(kInt8), ones(2), {.input_scale = one, .input_zero_point = point});
    };
    const auto conv_by = [&] { quantized_conv(ones({1, 2, 4}), ones({2, 2, 1}).to(kInt8), ones(2), one, point); };
    CHECK(contains(error_of(linear_by), "[quantized_linear] expected an input_zero_point from 0 to 255"));
    CHECK(contains(error_of(conv_by), "[quantized_conv] expected an input_zero_point from 0 to 255"));
  }
  quant::Observer observer;
  CHECK(contains(error_of([&] { observer.calculate_qparams(); }), "has seen no values"));
  CHECK(contains(error_of([&] { observer(full({3}, nan)); }), "no NaN"));
  CHECK(contains(error_of([&] { observer(full({3}, inf)); }), "finite"));
  observer(zeros(5));  // a range of nothing has the least scale
  CHECK(observer.calculate_qparams().scale.item() > 0);
  equal(quant::DynamicLinear(zeros({2, 4}), {})(zeros({1, 4})), {0, 0});

  Net n = net();
  Net prepared = quant::prepare(n);
  CHECK(contains(error_of([&] { quant::convert(prepared); }), "module conv saw no data"));
  CHECK(contains(error_of([&] { quant::quantize_weights(n, {.bits = 2}); }), "8 or 4 bits"));
  CHECK(contains(error_of([&] { quant::quantize_weights(n, {.bits = 4}); }), "the 16 inputs of fc"));
  CHECK(contains(error_of([&] { quant::quantize_dynamic(n, {.skip = {"nothing"}}); }), "names of modules"));
  nn::weight_norm(n.fc);
  CHECK(contains(error_of([&] { quant::quantize_dynamic(n); }), "remove_parametrizations"));
}

TEST_CASE("products of every size: rows, columns and lengths around the blocks of the kernels") {
  manual_seed(7);
  NoGrad guard;
  const Tensor half = full({}, 0.5), zero = full({}, 77).to(kInt32);
  for (const int64_t m : {1, 2, 3, 4, 6, 7, 9, 12, 17, 29, 33})
    for (const int64_t n : {1, 3, 8, 13, 31, 32, 70})
      for (const int64_t k : {1, 4, 31, 64, 65, 160, 673}) {
        const Tensor w = randint(-128, 128, {n, k}).to(kInt8), scale = rand(n) + 0.1, bias = randn(n);
        const Tensor a = (randint(0, 256, {m, k}) - 77).to(kFloat32) * 0.5;  // exact in 8 bits
        const Tensor exact = linear(a.to(kFloat64), w.to(kFloat64)) * scale.to(kFloat64) + bias;
        const double size = amax(abs(exact)).item() + 1;
        INFO(m << " " << n << " " << k);
        REQUIRE(distance(quantized_linear(a, w, scale, {.bias = bias, .input_scale = half, .input_zero_point = zero}),
                         exact) <= 1e-6 * size);
        REQUIRE(distance(quantized_linear(a, w, scale, {.bias = bias}), exact) <= 2e-6 * size);
        // By its own range: the rounding of the activations, which a row of 256 steps bounds.
        const Tensor rough = quantized_linear(a, w, scale, {.bias = bias, .dynamic = true});
        const Tensor step = (clamp_min(amax(a, 1), 0) - clamp_max(amin(a, 1), 0)) / 255;
        const Tensor most = unsqueeze(step, 1) * unsqueeze(sum(abs(w.to(kFloat32)), 1) * scale, 0) * 0.51 + 1e-5 * size;
        REQUIRE(le(abs(rough - exact), most).all().item<bool>());
        if (k % 32) continue;
        const auto four = quant::quantize_weight(randn({n, k}), {.bits = 4, .group = 32});
        const Tensor wide = dequantize_weight(four.weight, four.scale, 4).to(kFloat64);
        const Tensor y = linear(a.to(kFloat64), wide) + bias;
        REQUIRE(distance(quantized_linear(a, four.weight, four.scale, {.bias = bias, .bits = 4}), y) <=
                2e-6 * (amax(abs(y)).item() + 10));
      }
}

TEST_CASE("a dynamic product of a row has the same bits alone and among others, for any number of threads") {
  manual_seed(8);
  NoGrad guard;
  const int threads = get_num_threads();
  for (const int64_t k : {40, 640, 1300}) {  // weights are not repacked for 2, 32 and 65 rows
    const Tensor w = randint(-128, 128, {70, k}).to(kInt8), scale = rand(70) + 0.1, x = randn({65, k});
    for (const Tensor& bias : {Tensor(), randn(70)}) {
      set_num_threads(1);
      std::vector<Tensor> alone;
      for (int64_t i = 0; i < 65; ++i)
        alone.push_back(quantized_linear(narrow(x, 0, i, 1), w, scale, {.bias = bias, .dynamic = true}));
      const Tensor rows = cat(alone);
      for (const int n : {1, 2, 3})
        for (const int64_t m : {2, 5, 6, 16, 32, 33, 41, 42, 65}) {
          set_num_threads(n);
          INFO(k << " " << n << " " << m);
          CHECK(equal(quantized_linear(narrow(x, 0, 0, m), w, scale, {.bias = bias, .dynamic = true}),
                      narrow(rows, 0, 0, m)));
        }
    }
  }
  set_num_threads(threads);
}

TEST_CASE("a row with NaN gives NaN, others stay") {
  Tensor a = ones({3, 8});
  a.select(0, 1).fill_(std::numeric_limits<float>::quiet_NaN());
  const Tensor y = quant::DynamicLinear(ones({2, 8}), {})(a);
  equal(isnan(y).to(kFloat32), {0, 0, 1, 1, 0, 0});
}

TEST_CASE("an observer refuses a range whose width float32 cannot hold") {
  using quant::Range;
  for (const Range range : {Range::MinMax, Range::MovingAverage, Range::Histogram, Range::PerChannel}) {
    quant::Observer observer({.range = range});
    CHECK(error_of([&] {
            observer(tensor({{-3e38f, 3e38f}})), observer.calculate_qparams();
          }).find("[Observer] expected a range") == 0);
  }
  quant::Observer symmetric({.range = Range::MinMax, .symmetric = true});
  symmetric(tensor({-3e38f, 3e38f}));
  CHECK(symmetric.calculate_qparams().scale.item() == Approx(3e38 / 127.5));
}
