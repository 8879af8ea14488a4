#include <limits>

#include "../modes.h"
#include "../same_bits.h"
#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

static Tensor naive(const Tensor& a, const Tensor& b) { return sum(mul(unsqueeze(a, 2), unsqueeze(b, 0)), 1); }

TEST_CASE("mm of any layout") {
  const Tensor a = numbers({3, 5}), b = numbers({5, 4}, 0.7);
  CHECK(close(mm(a, b), naive(a, b)));
  CHECK(close(mm(transpose(contiguous(transpose(a, 0, 1)), 0, 1), b), naive(a, b)));
  CHECK(close(mm(expand(numbers({1, 5}), {3, 5}), b), naive(expand(numbers({1, 5}), {3, 5}), b)));
}

TEST_CASE("matmul: shapes of every form") {
  const auto shape = [](const Shape& a, const Shape& b) { return matmul(numbers(a), numbers(b)).shape(); };
  CHECK(shape({3}, {3}) == Shape{});
  CHECK(shape({3}, {3, 2}) == Shape{2});
  CHECK(shape({2, 3}, {3}) == Shape{2});
  CHECK(shape({5, 2, 3}, {3, 4}) == Shape{5, 2, 4});
  CHECK(shape({2, 3}, {5, 3, 4}) == Shape{5, 2, 4});
  CHECK(shape({6, 1, 2, 3}, {5, 3, 4}) == Shape{6, 5, 2, 4});
  CHECK(shape({4, 3}, {6, 5, 3, 1}) == Shape{6, 5, 4, 1});
  CHECK(shape({3}, {6, 5, 3, 1}) == Shape{6, 5, 1});
}

TEST_CASE("matmul: each batch is a product") {
  const Tensor a = numbers({2, 1, 3, 4}), b = numbers({5, 4, 2}, 0.9), y = matmul(a, b);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 5; ++j) CHECK(close(y[{i, j}], naive(a[{i, 0}], b[j])));
}

TEST_CASE("products: gradients of first and second order") {
  const auto product = [](const Tensor& a, const Tensor& b) { return matmul(a, b); };
  check_gradients(product, {leaf({3, 4}), leaf({4, 2}, 0.8)});
  check_gradients(product, {leaf({4}), leaf({4}, 0.8)});
  check_gradients(product, {leaf({2, 3, 4}), leaf({4, 2}, 0.8)});
  check_gradients(product, {leaf({3, 4}), leaf({2, 4, 2}, 0.8)});
  check_gradients(product, {leaf({2, 1, 3, 4}), leaf({3, 4, 2}, 0.8)});
  check_gradients([](const Tensor& a, const Tensor& b) { return matmul(transpose(a, 0, 1), transpose(b, 0, 1)); },
                  {leaf({4, 3}), leaf({2, 4}, 0.8)});
  check_gradients(
      [](const Tensor& c, const Tensor& a, const Tensor& b) { return addmm(c, a, b, {.beta = 0.5, .alpha = 2.0}); },
      {leaf({2}), leaf({3, 4}), leaf({4, 2}, 0.8)});
  check_gradients([](const Tensor& c, const Tensor& a, const Tensor& b) { return baddbmm(c, a, b); },
                  {leaf({3, 1}), leaf({2, 3, 4}), leaf({2, 4, 2}, 0.8)});
  const auto layer = [](const Tensor& x, const Tensor& w, const Tensor& b) { return linear(x, w, b); };
  check_gradients(layer, {leaf({3, 4}), leaf({2, 4}, 0.8), leaf({2}, 0.1)});
  check_gradients(layer, {leaf({2, 3, 4}), leaf({2, 4}, 0.8), leaf({2}, 0.1)});
}

TEST_CASE("linear: one node, gradients contiguous, none that nobody wants") {
  const Tensor x = numbers({3, 4});
  Tensor w = leaf({2, 4}), b = leaf({2});
  const Tensor y = linear(x, w, b);
  CHECK(y.grad_fn() == "linear");
  CHECK(close(y, add(naive(x, contiguous(transpose(w, 0, 1))), b)));
  y.backward(numbers({3, 2}));
  CHECK(w.grad().is_contiguous());
  CHECK(!x.grad().defined());
  CHECK(close(b.grad(), sum(numbers({3, 2}), 0)));
}

