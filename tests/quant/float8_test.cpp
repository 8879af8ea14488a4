// 8-bit floats: their rounding, products with gradients, and training with them.
#include <tapir/core/formulas/float8.h>
#include <tapir/models/gpt2.h>
#include <tapir/nn/replace.h>
#include <tapir/tapir.h>

#include <cmath>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {

/// The nearest number of the format, ties to even, by its definition.
double nearest(double x, Float8 format) {
  const int mantissa = format == Float8::E4M3 ? 3 : 2, lowest = format == Float8::E4M3 ? -6 : -14;
  if (x == 0 || std::isnan(x)) return x;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(x), lowest) - mantissa);
  const double most = double(formulas::largest(format));
  return std::clamp(std::nearbyint(x / unit) * unit, -most, most);
}
/// What x is after it went through 8 bits, in float64 on the host.
Tensor rounded(const Tensor& x, Float8 format) {
  std::vector<double> v = x.detach().cpu().to(kFloat64).flatten().to_vector<double>();
  double amax = 0;
  for (const double a : v) amax = std::max(amax, std::abs(a));
  const float scale = amax == 0 ? 1.0f : float(amax) / float(formulas::largest(format));
  for (double& a : v) a = nearest(double(float(a) / scale), format) * double(scale);
  return tensor(v).view(x.shape());
}
double distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const Tensor x = a.detach().cpu().to(kFloat64), y = b.detach().cpu().to(kFloat64);
  return x.numel() ? amax(abs(x - y)).item() / (1 + amax(abs(y)).item()) : 0;
}
double rounding_of(DType t) { return t == kFloat32 ? 1e-5 : t == kFloat16 ? 1e-3 : 8e-3; }
std::vector<Device> devices() {
  return cuda::is_available() ? std::vector<Device>{kCPU, kCUDA} : std::vector<Device>{kCPU};
}
bool contains(const std::string& text, const char* part) { return text.find(part) != text.npos; }

struct Net : nn::Module {
  nn::Linear first{32, 64}, odd{64, 20}, last{20, 48};
  nn::Conv1D other{16, 48};
  Tensor forward(const Tensor& x) { return other(relu(last(relu(odd(relu(first(x))))))); }
  TAPIR_FIELDS(first, odd, last, other)
};
std::string names_of(nn::Module& module) {
  std::string out;
  for (auto& [name, t] : module.state_dict()) out += name + " ";
  return out;
}

}  // namespace

