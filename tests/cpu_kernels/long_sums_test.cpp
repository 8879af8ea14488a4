// Sums of many equal terms: one chain of float32 additions of 10^6 terms of 0.1 would be wrong by 1 %.
#include <cmath>

#include <tapir/ops/quantize.h>
#include <tapir/tapir.h>

#include "catch.h"

using namespace tapir;

namespace {

/// The largest relative error of elements that should all be `expected`.
double error(const Tensor& x, double expected) {
  return max(abs(x.to(kFloat64) - expected)).item() / std::abs(expected);
}
constexpr double kTenth = double(0.1f), kSmall = 3e-6;

}  // namespace

TEST_CASE("long sums: a row times a matrix, of any width and layout", "[isa]") {
  NoGrad guard;
  for (const auto& [k, n] :
       {std::pair<int64_t, int64_t>{100000, 1}, {100000, 4}, {100000, 37}, {30000, 130}, {10000, 900}}) {
    INFO(k << " x " << n);
    const Tensor x = ones({1, k}), w = full({k, n}, 0.1f), part = narrow(full({k, n + 3}, 0.1f), 1, 1, n);
    CHECK(error(matmul(x, w), double(k) * kTenth) < kSmall);
    CHECK(error(matmul(x, part), double(k) * kTenth) < kSmall);
    CHECK(error(matmul(w.t(), x.t()), double(k) * kTenth) < kSmall);
    CHECK(error(matmul(x, w.t().contiguous().t()), double(k) * kTenth) < kSmall);
  }
  for (const int64_t n : {1, 3})  // few multiplications, too: 4096 at most
    CHECK(error(matmul(ones({1, 1, 2048 / n}), full({1, 2048 / n, n}, 0.1f)), double(2048 / n) * kTenth) < 1e-6);
  CHECK(error(dot(ones({1000000}), full({1000000}, 0.1f)), 1e6 * kTenth) < kSmall);
}

TEST_CASE("long sums: attention to many keys", "[isa]") {
  NoGrad guard;
  constexpr int64_t kKeys = 50000;
  const Tensor q = zeros({1, 1, 1, 64}), k = zeros({1, 1, kKeys, 64}), v = full({1, 1, kKeys, 64}, 0.1f);
  CHECK(error(scaled_dot_product_attention(q, k, v), kTenth) < kSmall);
}

TEST_CASE("long sums: softmax, its gradient and log_softmax", "[isa]") {
  constexpr int64_t kSize = 1000000;
  Tensor x = full({1, kSize}, std::log(0.1));
  select(x, 1, 0).fill_(0);
  const double tenth = std::exp(double(float(std::log(0.1)))), all = 1 + double(kSize - 1) * tenth;
  CHECK(error(select(softmax(x, 1), 1, 0), 1 / all) < kSmall);
  CHECK(error(select(log_softmax(x, 1), 1, 0), -std::log(all)) < kSmall);
  CHECK(error(cross_entropy(x, zeros({1}, {.dtype = kInt64})), std::log(all)) < kSmall);
  x.requires_grad_();
  log_softmax(x, 1).backward(full({1, kSize}, 0.1f));  // 0.1 - softmax(x) times the sum of all
  CHECK(error(select(x.grad(), 1, 0), kTenth - double(kSize) * kTenth / all) < kSmall);
}

TEST_CASE("long sums: softmax, its gradient and cross_entropy of lanes side by side", "[isa]") {
  constexpr int64_t kSize = 200000, kLanes = 5;
  Tensor x = full({1, kSize, kLanes}, std::log(0.1));
  select(x, 1, 0).fill_(0);
  const double tenth = std::exp(double(float(std::log(0.1)))), all = 1 + double(kSize - 1) * tenth;
  const Tensor labels = zeros({1, kLanes}, {.dtype = kInt64});
  CHECK(error(select(softmax(x, 1), 1, 0), 1 / all) < kSmall);
  CHECK(error(select(log_softmax(x, 1), 1, 0), -std::log(all)) < kSmall);
  CHECK(error(cross_entropy(x, labels), std::log(all)) < kSmall);
  // Of smoothing: the mean of the losses of all labels.
  const double mean = std::log(all) - double(kSize - 1) / double(kSize) * std::log(0.1);
  CHECK(error(cross_entropy(x, labels, {.label_smoothing = 1}), mean) < kSmall);
  CHECK(error(cross_entropy(narrow(x, 2, 0, 1), narrow(labels, 1, 0, 1), {.label_smoothing = 1}), mean) < kSmall);
  for (const int64_t lanes : {1, 5}) {  // equal terms
    const Tensor t = zeros({1, lanes}, {.dtype = kInt64}), equal = zeros({1, kSize, lanes});
    CHECK(error(cross_entropy(equal, t, {.label_smoothing = 1}), std::log(double(kSize))) < kSmall);
  }
  x.requires_grad_();
  log_softmax(x, 1).backward(full(x.shape(), 0.1f));
  CHECK(error(select(x.grad(), 1, 0), kTenth - double(kSize) * kTenth / all) < kSmall);
}