TEST_CASE("addmm in place, and beta 0 reads nothing") {
  Tensor c = full({2, 2}, std::numeric_limits<double>::quiet_NaN(), {.dtype = kFloat64});
  const Tensor a = numbers({2, 3}), b = numbers({3, 2});
  CHECK(close(addmm(c, a, b, {.beta = 0}), naive(a, b)));
  addmm_(c, a, b, {.beta = 0});
  CHECK(close(c, naive(a, b)));
  Tensor square = numbers({2, 2});
  const Tensor expected = add(square, naive(square, square));
  addmm_(square, square, square);
  CHECK(close(square, expected));
}

TEST_CASE("products of integers, and of 16-bit floats summed in float32") {
  CHECK(mm(tensor({{1, 2}, {3, 4}}), tensor({{5, 6}, {7, 8}})).to_vector<int64_t>() ==
        std::vector<int64_t>{19, 22, 43, 50});
  const Tensor row = ones({1, 4096}, {.dtype = kFloat16});
  CHECK(mm(row, transpose(row, 0, 1)).item() == 4096);
}

TEST_CASE("BI-043 shapes that do not multiply") {
  CHECK(refuses([] { matmul(zeros({2, 3}), zeros({4, 5})); }, "[matmul]", "(2, 3) and (4, 5)"));
  CHECK(refuses([] { matmul(zeros({}), zeros({3})); }, "[matmul]"));
  CHECK(refuses([] { matmul(zeros({2, 2, 3}), zeros({3, 3, 4})); }, "[matmul]"));
  CHECK(refuses([] { linear(zeros({2, 3}), zeros({4, 5})); }, "[linear]"));
  CHECK(refuses([] { linear(zeros({2, 3}), zeros({4, 3}), zeros({3})); }, "[linear]", "bias"));
  CHECK(refuses([] { addmm(zeros({3, 3}), zeros({2, 3}), zeros({3, 2})); }, "[addmm]"));
}

TEST_CASE("BI-078 dtypes of a product agree") {
  CHECK(refuses([] { matmul(zeros({2, 3}), zeros({3, 2}, {.dtype = kFloat64})); }, "float32", "float64"));
  CHECK(refuses([] { linear(zeros({2, 3}), zeros({3, 3}), zeros({3}, {.dtype = kFloat64})); }, "float32", "float64"));
}

TEST_CASE("BI-101 BI-102 products without rows, columns or terms") {
  CHECK(close(mm(zeros({2, 0}), zeros({0, 3})), zeros({2, 3})));
  CHECK(mm(zeros({0, 4}), zeros({4, 3})).shape() == Shape{0, 3});
  CHECK(bmm(zeros({0, 2, 3}), zeros({0, 3, 4})).shape() == Shape{0, 2, 4});
  CHECK(close(addmm(ones({2, 3}), zeros({2, 0}), zeros({0, 3}), {.beta = 3}), full({2, 3}, 3.0)));
  Tensor w = ones({3, 4}).requires_grad_();
  linear(zeros({0, 4}), w, {}).backward(zeros({0, 3}));
  CHECK(close(w.grad(), zeros({3, 4})));
}

TEST_CASE("products of a vector have the same bits by any number of threads") {
  for (const DType type : {kFloat32, kBFloat16})
    for (const int64_t n : {37, 515, 770}) {
      const Tensor x = randn({1, 700}).to(type), by_rows = randn({700, n}).to(type),
                   by_columns = randn({n, 700}).to(type);
      Tensor rows, columns;
      for (const int threads : {1, 2, 3, 7, 16}) {
        const ThreadCount guard(threads);
        const Tensor a = mm(x, by_rows), b = linear(x, by_columns);
        if (threads == 1) rows = a, columns = b;
        CHECK(same_bits(a, rows));
        CHECK(same_bits(b, columns));
      }
    }
}