TEST_CASE("8-bit floats: every value, and rounding to the nearest with ties to even") {
  for (const Float8 format : {Float8::E4M3, Float8::E5M2}) {
    const int mantissa = format == Float8::E4M3 ? 3 : 2, bias = format == Float8::E4M3 ? 7 : 15;
    for (int byte = 0; byte < 256; ++byte) {
      const int exponent = (byte & 0x7f) >> mantissa, rest = byte & ((1 << mantissa) - 1);
      const float x = formulas::from_float8(uint8_t(byte), format);
      const bool special = format == Float8::E4M3 ? (byte & 0x7f) == 0x7f : exponent == 31;
      if (special) {
        CHECK((format == Float8::E5M2 && rest == 0 ? std::isinf(x) : std::isnan(x)));
        CHECK(std::isnan(formulas::from_float8(formulas::to_float8(x, format), format)));
        continue;
      }
      const double size = exponent ? std::ldexp(1 + std::ldexp(double(rest), -mantissa), exponent - bias)
                                   : std::ldexp(double(rest), 1 - bias - mantissa);
      CHECK(x == float(byte & 0x80 ? -size : size));
      CHECK(formulas::to_float8(x, format) == byte);  // the sign of 0 too
    }
    int64_t wrong = 0;
    for (uint64_t bits = 0; bits < uint64_t(1) << 32; bits += 4093) {
      const float x = std::bit_cast<float>(uint32_t(bits)),
                  y = formulas::from_float8(formulas::to_float8(x, format), format);
      wrong += std::isfinite(x) ? double(y) != nearest(double(x), format) : !std::isnan(y);
    }
    for (int byte = 0; byte < 0x7b; ++byte) {  // halfway between neighbours, and next to it
      const float low = formulas::from_float8(uint8_t(byte), format),
                  high = formulas::from_float8(uint8_t(byte + 1), format), middle = (low + high) / 2;
      for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, high)})
        wrong += double(formulas::from_float8(formulas::to_float8(x, format), format)) != nearest(double(x), format);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("float8_linear and its gradients are products of the rounded operands") {
  struct Sizes {
    Shape x;
    int64_t out;
  };
  for (const Device device : devices())
    for (const auto& [shape, n] : std::vector<Sizes>{
             {{32, 48}, 64}, {{2, 3, 16}, 32}, {{5, 7}, 3}, {{16}, 16}, {{0, 16}, 32}, {{4, 0}, 3}, {{33, 80}, 130}})
      for (const DType dtype : {kFloat32, kFloat16, kBFloat16})
        for (const bool with_bias : {true, false}) {
          INFO(device << " " << shape << " " << n << " " << dtype << " " << with_bias);
          manual_seed(1);
          const int64_t k = shape.back();
          Tensor x = randn(shape).to(dtype).to(device).requires_grad_(),
                 w = (randn({n, k}) * 0.1).to(dtype).to(device).requires_grad_(),
                 bias = with_bias ? randn({n}).to(dtype).to(device).requires_grad_() : Tensor();
          Shape of_y = shape;
          of_y[of_y.size() - 1] = n;
          const Tensor g = (randn(of_y) * 1e-3).to(dtype).to(device);
          const Tensor y = float8_linear(x, w, bias);
          y.backward(g);
          CHECK(y.dtype() == dtype);
          const Tensor rx = rounded(x, Float8::E4M3), rw = rounded(w, Float8::E4M3), rg = rounded(g, Float8::E5M2),
                       flat = rg.reshape({g.numel() / n, n});
          const Tensor exact = matmul(rx, rw.t());
          const double near = rounding_of(dtype);
          CHECK(distance(y, with_bias ? exact + bias.detach().cpu().to(kFloat64) : exact) <= near);
          CHECK(distance(x.grad() * 1e3, matmul(rg, rw) * 1e3) <= near);
          CHECK(distance(w.grad() * 1e3, matmul(flat.t(), rx.reshape({g.numel() / n, k})) * 1e3) <= near);
          CHECK((x.grad().dtype() == dtype && w.grad().dtype() == dtype));
          if (with_bias)
            CHECK(distance(bias.grad() * 1e3, sum(g.cpu().to(kFloat64).reshape({-1, n}), 0) * 1e3) <= near);
        }
}

TEST_CASE("float8_linear: strides, a transposed weight, frozen operands, NaN") {
  for (const Device device : devices()) {
    manual_seed(2);
    const Tensor base = randn({48, 40}).to(device), x = base.t().slice(0, 3, 36), stored = randn({48, 32}).to(device);
    Tensor w = stored.clone().requires_grad_();
    const Tensor y = float8_linear(x, w.t());  // the weight of a Conv1D
    CHECK(distance(y, matmul(rounded(x, Float8::E4M3), rounded(stored, Float8::E4M3))) <= 1e-5);
    const Tensor g = randn({33, 32}).to(device);
    y.backward(g);
    CHECK(distance(w.grad(), matmul(rounded(x, Float8::E4M3).t(), rounded(g, Float8::E5M2))) <= 1e-5);
    Tensor z = x.clone().requires_grad_();
    float8_linear(z, stored.t()).backward(g);
    CHECK(distance(z.grad(), matmul(rounded(g, Float8::E5M2), rounded(stored, Float8::E4M3).t())) <= 1e-5);
    CHECK_FALSE(float8_linear(x, stored.t()).requires_grad());
    for (const double special : {double(NAN), double(INFINITY)}) {
      Tensor bad = x.clone();
      bad[2][5] = special;
      const Tensor out = float8_linear(bad, stored.t());
      CHECK(isnan(out).all().item<bool>());  // the scale is the largest size
    }
    CHECK(distance(float8_linear(zeros({3, 16}, {.device = device}), ones({5, 16}, {.device = device})),
                   zeros({3, 5})) == 0);
  }
}

