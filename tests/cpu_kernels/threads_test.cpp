// use_deterministic_algorithms(): products and convolutions of any shape have the same bits for any number of threads. tests/compile has
// the models (entry `threads` of ctest, where oneDNN sees eight processors).
#include <tapir/tapir.h>

#include <functional>
#include <random>
#include <sstream>

#include "../same_bits.h"
#include "catch.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

struct Threads {
  const int before = get_num_threads();
  ScopedMode<bool> deterministic{modes.deterministic, true};
  ~Threads() { set_num_threads(before); }
};

std::mt19937 random_bits(1);
int64_t pick(std::initializer_list<int64_t> from) { return *(from.begin() + random_bits() % from.size()); }

using Tensors = std::vector<Tensor>;
Tensor leaf(const Tensor& x) { return x.detach().requires_grad_(true); }

/// Within rounding of the largest number.
bool is_near(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().to(kFloat64), y = b.detach().to(kFloat64);
  return max(abs(x - y)).item<double>() <= (a.dtype() == kBFloat16 ? 2e-2 : 1e-4) * max(abs(y)).item<double>();
}

/// The same bits for any number of threads, and what other code gives within rounding.
void check_threads(const std::function<Tensors()>& run) {
  set_num_threads(8);
  const Tensors by_eight = run();
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const Tensors all = run();
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(threads << " threads, tensor " << i);
      CHECK(same_bits(all[i], by_eight[i]));
    }
  }
  const ScopedMode<bool> fast(modes.deterministic, false);
  const Tensors all = run();
  for (size_t i = 0; i < all.size(); ++i) {
    INFO("tensor " << i);
    CHECK(is_near(by_eight[i], all[i]));
  }
}

/// A convolution, or the transpose of one, of up to `most` multiplications; false where the numbers drawn make none.
bool check_convolution(double most) {
  const DType dtype = random_bits() % 2 ? kBFloat16 : kFloat32;
  const bool last = random_bits() % 2, transposed = random_bits() % 4 == 0;
  const int64_t axes = last ? 2 : pick({1, 2, 2, 3}), groups = pick({1, 1, 1, 2, 16});
  const int64_t c = groups * pick({1, 3, 4, 16, 32, 64, 320 / groups}),
                o = groups * pick({1, 4, 16, 20, 32, 512 / groups});
  const int64_t k = pick({1, 2, 3, 3, 5, 7}), stride = pick({1, 1, 2}), dilation = pick({1, 1, 1, 2}),
                padding = pick({0, k / 2}), n = pick({1, 2, 3, 8, 32, 65});
  const int64_t extent = axes == 3 ? pick({4, 7, 14}) : pick({4, 7, 14, 28, 56});
  double work = double(n * c) * double(o / groups);
  for (int64_t d = 0; d < axes; ++d) work *= double(extent * k) / double(transposed ? 1 : stride);
  if (work > most || extent + 2 * padding < dilation * (k - 1) + 1) return false;
  Shape xs{n, c}, ws{transposed ? c : o, (transposed ? o : c) / groups};
  for (int64_t d = 0; d < axes; ++d) xs.push_back(extent), ws.push_back(k);
  Tensor x = randn(xs).to(dtype), w = randn(ws).to(dtype), b = randn({o}).to(dtype);
  if (last) x = x.contiguous(kChannelsLast);
  const auto run = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
    if (transposed) {
      const ConvTransposeOptions options{.stride = stride, .padding = padding, .groups = groups, .dilation = dilation};
      return axes == 1   ? conv_transpose1d(x, w, b, options)
             : axes == 2 ? conv_transpose2d(x, w, b, options)
                         : conv_transpose3d(x, w, b, options);
    }
    const ConvOptions options{.stride = stride, .padding = padding, .dilation = dilation, .groups = groups};
    return axes == 1 ? conv1d(x, w, b, options) : axes == 2 ? conv2d(x, w, b, options) : conv3d(x, w, b, options);
  };
  const Tensor dy = randn_like(run(x, w, b));
  std::ostringstream text;
  text << dtype << " x " << x.shape() << " w " << w.shape() << " stride " << stride << " padding " << padding
       << " dilation " << dilation << " groups " << groups << (last ? " channels last" : "")
       << (transposed ? " transposed" : "");
  INFO(text.str());
  check_threads([&] {
    const Tensor x_leaf = leaf(x), w_leaf = leaf(w), b_leaf = leaf(b);
    const Tensor y = run(x_leaf, w_leaf, b_leaf);
    y.backward(dy);
    return Tensors{y, x_leaf.grad(), w_leaf.grad(), b_leaf.grad()};
  });
  return true;
}