TEST_CASE("long sums: bias gradients of convolutions of any layout", "[isa]") {
  const auto gradient = [](const Tensor& x, int64_t channels, int64_t kernel) {
    Shape shape{channels, x.size(1)};
    for (int64_t d = 2; d < x.dim(); ++d) shape.push_back(kernel);
    Tensor b = zeros({channels}).requires_grad_();
    const Tensor w = zeros(shape), y = x.dim() == 3 ? conv1d(x, w, b) : conv2d(x, w, b);
    y.backward(full(y.shape(), 0.1f));
    return error(b.grad(), double(y.numel() / channels) * kTenth);
  };
  CHECK(gradient(ones({2, 3, 400, 400}), 16, 3) < kSmall);
  CHECK(gradient(ones({1, 5, 600, 600}), 7, 1) < kSmall);
  CHECK(gradient(ones({1, 32, 300, 300}).contiguous(kChannelsLast), 32, 1) < kSmall);
  CHECK(gradient(ones({1, 2, 300000}), 3, 3) < kSmall);
}

TEST_CASE("long sums: weights of a first convolution over large images, channels last", "[isa]") {
  const Tensor x = ones({2, 3, 400, 400}).contiguous(kChannelsLast);
  const Tensor w = zeros({16, 3, 3, 3}).requires_grad_(), b = zeros({16}).requires_grad_();
  const Tensor y = conv2d(x, w, b);
  y.backward(full(y.shape(), 0.1f).contiguous(kChannelsLast));
  CHECK(error(w.grad(), 2 * 398 * 398 * kTenth) < 3e-5);  // by strips of some pixels
  CHECK(error(b.grad(), 2 * 398 * 398 * kTenth) < 3e-5);
}

TEST_CASE("long sums: many rows for one place, by 1 and by 4 threads") {
  const int threads = get_num_threads();
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16})
    for (const int64_t width : {1, 3, 16, 700}) {
      if (dtype == kFloat32 && width < 16) continue;  // one chain, as in PyTorch
      INFO(dtype << ", " << width);
      const int64_t rows = dtype == kFloat32 ? 30000 : 3000;
      const Tensor index = remainder(arange(rows), 3) - 3, add = full({rows, 2 * width}, 0.1f).to(dtype);
      const double of_one = add.to(kFloat64)[{0, 0}].item() * double(rows) / 3;
      const Tensor x = zeros({4, width}, {.dtype = dtype}), half = narrow(add, 1, 0, width);
      const Tensor every_other = add[{Ellipsis, Slice(None, None, 2)}], number = add[{0, 0}];
      const double eps = dtype == kFloat32 ? 1e-6 : dtype == kBFloat16 ? 1.0 / 256 : 1.0 / 2048;
      Tensor first;
      for (const int n : {1, 4}) {
        set_num_threads(n);
        const Tensor y = index_put(x, {index}, half, true);
        CHECK(error(narrow(y, 0, 1, 3), of_one) < eps);
        CHECK(max(abs(y[0])).item() == 0);
        CHECK(equal(index_put(x.t().contiguous().t(), {index}, every_other, true), y));
        CHECK(equal(index_put(x, {index}, number, true), y));
        if (n == 1) first = y;
        CHECK(equal(first, y));
      }
      set_num_threads(threads);
      Tensor w = zeros({4, width}, {.dtype = dtype}).requires_grad_();
      embedding(index + 3, w).backward(half);
      CHECK(error(narrow(w.grad(), 0, 0, 3), of_one) < eps);
    }
}