TEST_CASE("float8_linear under autocast gives the region's dtype, and gradients of the operands' own") {
  for (const Device device : devices()) {
    manual_seed(3);
    Tensor x = randn({32, 32}).to(device).requires_grad_(), w = randn({16, 32}).to(device).requires_grad_(),
           bias = randn({16}).to(device).requires_grad_();
    Tensor y;
    {
      amp::Autocast autocast(device, {.dtype = kBFloat16});
      y = float8_linear(x, w, bias);
    }
    CHECK(y.dtype() == kBFloat16);
    const Tensor rx = rounded(x.detach().to(kBFloat16), Float8::E4M3), rw = rounded(w, Float8::E4M3);
    CHECK(distance(y, matmul(rx, rw.t()) + bias.detach().cpu()) <= 8e-3);
    const Tensor g = randn({32, 16}).to(kBFloat16).to(device), rg = rounded(g, Float8::E5M2);
    y.backward(g);
    CHECK((x.grad().dtype() == kFloat32 && w.grad().dtype() == kFloat32 && bias.grad().dtype() == kFloat32));
    CHECK(distance(x.grad(), matmul(rg, rw)) <= 8e-3);
    CHECK(distance(w.grad(), matmul(rg.t(), rx)) <= 1e-5);  // not rounded to 16 bits on its way
    CHECK(distance(bias.grad(), sum(g.cpu().to(kFloat64), 0)) <= 1e-5);
  }
}

TEST_CASE("float8_linear: bad inputs and second derivatives are typed errors") {
  const Tensor x = ones({4, 8}), w = ones({3, 8});
  CHECK(contains(error_of([&] { float8_linear(Tensor(), w); }), "[float8_linear] expected a tensor for the input"));
  CHECK(contains(error_of([&] { float8_linear(x, Tensor()); }), "a tensor for the weight"));
  CHECK(contains(error_of([&] { float8_linear(x, ones({3, 7})); }), "an input (..., 7)"));
  CHECK(contains(error_of([&] { float8_linear(x.to(kFloat64), w); }), "float32, float16 or bfloat16, got"));
  CHECK(contains(error_of([&] { float8_linear(x, w.to(kInt32)); }), "expected a weight (out, in)"));
  CHECK(contains(error_of([&] { float8_linear(x, ones({8})); }), "expected a weight (out, in)"));
  CHECK(contains(error_of([&] { float8_linear(full({}, 1.0), w); }), "an input (..., 8)"));
  CHECK(contains(error_of([&] { float8_linear(x, w, ones({4})); }), "expected a bias (3,)"));
  Tensor z = x.clone().requires_grad_();
  const Tensor y = sum(float8_linear(z, w));
  CHECK(contains(error_of([&] { grad({y}, {z}, {}, {.create_graph = true}); }), "it has no second derivative"));
}

TEST_CASE("float8_training_ puts layers of fitting sizes behind the same parameters") {
  manual_seed(4);
  Net net;
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  const std::string names = names_of(net);
  Net copy = net.clone();
  CHECK(quant::float8_training_(net) == 2);  // not those with 20 inputs or outputs
  CHECK(quant::float8_training_(net) == 0);
  CHECK(names_of(net) == names);
  CHECK(net.first.str() == "Float8Linear(in_features=32, out_features=64, bias=True)");
  CHECK(nn::replaced_by(net.odd) == nullptr);
  CHECK(net.parameters()[0].is_same(net.first.weight));
  CHECK(quant::float8_training_(copy, {.skip = {"first"}}) == 1);
  CHECK(contains(error_of([&] { quant::float8_training_(copy, {.skip = {"nothing"}}); }), "names of modules"));
  CHECK(contains(error_of([&] { quant::quantize_weights_(net, {}); }), "layer first has been replaced"));
  CHECK(contains(error_of([&] { quant::quantize_dynamic_(net, {}); }), "layer first has been replaced"));
  CHECK(contains(error_of([&] { nn::weight_norm(net.first); }), "another one stands in its place"));

  const Tensor x = randn({16, 32}), before = net.first.weight.detach().clone();
  const Tensor h = relu(net.first(x));
  CHECK(distance(h, relu(float8_linear(x, net.first.weight, net.first.bias))) == 0);
  sum(square(net(x))).backward();
  optimizer.step();
  CHECK(distance(net.first.weight, before) > 0);
  Net second = net.clone();
  CHECK(distance(second(x), net(x)) == 0);
  CHECK_FALSE(second.first.weight.is_same(net.first.weight));
  CHECK(second.parameters()[0].is_same(second.first.weight));
  copy.load_state_dict(net.state_dict());
  CHECK(distance(copy.first(x), linear(x, net.first.weight, net.first.bias)) <= 1e-6);
  CHECK(distance(copy.other(ones({2, 48})), net.other(ones({2, 48}))) == 0);
}

