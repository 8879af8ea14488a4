// cuda_kernels/quant: products and convolutions with quantized weights beside the CPU's.
#include <tapir/models/gpt2.h>
#include <tapir/quant/quantize.h>

#include "both.h"
#include "kernels.h"

using namespace tapir;
using tapir_tests::Array, tapir_tests::differ, tapir_tests::Operands;

namespace {

struct Sizes {
  int64_t m, n, k;
};
/// Rows for each kernel; columns and lengths around packs, tiles and their multiples.
constexpr Sizes kSizes[] = {{1, 1, 1},      {1, 5, 7},     {2, 33, 31},    {8, 40, 64},    {3, 17, 96},
                            {1, 130, 256},  {4, 9, 4608},  {5, 3, 1056},   {8, 96, 2080},  {9, 70, 96},
                            {20, 530, 64},  {24, 33, 128}, {25, 40, 96},   {260, 400, 96}, {9, 128, 65},
                            {33, 130, 160}, {64, 8, 48},   {65, 129, 224}, {130, 70, 33},  {200, 300, 64},
                            {1, 16, 16384}, {7, 2, 12288}, {1, 2, 32768}};

/// Arrays of a product; scales are not powers of two.
struct Product {
  Array y, x, w, scale, bias;
  QuantMatmulParams params;
  Product(Sizes s, DType dtype, QuantOp op, int64_t bits, int64_t group, int64_t gap = 0, bool turned = false)
      : y(dtype, {s.m, s.n}, turned ? std::vector<int>{1, 0} : std::vector<int>{0, 1}, {}, gap),
        x(dtype, {s.m, s.k}, turned ? std::vector<int>{1, 0} : std::vector<int>{0, 1}, {}, gap),
        w(bits == 8 ? kInt8 : kUInt8, {s.n, s.k * bits / 8}, {}, {}, gap),
        scale(kFloat32, {s.n, s.k / group}, {}, {}, gap), bias(kFloat32, {s.n}), params{op, bits, group} {
    x.random(uint32_t(s.m + 7 * s.k), -300, 300), w.random(uint32_t(s.n), bits == 8 ? -128 : 0, bits == 8 ? 127 : 255);
    scale.random(3, 1, 40), bias.random(5, -50, 50);
    for (int64_t i = 0; i < scale.count; ++i)
      tapir_tests::write(kFloat32, scale.view.data, i, tapir_tests::read(kFloat32, scale.view.data, i) / 30000);
    for (int64_t i = 0; i < x.count; ++i)
      tapir_tests::write(dtype, x.view.data, i, tapir_tests::read(dtype, x.view.data, i) / 70);
  }
  std::string differs(double tolerance, Array* x_scale = nullptr, Array* x_zero = nullptr, bool with_bias = true) {
    return differ({&y, &x, x_scale, x_zero, &w, &scale, with_bias ? &bias : nullptr}, tolerance,
                  [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                    table.quant_matmul(ctx, {.y = v[0],
                                             .x = v[1],
                                             .x_scale = v[2],
                                             .x_zero = v[3],
                                             .w = v[4],
                                             .w_scale = v[5],
                                             .bias = v[6],
                                             .params = params});
                  });
  }
};
/// 0-dim.
Array number(DType dtype, double value) {
  Array a(dtype, {});
  a.fill(value);
  return a;
}

}  // namespace

TEST_CASE("cuda quant_matmul: float activations, weights of 8 and 4 bits with any groups") {
  NEEDS_DEVICE();
  for (const Sizes s : kSizes)
    for (const DType dtype : {kFloat32, kFloat16, kBFloat16})
      for (const int64_t bits : {8, 4})
        for (const int64_t group : {s.k, int64_t(32), int64_t(16), int64_t(3), int64_t(64)}) {
          if (s.k % group || (bits == 4 && group % 32)) continue;
          INFO(s.m << " " << s.n << " " << s.k << " " << name_of(dtype) << " " << bits << " " << group);
          Product p(s, dtype, QuantOp::WeightOnly, bits, group);
          // Many rows: weights are rounded to the activations' dtype.
          const double tolerance = (dtype == kFloat32   ? 2e-7
                                    : dtype == kFloat16 ? 3e-4
                                                        : 2e-3) *
                                   std::sqrt(double(s.k) + 16);
          CHECK(p.differs(tolerance, nullptr, nullptr, bits == 8) == "");
        }
}

