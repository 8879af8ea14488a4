#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

/// conv2d from its definition.
static Tensor naive(const Tensor& x, const Tensor& w, int64_t stride, int64_t padding, int64_t dilation,
                    int64_t groups) {
  const int64_t n = x.size(0), o = w.size(0), c = w.size(1), kh = w.size(2), kw = w.size(3), h = x.size(2),
                v = x.size(3);
  const int64_t oh = (h + 2 * padding - dilation * (kh - 1) - 1) / stride + 1,
                ow = (v + 2 * padding - dilation * (kw - 1) - 1) / stride + 1;
  Tensor y = zeros({n, o, oh, ow}, {.dtype = kFloat64});
  const auto xs = x.to_vector<double>(), ws = w.to_vector<double>();
  const auto at = [&](int64_t b, int64_t d, int64_t i, int64_t j) {
    return i < 0 || j < 0 || i >= h || j >= v ? 0 : xs[size_t(((b * x.size(1) + d) * h + i) * v + j)];
  };
  double* out = y.data<double>();
  for (int64_t b = 0; b < n; ++b)
    for (int64_t k = 0; k < o; ++k)
      for (int64_t i = 0; i < oh; ++i)
        for (int64_t j = 0; j < ow; ++j, ++out)
          for (int64_t d = 0; d < c; ++d)
            for (int64_t p = 0; p < kh; ++p)
              for (int64_t q = 0; q < kw; ++q)
                *out += at(b, k / (o / groups) * c + d, i * stride - padding + p * dilation,
                           j * stride - padding + q * dilation) *
                        ws[size_t(((k * c + d) * kh + p) * kw + q)];
  return y;
}

TEST_CASE("conv2d: values against the definition, any layout") {
  const Tensor x = numbers({2, 4, 6, 5}), w = numbers({6, 4, 3, 2}, 0.6), grouped = numbers({6, 2, 3, 2}, 0.6),
               bias = numbers({6});
  CHECK(close(conv2d(x, w), naive(x, w, 1, 0, 1, 1)));
  CHECK(close(conv2d(x, w, bias, {.stride = 2, .padding = 1}), add(naive(x, w, 2, 1, 1, 1), view(bias, {1, 6, 1, 1}))));
  CHECK(close(conv2d(x, grouped, {}, {.padding = 2, .dilation = 2, .groups = 2}), naive(x, grouped, 1, 2, 2, 2)));
  const Tensor y = conv2d(contiguous(x, kChannelsLast), w, bias, {.padding = 1});
  CHECK(y.is_contiguous(kChannelsLast));
  CHECK(close(y, add(naive(x, w, 1, 1, 1, 1), view(bias, {1, 6, 1, 1}))));
  const Tensor strided = transpose(numbers({2, 4, 5, 6}), 2, 3);
  CHECK(close(conv2d(strided, w), naive(contiguous(strided), w, 1, 0, 1, 1)));
}

TEST_CASE("conv: one sample without a batch, one and three axes") {
  const Tensor x = numbers({4, 6, 5}), w = numbers({2, 4, 3, 2});
  CHECK(close(unsqueeze(conv2d(x, w), 0), conv2d(unsqueeze(x, 0), w)));
  CHECK(close(unsqueeze(conv1d(numbers({2, 3, 7}), numbers({4, 3, 2})), 2),
              conv2d(unsqueeze(numbers({2, 3, 7}), 2), unsqueeze(numbers({4, 3, 2}), 2))));
  CHECK(conv3d(numbers({1, 2, 4, 4, 4}), numbers({3, 2, 2, 2, 2}), {}, {.stride = {1, 2, 1}}).shape() ==
        Shape{1, 3, 3, 2, 3});
}

TEST_CASE("conv2d: padding same keeps the size, an odd zero goes to the end") {
  const Tensor x = numbers({1, 1, 4, 5}), w = numbers({1, 1, 2, 3});
  const Tensor y = conv2d(x, w, {}, {.padding = "same"});
  CHECK(y.shape() == x.shape());
  CHECK(close(narrow(y, 2, 0, 3), conv2d(x, w, {}, {.padding = {0, 1}})));
  CHECK(close(conv2d(x, w, {}, {.padding = "valid"}), conv2d(x, w)));
}

TEST_CASE("conv: gradients of first and second order") {
  const auto conv = [](ConvOptions o) {
    return [o](const Tensor& x, const Tensor& w, const Tensor& b) { return conv2d(x, w, b, o); };
  };
  check_gradients(conv({.stride = 2, .padding = 1}), {leaf({2, 2, 4, 5}), leaf({3, 2, 3, 2}, 0.6), leaf({3})});
  check_gradients(conv({.padding = 1, .dilation = 2, .groups = 2}),
                  {leaf({1, 4, 4, 5}), leaf({4, 2, 3, 2}, 0.6), leaf({4})});
  check_gradients(conv({.padding = "same"}),
                  {channels_last_leaf({2, 3, 4, 3}), channels_last_leaf({2, 3, 2, 2}, 0.6), leaf({2})});
  check_gradients(
      [](const Tensor& x, const Tensor& w, const Tensor& b) {
        return conv_transpose2d(x, w, b, {.stride = 2, .padding = 1, .output_padding = 1});
      },
      {leaf({2, 2, 3, 2}), leaf({2, 3, 3, 2}, 0.6), leaf({3})});
  check_gradients([](const Tensor& x, const Tensor& w) { return conv1d(x, w, {}, {.stride = 2}); },
                  {leaf({2, 2, 6}), leaf({3, 2, 3}, 0.6)});
}

