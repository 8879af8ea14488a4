// Convolutions by Winograd's algorithm beside the same in float64, and beside the direct ones: every pass, padding, layout.
#include "../same_bits.h"
#include "catch.h"

#include <tapir/tapir.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <thread>

using namespace tapir;
using tapir_tests::same_bits;

namespace {

struct Allow {
  bool before = backends::cpu::allow_winograd();
  explicit Allow(bool on) { backends::cpu::set_allow_winograd(on); }
  ~Allow() { backends::cpu::set_allow_winograd(before); }
};

struct Case {
  int64_t n, c, height, width, o;
  Dims padding;
};
const Case kCases[] = {
    {24, 32, 7, 9, 48, {1, 1}},                                 // tiles that are cut, channels that are no whole panel
    {4, 48, 16, 20, 32, {0, 0}},   {32, 32, 5, 4, 32, {2, 2}},  // more padding than an output needs
    {4, 80, 12, 13, 32, {1, 0}},   {2, 32, 16, 18, 80, {0, 2}},
    {2, 160, 20, 19, 144, {1, 1}},  // several parts of the channels
    {70, 32, 4, 4, 64, {1, 1}},     // several blocks of tiles
};

/// Results and gradients of x, w, bias.
std::vector<Tensor> passes(const Case& k, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& g) {
  const Tensor xs = x.detach().requires_grad_(), ws = w.detach().requires_grad_(), bs = b.detach().requires_grad_();
  const Tensor y = conv2d(xs, ws, bs, {.padding = k.padding});
  std::vector<Tensor> all = grad({y}, {xs, ws, bs}, {g.to(y.dtype())});
  all.insert(all.begin(), y.detach());
  return all;
}

struct Operands {
  Tensor x, w, b, g;
  explicit Operands(const Case& k) {
    manual_seed(1);
    x = randn({k.n, k.c, k.height, k.width}), w = randn({k.o, k.c, 3, 3}) / std::sqrt(9. * double(k.c)),
    b = randn({k.o});
    g = randn({k.n, k.o, k.height + 2 * k.padding[0] - 2, k.width + 2 * k.padding[1] - 2});
  }
};

double largest(const Tensor& x) { return amax(abs(x)).item(); }

/// What passes() gives by the algorithm, and directly.
struct Both {
  std::vector<Tensor> fast, direct;
};
Both both(const Case& k, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& g) {
  const auto of = [&](bool allowed) {
    const Allow allow(allowed);
    return passes(k, x, w, b, g);
  };
  return {of(true), of(false)};
}

/// There the direct kernels of bfloat16 are the faster ones.
bool has_amx() {
  std::ifstream file("/proc/cpuinfo");
  const std::string processor{std::istreambuf_iterator<char>(file), {}};
  return processor.find(" amx_bf16") != std::string::npos;
}

}  // namespace

TEST_CASE("winograd: errors are those of float32, in every pass and layout", "[isa]") {
  for (const Case& k : kCases) {
    const Operands o(k);
    const auto exact = passes(k, o.x.to(kFloat64), o.w.to(kFloat64), o.b.to(kFloat64), o.g);
    for (int layout = 0; layout < 4; ++layout) {
      CAPTURE(k.n, k.c, k.height, k.width, k.o, layout);
      Tensor x = o.x, w = o.w, g = o.g;
      if (layout == 1) x = x.to(kChannelsLast), w = w.to(kChannelsLast), g = g.to(kChannelsLast);
      if (layout == 2) x = pad(x, {1, 2, 0, 1}).slice(2, 0, k.height).slice(3, 1, k.width + 1), g = g.to(kChannelsLast);
      if (layout == 3)
        w = w.transpose(0, 1).contiguous().transpose(0, 1), x = x.transpose(2, 3).contiguous().transpose(2, 3);
      const auto [fast, direct] = both(k, x, w, o.b, g);
      for (size_t i = 0; i < exact.size(); ++i) {
        const double size = std::sqrt(mean(square(exact[i])).item());
        CAPTURE(i);
        CHECK(largest(fast[i].to(kFloat64) - exact[i]) <= 3e-5 * size);
        if (i < 3) CHECK_FALSE(same_bits(fast[i], direct[i]));  // it was another algorithm
      }
    }
  }
}