TEST_CASE("cuda quant_matmul: few rows of 16 bits are rounded once") {
  NEEDS_DEVICE();
  for (const DType dtype : {kFloat16, kBFloat16})
    for (const int64_t bits : {8, 4})
      for (const int64_t m : {1, 3, 8}) {
        Product p({m, 37, 384}, dtype, QuantOp::WeightOnly, bits, 64);
        CHECK(p.differs(dtype == kFloat16 ? 5e-4 : 4e-3) == "");
      }
}

TEST_CASE("cuda quant_matmul: GELU behind it") {
  NEEDS_DEVICE();
  for (const Sizes s :
       {Sizes{1, 5, 7}, {1, 130, 256}, {3, 17, 96}, {8, 33, 64}, {24, 33, 128}, {40, 48, 64}, {2, 3, 0}})
    for (const DType dtype : {kFloat32, kFloat16, kBFloat16})
      for (const QuantOp op : {QuantOp::WeightOnly, QuantOp::Dynamic})
        for (const int64_t bits : {8, 4}) {
          if (bits == 4 && (s.k % 32 || op != QuantOp::WeightOnly)) continue;
          INFO(s.m << " " << s.n << " " << s.k << " " << name_of(dtype) << " " << bits << " " << int(op));
          Product p(s, dtype, op, bits, std::max<int64_t>(s.k, 1));
          p.params.finish = MatmulFinish::GeluTanh;
          CHECK(p.differs(dtype == kFloat32 ? 3e-5 : dtype == kFloat16 ? 2e-3 : 1.6e-2) == "");
        }
}

TEST_CASE("cuda quant_matmul: many rows with more weights than are widened at a time") {
  NEEDS_DEVICE();
  Product p({25, 4200, 1024}, kFloat32, QuantOp::WeightOnly, 8, 1024);
  p.bias = Array(kFloat32, {4200}, {}, {}, 1);
  p.bias.random(5, -50, 50), p.x.random(1), p.scale.fill(1);  // exact sums
  CHECK(p.differs(0) == "");
}

TEST_CASE("cuda quant_matmul: any strides and addresses") {
  NEEDS_DEVICE();
  for (const QuantOp op : {QuantOp::WeightOnly, QuantOp::Dynamic})
    for (const int64_t m : {3, 20})
      for (const bool turned : {false, true}) {
        Product p({m, 33, 96}, kFloat32, op, 8, 96, 1, turned);
        CHECK(p.differs(op == QuantOp::Dynamic ? 0 : 2e-6) == "");
      }
  // Weights and activations that begin at no multiple of 16 bytes.
  manual_seed(3);
  NoGrad guard;
  const Tensor w = randint(-128, 128, {9 * 64 + 3}).to(kInt8), x = randn({20 * 64 + 1}), scale = rand(9) + 0.1,
               packed = randint(0, 256, {9 * 32 + 1}).to(kUInt8), four = rand({9, 2}) + 0.1;
  for (const int64_t m : {2, 20}) {
    const auto products = [&](Device device) {
      const Tensor rows = narrow(x.to(device), 0, 1, m * 64).view({m, 64}),
                   weight = narrow(w.to(device), 0, 3, 9 * 64).view({9, 64});
      return std::vector<Tensor>{
          quantized_linear(rows, weight, scale.to(device)),
          quantized_linear(rows, weight, scale.to(device), {.dynamic = true}),
          quantized_linear(rows, narrow(packed.to(device), 0, 1, 9 * 32).view({9, 32}), four.to(device), {.bits = 4})};
    };
    const std::vector<Tensor> host = products(kCPU), device = products(kCUDA);
    for (size_t i = 0; i < host.size(); ++i) CHECK(difference(device[i], host[i]) <= 2e-6);
  }
}

