// build/<preset>/benchmarks/quant_speed: layers with 8 and 4 bits beside the same in float32. Weights are many enough that none stays in cache.
#include <tapir/tapir.h>

#include <array>
#include <chrono>
#include <cstdio>
using namespace tapir;

/// Microseconds of the fastest of several calls.
template <class F> static double best(F&& f, int calls) {
  double least = 1e30;
  f();
  for (int i = 0; i < calls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f();
    least =
        std::min(least, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

static void linear_layers() {
  train::Table table({"weight", "rows", "float32 us", "int8 weights", "int4 weights", "dynamic int8"});
  for (const auto& [n, k] : {std::array<int64_t, 2>{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}, {50257, 768}}) {
    const int64_t copies = 1 + (64 << 20) / (n * k * 4);
    std::vector<Tensor> floats;
    std::vector<quant::WeightOnlyLinear> eight, four;
    std::vector<quant::DynamicLinear> dynamic;
    for (int64_t i = 0; i < copies; ++i) {
      floats.push_back(randn({n, k}));
      eight.emplace_back(floats[0], Tensor()), dynamic.emplace_back(floats[0], Tensor());
      four.emplace_back(floats[0], Tensor(), quant::WeightOptions{.bits = 4});
    }
    for (const int64_t rows : {1, 4, 32, 256}) {
      if (rows > 4 && n > 10000) continue;
      const Tensor x = randn({rows, k});
      const auto each = [&](auto& layers) {
        return best(
                   [&] {
                     for (auto& layer : layers) layer(x);
                   },
                   10) /
               double(copies);
      };
      const double f = best(
                           [&] {
                             for (const Tensor& w : floats) linear(x, w);
                           },
                           10) /
                       double(copies);
      table.row({tapir::format("{} x {}", n, k), std::to_string(rows), train::fixed(f, 1),
                 train::fixed(f / each(eight), 2) + "x", train::fixed(f / each(four), 2) + "x",
                 train::fixed(f / each(dynamic), 2) + "x"});
    }
  }
}

static void convolutions() {
  struct Layer {
    int64_t batch, in, out, size, kernel;
  };
  train::Table table({"convolution", "size", "batch", "float32 us", "int8"});
  for (const Layer& l : {Layer{32, 3, 64, 32, 3},
                         {128, 24, 24, 32, 3},
                         {4, 64, 64, 56, 3},
                         {4, 128, 128, 28, 3},
                         {4, 256, 256, 14, 3},
                         {4, 512, 512, 7, 3},
                         {4, 64, 256, 56, 1},
                         {4, 256, 64, 56, 1}}) {
    const Tensor x = relu(randn({l.batch, l.in, l.size, l.size})).contiguous(kChannelsLast);
    const Tensor w = randn({l.out, l.in, l.kernel, l.kernel}), scale = full({}, 0.02), zero = full({}, 0).to(kInt32);
    const auto q = quant::quantize_weight(w);
    const ConvOptions o{.padding = l.kernel / 2};
    const double f = best([&] { conv2d(x, w, {}, o); }, 20),
                 i = best([&] { quantized_conv(x, q.weight, q.scale, scale, zero, {}, o); }, 20);
    table.row({tapir::format("{} -> {}, {}x{}", l.in, l.out, l.kernel, l.kernel), std::to_string(l.size),
               std::to_string(l.batch), train::fixed(f, 0), train::fixed(f / i, 2) + "x"});
  }
}

int main() {
  NoGrad guard;
  std::printf("%d threads\n", get_num_threads());
  linear_layers();
  convolutions();
}