TEST_CASE("winograd: bfloat16 is computed in float32 and rounded once", "[isa]") {
  const Case cases[] = {{8, 32, 16, 32, 48, {1, 1}},
                        {4, 48, 18, 30, 32, {0, 0}},
                        {40, 80, 8, 8, 32, {1, 1}},
                        {16, 32, 15, 15, 64, {1, 1}}};
  for (const Case& k : cases) {
    Operands o(k);
    for (Tensor* t : {&o.x, &o.w, &o.b, &o.g}) *t = t->to(kBFloat16);
    const auto exact = passes(k, o.x.to(kFloat64), o.w.to(kFloat64), o.b.to(kFloat64), o.g);
    for (int layout = 0; layout < 3; ++layout) {
      CAPTURE(k.n, k.c, k.height, k.width, k.o, layout);
      Tensor x = o.x, w = o.w, g = o.g;
      if (layout == 1) x = x.to(kChannelsLast), w = w.to(kChannelsLast), g = g.to(kChannelsLast);
      if (layout == 2) x = pad(x, {1, 2, 0, 1}).slice(2, 0, k.height).slice(3, 1, k.width + 1), g = g.to(kChannelsLast);
      const auto of = [&](bool allowed, int threads) {
        const Allow allow(allowed);
        const int before = get_num_threads();
        set_num_threads(threads);
        auto all = passes(k, x, w, o.b, g);
        set_num_threads(before);
        return all;
      };
      const auto fast = of(true, 1), several = of(true, 3), direct = of(false, 1);
      for (size_t i = 0; i < exact.size(); ++i) {
        CAPTURE(i);
        const double size = std::sqrt(mean(square(exact[i])).item());
        // Half a unit in the last of 8 bits, and what float32 adds.
        CHECK(largest(relu(abs(fast[i].to(kFloat64) - exact[i]) - abs(exact[i]) * 0x1p-8)) <= 3e-5 * size);
        CHECK(same_bits(fast[i], several[i]));
        if (i < 3 && !has_amx()) CHECK_FALSE(same_bits(fast[i], direct[i]));  // it was another algorithm
      }
    }
    // One that is not finite stays where it belongs.
    for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e38f}) {
      Operands bad = o;
      bad.x = o.x.clone(), bad.x[1][3][2][2].fill_(value);
      const auto [fast, direct] = both(k, bad.x, bad.w, bad.b, bad.g);
      for (size_t i = 0; i < fast.size(); ++i) CHECK(same_bits(isfinite(fast[i]), isfinite(direct[i])));
    }
  }
}

TEST_CASE("winograd: few tiles in bfloat16 are left to a processor that multiplies it") {
  if (backends::cpu::get_cpu_capability() != "avx512_bf16" || has_amx())
    SKIP_TEST("no products of bfloat16 by vectors here");
  const auto differs = [](int64_t images, int64_t channels, int64_t side) {
    const Tensor x = randn({images, channels, side, side}).to(kBFloat16),
                 w = randn({channels, channels, 3, 3}).to(kBFloat16);
    const auto of = [&](bool allowed) {
      const Allow allow(allowed);
      return conv2d(x, w, {}, {.padding = {1, 1}});
    };
    return !same_bits(of(true), of(false));
  };
  CHECK(differs(16, 256, 8));
  CHECK_FALSE(differs(8, 256, 8));  // 32 tiles; 64 are needed
}

TEST_CASE("winograd: the same bits for any number of threads", "[isa]") {
  const Allow on(true);
  const int before = get_num_threads();
  for (const Case& k : kCases) {
    const Operands o(k);
    set_num_threads(1);
    const auto one = passes(k, o.x, o.w, o.b, o.g);
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      const auto several = passes(k, o.x, o.w, o.b, o.g);
      for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], several[i]));
    }
  }
  set_num_threads(before);
}

TEST_CASE("winograd: settings may change in another thread meanwhile") {
  const Case k{4, 64, 32, 32, 64, {1, 1}};
  const Operands o(k);
  const int before = get_num_threads();
  const Allow restored(true);
  const Tensor expected = conv2d(o.x, o.w, o.b, {.padding = k.padding});
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (int i = 0; !stop; ++i) set_num_threads(i % 2 ? 1 : 16), backends::cpu::set_allow_winograd(i % 4 < 2);
  });
  double worst = 0;
  for (int i = 0; i < 50; ++i)
    worst = std::max(worst, largest(conv2d(o.x, o.w, o.b, {.padding = k.padding}) - expected));
  stop = true, other.join();
  set_num_threads(before);
  CHECK(worst < 1e-4);
}

TEST_CASE("winograd: what is not finite stays where it belongs", "[isa]") {
  const Case& k = kCases[0];
  const float huge = 3e38f, inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {inf, -inf, nan, huge})
    for (const bool in_x : {true, false}) {
      Operands o(k);
      (in_x ? o.x : o.g)[1][3][2][2].fill_(value);
      const auto [fast, direct] = both(k, o.x, o.w, o.b, o.g);
      for (size_t i = 0; i < fast.size(); ++i) CHECK(same_bits(isfinite(fast[i]), isfinite(direct[i])));
      if (in_x) CHECK(same_bits(isnan(fast[0]), isnan(direct[0])));
    }
}

TEST_CASE("winograd: a network learns the same", "[isa]") {
  struct Learned {
    double loss;
    Tensor weight;
  };
  const auto learn = [](bool allowed) -> Learned {
    const Allow allow(allowed);
    manual_seed(3);
    nn::Sequential net(nn::Conv2d(32, 32, 3, {.padding = 1}), nn::BatchNorm2d(32), nn::ReLU(),
                       nn::Conv2d(32, 32, 3, {.padding = 1}), nn::ReLU(), nn::Flatten(), nn::Linear(32 * 64, 4));
    optim::SGD opt(net.parameters(), {.lr = 0.002, .momentum = 0.9});
    const Tensor x = randn({16, 32, 8, 8}), labels = randint(0, 4, {16});
    Tensor loss;
    for (int i = 0; i < 10; ++i) {
      opt.zero_grad();
      loss = cross_entropy(net(x), labels);
      loss.backward();
      opt.step();
    }
    return {loss.item(), net.parameters()[0].detach()};
  };
  const Learned fast = learn(true), direct = learn(false);
  CHECK_FALSE(same_bits(fast.weight, direct.weight));  // it was another algorithm
  CHECK(std::abs(fast.loss - direct.loss) <= 1e-3 * std::abs(direct.loss) + 1e-5);
}