TEST_CASE("cuda quant_matmul: activations of 8 bits have the CPU's bits") {
  NEEDS_DEVICE();
  Array step = number(kFloat32, 0.037), zero = number(kInt32, 77);
  for (const Sizes s : kSizes)
    for (const DType dtype : {kFloat32, kFloat16, kBFloat16})
      for (const bool bias : {true, false}) {
        INFO(s.m << " " << s.n << " " << s.k << " " << name_of(dtype));
        Product p(s, dtype, QuantOp::Dynamic, 8, s.k), q(s, dtype, QuantOp::Static, 8, s.k);
        CHECK(p.differs(0, nullptr, nullptr, bias) == "");
        CHECK(q.differs(0, &step, &zero, bias) == "");
      }
}

TEST_CASE("cuda quant_matmul: rows with NaN and infinity, rows of nothing but zeros, one sign") {
  NEEDS_DEVICE();
  for (const int64_t m : {8, 12})
    for (const int64_t k : {64, 70}) {
      Product p({m, 20, k}, kFloat32, QuantOp::Dynamic, 8, k), q({m, 20, k}, kFloat32, QuantOp::Static, 8, k);
      for (Product* each : {&p, &q}) {
        float* const x = each->x.view.as<float>();
        for (int64_t i = 0; i < k; ++i) {
          x[2 * k + i] = 0, x[3 * k + i] = std::abs(x[3 * k + i]) + 1, x[4 * k + i] = -1e-35f,
                    x[6 * k + i] = i % 2 ? 3e38f : -3e38f;
        }
        x[5] = NAN, x[k + k - 1] = -INFINITY, x[5 * k + 3] = INFINITY;
      }
      CHECK(p.differs(0) == "");
      Array step = number(kFloat32, 0.02), zero = number(kInt32, 0);
      CHECK(q.differs(0, &step, &zero) == "");
    }
}

TEST_CASE("cuda quant_conv: every geometry") {
  NEEDS_DEVICE();
  struct Geometry {
    std::vector<int64_t> x, w;
    ConvParams params;
  };
  const Geometry all[] = {
      {{2, 3, 7, 6}, {4, 3, 3, 3}, {.spatial = 2, .stride = {2, 2, 1}, .padding = {1, 1, 0}}},
      {{1, 20, 9, 8}, {130, 20, 3, 2}, {.spatial = 2, .padding = {2, 0, 0}, .dilation = {2, 3, 1}}},
      {{3, 32, 5, 5}, {40, 32, 1, 1}, {.spatial = 2, .stride = {1, 2, 1}}},
      {{2, 12, 6, 7}, {12, 1, 3, 3}, {.spatial = 2, .groups = 12, .padding = {1, 2, 0}}},
      {{2, 34, 6, 5}, {6, 17, 2, 3}, {.spatial = 2, .groups = 2}},
      {{3, 5, 19}, {7, 5, 4}, {.spatial = 1, .stride = {3, 1, 1}, .padding = {2, 0, 0}}},
      {{1, 16, 4, 5, 6},
       {9, 16, 2, 3, 2},
       {.spatial = 3, .stride = {1, 2, 1}, .padding = {1, 0, 1}, .dilation = {2, 1, 1}}},
      {{1, 64, 12, 12}, {130, 64, 3, 3}, {.spatial = 2, .padding = {1, 1, 0}}},
  };
  for (const Geometry& g : all)
    for (const bool last : {false, true})
      for (const int zero_point : {0, 101, 255}) {
        const ConvParams& p = g.params;
        std::vector<int64_t> out = {g.x[0], g.w[0]};
        for (int64_t d = 0; d < p.spatial; ++d)
          out.push_back(
              (g.x[size_t(d) + 2] + 2 * p.padding[d] - p.dilation[d] * (g.w[size_t(d) + 2] - 1) - 1) / p.stride[d] + 1);
        std::vector<int> order = {0};
        for (int d = 2; d < int(g.x.size()); ++d) order.push_back(d);
        order.insert(last ? order.end() : order.begin() + 1, 1);
        Array y(kFloat32, out, order), x(kFloat32, g.x, order), w(kInt8, g.w), scale(kFloat32, {g.w[0]}),
            bias(kFloat32, {g.w[0]}), step = number(kFloat32, 0.05), zero = number(kInt32, zero_point);
        x.random(1, -9, 9), w.random(2, -128, 127), scale.random(3, 1, 5), bias.random(4, -9, 9);
        x.view.as<float>()[3] = NAN;
        INFO(g.x.size() << " " << g.x[1] << " " << last << " " << zero_point);
        CHECK(differ({&y, &x, &step, &zero, &w, &scale, zero_point ? &bias : nullptr}, 1e-6,
                     [&](const BackendTable& table, Context& ctx, const std::vector<TensorView>& v) {
                       table.quant_conv(ctx, {.y = v[0],
                                              .x = v[1],
                                              .x_scale = v[2],
                                              .x_zero = v[3],
                                              .w = v[4],
                                              .w_scale = v[5],
                                              .bias = v[6],
                                              .params = p});
                     }) == "");
      }
}