bool check_product(double most) {
  const DType dtype = random_bits() % 2 ? kBFloat16 : kFloat32;
  const int64_t m = pick({1, 2, 5, 16, 31, 64, 128, 197, 512, 1024}), n = pick({1, 2, 10, 16, 65, 256, 768, 1000}),
                k = pick({1, 3, 16, 64, 100, 512, 768, 2048, 8192, 50257}), batch = pick({1, 1, 1, 2, 12, 32});
  if (double(m * n) * double(k * batch) > most) return false;
  const auto matrix = [&](int64_t rows, int64_t columns, bool one) {
    const bool turned = random_bits() % 2;
    const Tensor x = randn({one ? 1 : batch, turned ? columns : rows, turned ? rows : columns}).to(dtype);
    const Tensor y = turned ? x.transpose(1, 2) : x;
    return one ? y.select(0, 0) : y;
  };
  const Tensor a = matrix(m, k, batch == 1), b = matrix(k, n, batch == 1 || random_bits() % 2);
  const Tensor dy = randn_like(matmul(a, b));
  std::ostringstream text;
  text << dtype << " " << a.shape() << " by " << a.strides() << " times " << b.shape() << " by " << b.strides();
  INFO(text.str());
  check_threads([&] {
    const Tensor a_leaf = leaf(a), b_leaf = leaf(b);
    const Tensor y = matmul(a_leaf, b_leaf);
    y.backward(dy);
    return Tensors{y, a_leaf.grad(), b_leaf.grad()};
  });
  return true;
}

/// Fewer in presets that have slow kernels alone.
int problems() { return std::getenv("TAPIR_TEST_THREADS") ? 150 : 30; }

}  // namespace

TEST_CASE("deterministic: random convolutions, for any number of threads", "[threads]") {
  const Threads guard;
  manual_seed(3);
  for (int done = 0; done < problems();) done += check_convolution(1e8);
}

TEST_CASE("deterministic: random products, for any number of threads", "[threads]") {
  const Threads guard;
  manual_seed(4);
  for (int done = 0; done < problems();) done += check_product(2e8);
}

TEST_CASE("deterministic: without the mode the number of threads matters, so that these tests can fail", "[threads]") {
  if (!std::getenv("TAPIR_TEST_THREADS")) SKIP_TEST("only where oneDNN sees eight processors (entry threads of ctest)");
  const Threads guard;
  const ScopedMode<bool> fast(modes.deterministic, false);
  manual_seed(6);
  int differ = 0;
  for (int64_t i = 1; i <= 8; ++i) {
    const Tensor x = randn({8 * i, 3, 32, 32}), w = randn({16, 3, 3, 3}), dy = randn({8 * i, 16, 32, 32});
    const auto gradient = [&](int threads) {
      set_num_threads(threads);
      const Tensor w_leaf = leaf(w);
      conv2d(x, w_leaf, {}, {.padding = 1}).backward(dy);
      return w_leaf.grad();
    };
    differ += !same_bits(gradient(1), gradient(8));
  }
  CHECK(differ > 0);
}

TEST_CASE("deterministic: pieces of which little is left over", "[threads]") {
  const Threads guard;
  manual_seed(7);
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const int64_t size : {257, 1025})
      for (const bool turned : {false, true}) {
        const Tensor a = turned ? randn({96, size}).to(dtype).t() : randn({size, 96}).to(dtype);
        const Tensor b = turned ? randn({size, 96}).to(dtype).t() : randn({96, size}).to(dtype);
        check_threads([&] { return Tensors{matmul(a, b), matmul(b, a)}; });
      }
}

TEST_CASE("deterministic: sums of long products are cut, biases and beta are added once", "[threads]") {
  const Threads guard;
  manual_seed(5);
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const auto& [m, n, k] : {std::tuple(64, 48, 20000), std::tuple(300, 700, 900), std::tuple(1000, 65, 5000)})
      for (const bool turned : {false, true}) {
        INFO(dtype << " " << m << " " << n << " " << k << (turned ? " turned" : ""));
        const Tensor a = randn({k, m}).to(dtype).t(),
                     b = (turned ? randn({n, k}).to(dtype).t() : randn({k, n}).to(dtype));
        const Tensor bias = randn({n}).to(dtype), added = randn({m, n}).to(dtype);
        const Tensor wide = matmul(a.to(kFloat64), b.to(kFloat64));
        const double close = dtype == kFloat32 ? 1e-3 : 2;
        CHECK(max(abs(addmm(bias, a, b).to(kFloat64) - (wide + bias.to(kFloat64)))).item<double>() < close);
        const Tensor sum = addmm(added, a, b, {.beta = 0.5, .alpha = 2});
        CHECK(max(abs(sum.to(kFloat64) - (2 * wide + 0.5 * added.to(kFloat64)))).item<double>() < 2 * close);
        check_threads([&] { return Tensors{addmm(bias, a, b), addmm(added, a, b, {.beta = 0.5, .alpha = 2})}; });
      }
}
