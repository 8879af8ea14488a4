#include <limits>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("softmax and log_softmax: values along any dimension and layout") {
  const Tensor x = numbers({3, 4, 5});
  for (int64_t dim : {0, 1, 2, -1}) {
    const Tensor e = exp(x), expected = div(e, sum(e, dim, {.keepdim = true}));
    CHECK(close(softmax(x, dim), expected));
    CHECK(close(exp(log_softmax(x, dim)), expected));
    CHECK(close(softmax(transpose(contiguous(transpose(x, 0, 2)), 0, 2), dim), expected));
  }
  CHECK(softmax(tensor({1, 2}), 0, {.dtype = kFloat64}).dtype() == kFloat64);
  CHECK(softmax(tensor(3.0), 0).item() == 1);
  const Tensor large = tensor(std::vector<double>{1000, 0, -std::numeric_limits<double>::infinity()});
  CHECK(close(softmax(large, 0), tensor(std::vector<double>{1, 0, 0})));
}

TEST_CASE("softmax and log_softmax: gradients of first and second order") {
  for (int64_t dim : {0, 1}) {
    check_gradients([dim](const Tensor& x) { return softmax(x, dim); }, {leaf({3, 4})});
    check_gradients([dim](const Tensor& x) { return log_softmax(x, dim); }, {leaf({3, 4})});
  }
}

TEST_CASE("BI-109 softmax of nothing") {
  CHECK(softmax(zeros({2, 0}), 1).shape() == Shape{2, 0});
  CHECK(log_softmax(zeros({0, 3}), 1).shape() == Shape{0, 3});
  CHECK(refuses([] { softmax(zeros({2, 3}), 2); }, "[softmax]", "2"));
  CHECK(refuses([] { softmax(tensor({1, 2}), 0); }, "int64"));
}