namespace {
struct Net : nn::Module {
  nn::Conv2d conv{3, 8, 3, {.padding = 1}};
  nn::Conv2d second{8, 16, 3, {.stride = 2}};
  nn::Linear fc{16, 5};
  Tensor forward(const Tensor& x) { return fc(mean(relu(second(relu(conv(x)))), {2, 3})); }
  TAPIR_FIELDS(conv, second, fc)
};
/// What the model says there, and here afterwards.
template <class M> double moved(M& model, const Tensor& x) {
  const Tensor host = model(x);
  model.to(kCUDA);
  const double d = difference(model(x.to(kCUDA)), host);
  model.to(kCPU);
  return d + difference(model(x), host);
}
}  // namespace

TEST_CASE("cuda: quantized modules move to the device") {
  NEEDS_DEVICE();
  manual_seed(5);
  NoGrad guard;
  Net net;
  const Tensor images = randn({4, 3, 9, 9});
  Net small = quant::quantize(net, images, [&](Net&n) { n(images); }), dynamic = quant::quantize_dynamic(net);
  CHECK(moved(small, images) <= 0.02);  // a number at the border of two steps may fall to either
  CHECK(moved(dynamic, images) <= 0.02);
  models::GPT2LMHeadModel gpt({.vocab_size = 65, .n_positions = 16, .n_embd = 64, .n_layer = 2, .n_head = 2});
  gpt.eval();
  const Tensor tokens = randint(0, 65, {2, 8}), next = randint(0, 65, {2, 1});
  for (const int64_t bits : {8, 4}) {
    auto q = quant::quantize_weights(gpt, {.bits = bits, .group = 32});
    CHECK(moved(q, tokens) <= 1e-5);
    q.to(kCUDA);
    auto cache = q.new_cache(2, 16);
    q(tokens.to(kCUDA), cache);
    const Tensor there = q(next.to(kCUDA), cache);  // few rows
    q.to(kCPU);
    CHECK(difference(there, narrow(q(cat({tokens, next}, 1)), 1, 8, 1)) <= 1e-5);
  }
}

TEST_CASE("cuda: a quantized model is one program") {
  NEEDS_DEVICE();
  manual_seed(6);
  models::GPT2LMHeadModel gpt({.vocab_size = 65, .n_positions = 16, .n_embd = 64, .n_layer = 1, .n_head = 2});
  gpt.to(kBFloat16), gpt.eval();
  auto weights = quant::quantize_weights(gpt, {.bits = 4, .group = 32}), dynamic = quant::quantize_dynamic(gpt);
  const Tensor tokens = randint(0, 65, {2, 5}).to(kCUDA);
  for (auto* net : {&weights, &dynamic}) {
    net->to(kCUDA);
    const auto scores = [net](const Tensor& x) {
      InferenceMode guard;
      return (*net)(x);
    };
    auto program = compile(scores, {.verify = 0, .background = false});
    const Tensor eager = scores(tokens).clone();
    // Fused rows may be summed in another order; a number at the border of two steps may fall to either.
    for (int i = 0; i < 4; ++i) CHECK(difference(program(tokens), eager.cpu()) <= 0.02);
    CHECK(program.programs() == 1);
    CHECK(contains(program.explain(), "quant_matmul"));
  }
}
