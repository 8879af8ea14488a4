#include <limits>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("max_pool2d: values, indices, layouts") {
  const Tensor x = view(arange(0, 16, 1, {.dtype = kFloat64}), {1, 1, 4, 4});
  const auto [y, indices] = max_pool2d_with_indices(x, 2);
  CHECK(y.to_vector<double>() == std::vector<double>{5, 7, 13, 15});
  CHECK(indices.to_vector<int64_t>() == std::vector<int64_t>{5, 7, 13, 15});
  const Tensor z = numbers({2, 3, 5, 6}), last = contiguous(z, kChannelsLast);
  const MaxPoolOptions o{.stride = 2, .padding = 1, .ceil_mode = true};
  CHECK(close(max_pool2d(z, 3, o), max_pool2d(last, 3, o)));
  CHECK(max_pool2d(last, 3, o).is_contiguous(kChannelsLast));
  CHECK(close(max_pool2d(transpose(z, 2, 3), {3, 2}, o), max_pool2d(contiguous(transpose(z, 2, 3)), {3, 2}, o)));
  CHECK(close(unsqueeze(max_pool2d(z[0], 2), 0), max_pool2d(narrow(z, 0, 0, 1), 2)));
}

TEST_CASE("max_pool2d: a NaN wins") {
  Tensor x = zeros({1, 1, 2, 2});
  x.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(max_pool2d(x, 2).item()));
}

TEST_CASE("avg_pool2d: zeros around count, or do not") {
  const Tensor x = ones({1, 1, 2, 2}, {.dtype = kFloat64});
  CHECK(avg_pool2d(x, 2, {.padding = 1}).to_vector<double>() == std::vector<double>{0.25, 0.25, 0.25, 0.25});
  CHECK(avg_pool2d(x, 2, {.padding = 1, .count_include_pad = false}).to_vector<double>() ==
        std::vector<double>{1, 1, 1, 1});
  CHECK(avg_pool2d(x, 2, {.divisor_override = 8}).item() == 0.5);
  CHECK(avg_pool2d(tensor({{{1, 2}, {3, -9}}}), 2).item<int64_t>() == 0);
  CHECK(avg_pool2d(tensor({{{-1, -2}, {-3, -9}}}), 2).item<int64_t>() == -3);
}

TEST_CASE("adaptive_avg_pool2d: windows that share rows") {
  const Tensor x = numbers({2, 3, 5, 6});
  CHECK(close(adaptive_avg_pool2d(x, 1), mean(x, {2, 3}, {.keepdim = true})));
  CHECK(close(adaptive_avg_pool2d(x, {-1, 3}), avg_pool2d(x, {1, 2})));
}

TEST_CASE("pooling: gradients of first and second order") {
  const Tensor x = leaf({2, 2, 4, 5}), last = channels_last_leaf({2, 2, 4, 5});
  for (const Tensor& t : {x, last}) {
    check_gradients([](const Tensor& x) { return max_pool2d(x, 3, {.stride = 2, .padding = 1}); }, {t});
    check_gradients([](const Tensor& x) { return avg_pool2d(x, 3, {.stride = 2, .padding = 1, .ceil_mode = true}); },
                    {t});
    check_gradients([](const Tensor& x) { return adaptive_avg_pool2d(x, {3, 2}); }, {t});
  }
  check_gradients([](const Tensor& x) { return mul(max_pool2d(mul(x, x), 2), 3); }, {x});
}

TEST_CASE("BI-105 BI-106 BI-130 BI-132 options of pooling") {
  const Tensor x = zeros({1, 2, 4, 4});
  CHECK(refuses([&] { max_pool2d(x, 0); }, "kernel size", "0"));
  CHECK(refuses([&] { max_pool2d(x, {2, -1}); }, "kernel size"));
  CHECK(refuses([&] { max_pool2d(x, 2, {.stride = 0}); }, "stride"));
  CHECK(refuses([&] { avg_pool2d(x, 2, {.stride = 0}); }, "stride"));
  CHECK(refuses([&] { max_pool2d(x, 2, {.padding = 2}); }, "pad should be at most half", "pad=2", "kernel_size=2"));
  CHECK(refuses([&] { avg_pool2d(x, 2, {.divisor_override = 0}); }, "divisor"));
  CHECK(refuses([&] { avg_pool2d(x, 7); }, "too small"));
  CHECK(refuses([&] { adaptive_avg_pool2d(x, 0); }, "output_size"));
  CHECK(refuses([&] { adaptive_avg_pool2d(x, {2, -2}); }, "output_size"));
  CHECK(refuses([&] { max_pool2d(zeros({1, 0, 4, 4}), 2); }, "[max_pool2d]"));
  Tensor empty_batch = zeros({0, 2, 4, 4}).requires_grad_();
  const Tensor y = max_pool2d(empty_batch, 2);
  CHECK(y.shape() == Shape{0, 2, 2, 2});
  y.backward(zeros({0, 2, 2, 2}));
  CHECK(empty_batch.grad().shape() == empty_batch.shape());
}

TEST_CASE("BI-131 max_unpool2d: indices outside the plane") {
  const Tensor x = ones({1, 1, 2, 2});
  const auto at = [](int64_t i) { return view(tensor({0, 3, i, 9}), {1, 1, 2, 2}); };
  CHECK(max_unpool2d(x, at(15), 2).to_vector<double>()[15] == 1);
  CHECK(refuses([&] { max_unpool2d(x, at(16), 2); }, "16", "position 2"));
  CHECK(refuses([&] { max_unpool2d(x, at(-1), 2); }, "-1", "position 2"));
  CHECK(refuses([&] { max_unpool2d(x, to(at(1), kInt32), 2); }, "int64"));
  CHECK(refuses([&] { max_unpool2d(x, zeros({1, 1, 2, 1}, {.dtype = kInt64}), 2); }, "(1, 1, 2, 2)"));
  CHECK(refuses([&] { max_unpool2d(x, at(1), 2, {.output_size = {7, 4}}); }, "output_size", "7"));
  CHECK(refuses([&] { max_unpool2d(x, at(1), 0); }, "kernel size"));
  CHECK(refuses([&] { lp_pool2d(x, 0, 2); }, "norm_type"));
}