TEST_CASE("long sums and products of 16 bits by scatter, into small and large tables") {
  for (const DType dtype : {kBFloat16, kFloat16})
    for (const int64_t places : {5, 100000}) {
      INFO(dtype << ", " << places);
      const double eps = dtype == kBFloat16 ? 1.0 / 256 : 1.0 / 2048;
      const Tensor index = full({1000, 3}, 4).to(kInt64), terms = full({1000, 6}, 0.1f).to(dtype);
      const Tensor x = zeros({places, 3}, {.dtype = dtype}), source = terms[{Ellipsis, Slice(None, None, 2)}];
      const double all = 1000 * terms[{0, 0}].to(kFloat64).item();
      for (const Tensor& y : {scatter_add(x, 0, index, source), scatter(x, 0, index, 0.1, "add"),
                              scatter_add(x.t().contiguous().t(), 0, index, source)}) {
        CHECK(error(y[4], all) < eps);
        CHECK(max(abs(y[0])).item() == 0);
      }
      const Tensor factors = full({100, 3}, 1.01).to(dtype), few = narrow(index, 0, 0, 100);
      const double power = std::pow(factors[{0, 0}].to(kFloat64).item(), 100);
      CHECK(error(scatter(x + 1, 0, few, factors, "multiply")[4], power) < eps);
    }
}

TEST_CASE("long sums: gradients by frequency, which no 16 bits count") {
  for (const DType dtype : {kBFloat16, kFloat16}) {
    Tensor w = zeros({3, 4}, {.dtype = dtype}).requires_grad_();
    const Tensor y = embedding(zeros({70000}, {.dtype = kInt64}), w, {.scale_grad_by_freq = true});
    y.backward(ones(y.shape(), {.dtype = dtype}));
    CHECK(error(w.grad()[0], 1) < (dtype == kBFloat16 ? 1.0 / 256 : 1.0 / 512));
  }
}

TEST_CASE("sums of rows in 16 bits: -0, NaN, infinity, what overflows on the way, an index that is not there") {
  for (const DType dtype : {kBFloat16, kFloat16})
    for (const int64_t width : {1, 16, 700}) {
      INFO(dtype << ", " << width);
      const double large = dtype == kBFloat16 ? 3e38 : 60000;
      const auto rows = [&](const std::vector<double>& values) {
        return expand(reshape(tensor(values), {-1, 1}), {int64_t(values.size()), width}).to(dtype);
      };
      const Tensor x = rows({-0.0, 1, 2, -large, 5}), index = tensor({3, 0, 2, 1, 0, 3, 2, 1});
      const Tensor y = index_add(x, 0, index, rows({large, -0.0, NAN, INFINITY, -0.0, large, 1, 1})).to(kFloat32);
      CHECK(all(signbit(y[0])).item<bool>());
      CHECK(equal(y[1], full({width}, INFINITY)));
      CHECK(all(isnan(y[2])).item<bool>());
      CHECK(equal(y[3], -x[3].to(kFloat32)));
      CHECK(equal(y[4], full({width}, 5.0f)));
      CHECK_THROWS(index_add(x, 0, index + 3, rows({1, 1, 1, 1, 1, 1, 1, 1})));
    }
}

TEST_CASE("a quantized convolution of zeros is its bias, whatever their zero point is", "[isa]") {
  NoGrad guard;
  manual_seed(1);
  for (const int64_t groups : {1, 2}) {
    const Tensor w = randint(-127, 128, {6, 34 / groups, 3, 3}).to(kInt8), scale = rand({6}) + 0.01;
    const Tensor x = zeros({2, 34, 9, 9}), x_scale = full({}, 0.037), zero = full({}, 113).to(kInt32),
                 bias = randn({6});
    INFO("groups " << groups);
    CHECK(max(abs(quantized_conv(x, w, scale, x_scale, zero, {}, {.groups = groups}))).item() == 0);
    const Tensor y = quantized_conv(x, w, scale, x_scale, zero, bias, {.groups = groups});
    CHECK(max(abs(y - reshape(bias, {6, 1, 1}))).item() == 0);
  }
}