TEST_CASE("a compiled step in 8-bit floats is the eager one") {
  for (const Device device : devices()) {
    const auto train = [&](bool compiled) {
      manual_seed(5);
      Net net;
      net.to(device);
      quant::float8_training_(net);
      optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
      const Tensor x = randn({16, 32}).to(device), y = randn({16, 16}).to(device);
      auto step = compile(
          [&] {
            optimizer.zero_grad();
            Tensor loss;
            {
              amp::Autocast autocast(device, {.dtype = kBFloat16});
              loss = mse_loss(net(x), y);
            }
            loss.backward();
            optimizer.step();
            return loss;
          },
          {.enabled = compiled, .background = false});
      std::vector<double> losses;
      for (int i = 0; i < 8; ++i) losses.push_back(step().item());
      return losses;
    };
    const std::vector<double> eager = train(false), compiled = train(true);
    for (size_t i = 0; i < eager.size(); ++i) CHECK(compiled[i] == Approx(eager[i]).epsilon(0.02));
    CHECK(eager.back() < eager.front());
  }
}

TEST_CASE("a small GPT trains in 8-bit floats as in bfloat16") {
  // Each token is followed by one that it determines, in seven cases of ten.
  manual_seed(6);
  constexpr int64_t kWords = 48, kLength = 32, kBatch = 8;
  const auto rows = [&] {
    const Tensor noise = randint(0, kWords, {kBatch, kLength + 1}), coin = rand({kBatch, kLength + 1});
    std::vector<Tensor> columns{noise.select(1, 0)};
    for (int64_t t = 1; t <= kLength; ++t)
      columns.push_back(
          where(lt(coin.select(1, t), 0.7), remainder(columns.back() * 5 + 7, kWords), noise.select(1, t)));
    return stack(columns, 1);
  };
  std::vector<Tensor> data;
  for (int i = 0; i < 150; ++i) data.push_back(rows());
  const auto train = [&](bool float8) {
    manual_seed(7);
    models::GPT2LMHeadModel net(
        {.vocab_size = kWords, .n_positions = kLength, .n_embd = 64, .n_layer = 2, .n_head = 4, .dropout = 0});
    if (float8) CHECK(quant::float8_training_(net) == 9);
    optim::AdamW optimizer(net.parameters(), {.lr = 3e-3});
    double last = 0;
    for (size_t i = 0; i < data.size(); ++i) {
      optimizer.zero_grad();
      Tensor loss;
      {
        amp::Autocast autocast(kCPU, {.dtype = kBFloat16});
        const Tensor scores = net(data[i].slice(1, 0, kLength));
        loss = cross_entropy(scores.flatten(0, 1), data[i].slice(1, 1, kLength + 1).flatten());
      }
      loss.backward();
      optimizer.step();
      if (i + 20 >= data.size()) last += loss.item() / 20;
    }
    return last;
  };
  const double wide = train(false), narrow = train(true);
  INFO("bfloat16 " << wide << ", 8-bit floats " << narrow);
  CHECK(wide < 2.5);  // it has learnt: of chance alone 3.87
  CHECK(narrow == Approx(wide).epsilon(0.03));
}