TEST_CASE("conv2d: no gradient that nobody wants, layouts kept") {
  const Tensor x = contiguous(numbers({2, 3, 5, 5}), kChannelsLast);
  Tensor w = leaf({4, 3, 3, 3}), b = leaf({4});
  Tensor y = conv2d(x, w, b);
  y.backward(numbers({2, 4, 3, 3}));
  CHECK(!x.grad().defined());
  CHECK(w.grad().is_contiguous());
  CHECK(close(b.grad(), sum(numbers({2, 4, 3, 3}), {0, 2, 3})));
}

TEST_CASE("conv_transpose2d is the adjoint of conv2d") {
  const Tensor x = numbers({2, 3, 5, 6}), w = numbers({4, 3, 3, 2}, 0.5), y = numbers({2, 4, 3, 3}, 0.2);
  const double one =
      sum(mul(conv2d(x, w, {}, {.stride = 2, .padding = 1}), narrow(numbers({2, 4, 3, 4}), 3, 0, 4))).item();
  const double two = sum(mul(x, conv_transpose2d(numbers({2, 4, 3, 4}), w, {}, {.stride = 2, .padding = 1}))).item();
  CHECK(conv_transpose2d(y, w).shape() == Shape{2, 3, 5, 4});
  CHECK(one == Approx(two));
}

TEST_CASE("BI-103 conv2d of a batch of 0") {
  Tensor w = leaf({3, 4, 3, 3}), b = leaf({3}), x = leaf({0, 4, 6, 6});
  const Tensor y = conv2d(x, w, b);
  CHECK(y.shape() == Shape{0, 3, 4, 4});
  y.backward(zeros({0, 3, 4, 4}, {.dtype = kFloat64}));
  CHECK(close(w.grad(), zeros({3, 4, 3, 3})));
  CHECK(close(b.grad(), zeros({3})));
  CHECK(x.grad().shape() == x.shape());
}

TEST_CASE("BI-104 conv2d without channels, filter or pixels") {
  CHECK(refuses([] { conv2d(zeros({1, 0, 4, 4}), zeros({2, 0, 3, 3})); }, "[conv2d]", "(2, 0, 3, 3)"));
  CHECK(refuses([] { conv2d(zeros({1, 2, 4, 4}), zeros({0, 2, 3, 3})); }, "[conv2d]"));
  CHECK(refuses([] { conv2d(zeros({1, 2, 4, 4}), zeros({2, 2, 0, 3})); }, "[conv2d]"));
  CHECK(refuses([] { conv2d(zeros({1, 2, 0, 4}), zeros({2, 2, 1, 1}), {}, {.padding = 1}); }, "[conv2d]"));
}

TEST_CASE("BI-121 BI-122 BI-126 channels, groups, ranks") {
  CHECK(refuses(
      [] {
        conv2d(zeros({1, 3, 8, 8}), zeros({4, 2, 3, 3}));
      },
      "given groups=1", "(4, 2, 3, 3)", "(1, 3, 8, 8)", "to have 2 channels, but got 3 channels"));
  for (int64_t groups : {0, -1, 3})
    CHECK(refuses([&] { conv2d(zeros({1, 4, 8, 8}), zeros({4, 2, 3, 3}), {}, {.groups = groups}); }, "groups"));
  CHECK(refuses([] { conv2d(zeros({1, 3, 8, 8}), zeros({4, 3, 3})); }, "4 dimensions"));
  CHECK(refuses([] { conv2d(zeros({3, 8}), zeros({4, 3, 3, 3})); }, "[conv2d]"));
  CHECK(refuses([] { conv2d(zeros({1, 3, 8, 8}), zeros({4, 3, 3, 3}), zeros({3})); }, "bias", "4"));
  CHECK(refuses([] { conv2d(zeros({1, 3, 8, 8}), zeros({4, 3, 3, 3}, {.dtype = kFloat64})); }, "float32", "float64"));
}

TEST_CASE("BI-123 BI-124 BI-125 BI-127 BI-128 options of a convolution") {
  const Tensor x = zeros({1, 2, 4, 4}), w = zeros({2, 2, 5, 5}), small = zeros({2, 2, 3, 3});
  CHECK(refuses([&] { conv2d(x, w); }, "padded input size", "4", "5"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.stride = 0}); }, "stride", "0"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.stride = {1, -1}}); }, "stride"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.dilation = 0}); }, "dilation"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.padding = -1}); }, "padding"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.stride = {1, 1, 1}}); }, "stride"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.padding = INT64_MAX / 2}); }, "overflow"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.dilation = INT64_MAX / 2}); }, "overflow"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.stride = 2, .padding = "same"}); }, "strided"));
  CHECK(refuses([&] { conv2d(x, small, {}, {.padding = "full"}); }, "full"));
  CHECK(refuses([&] { conv_transpose2d(x, small, {}, {.stride = 2, .output_padding = 2}); }, "output padding"));
}

TEST_CASE("BI-129 convolution: a gradient of the wrong size") {
  const Tensor x = leaf({1, 2, 5, 5}), w = leaf({3, 2, 3, 3});
  const Tensor y = conv2d(x, w);
  CHECK(refuses([&] { y.backward(ones({1, 3, 4, 4}, {.dtype = kFloat64})); }, "(1, 3, 3, 3)", "(1, 3, 4, 4)"));
  CHECK(refuses([&] { y.backward(ones({1, 3, 3, 3})); }, "float32"));
}
