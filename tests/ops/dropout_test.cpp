#include <cmath>
#include <limits>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("dropout: some are zero, the others scaled; the gradient has the same mask") {
  manual_seed(1);
  Tensor x = ones({100, 100}, {.dtype = kFloat64}).requires_grad_();
  const Tensor y = dropout(x, 0.25);
  double kept = 0;
  for (double v : y.to_vector<double>()) {
    CHECK((v == 0 || v == Approx(4.0 / 3)));
    kept += v != 0;
  }
  CHECK(kept / 1e4 == Approx(0.75).margin(0.02));
  y.backward(ones({100, 100}, {.dtype = kFloat64}));
  CHECK(close(x.grad(), y));
  manual_seed(1);
  CHECK(close(dropout(x, 0.25), y));
  CHECK(close(transpose(dropout(transpose(x.detach(), 0, 1), 0.5), 0, 1), transpose(dropout(x.detach(), 0.5), 0, 1)) ==
        false);
}

TEST_CASE("dropout: nothing to do") {
  const Tensor x = numbers({3, 4});
  CHECK(dropout(x, 0.5, false).is_same(x));
  CHECK(dropout(x, 0.0).is_same(x));
}

TEST_CASE("BI-137 dropout's probability") {
  CHECK(refuses([] { dropout(zeros(3), 1.5); }, "between 0 and 1, but got 1.5"));
  CHECK(refuses([] { dropout(zeros(3), -0.1); }, "[dropout]"));
  CHECK(refuses([] { dropout(zeros(3), std::nan("")); }, "[dropout]"));
  Tensor x = full({4}, std::numeric_limits<double>::infinity(), {.dtype = kFloat64}).requires_grad_();
  const Tensor y = dropout(x, 1.0);
  CHECK(close(y, zeros(4)));
  y.backward(ones(4, {.dtype = kFloat64}));
  CHECK(close(x.grad(), zeros(4)));
}

TEST_CASE("dropout_: the gradient is dropout's; views and leaves as for any write in place") {
  Tensor a = numbers({2, 3}).requires_grad_(), b = numbers({2, 3}).requires_grad_();
  manual_seed(1);
  const Tensor y = dropout(a * 2.0, 0.5);
  manual_seed(1);
  Tensor z = b * 2.0;
  CHECK(dropout_(z, 0.5).is_same(z));
  CHECK(close(z, y));
  sum(square(y)).backward(), sum(square(z)).backward();
  CHECK(close(a.grad(), b.grad()));
  const Tensor ones_ = ones({2, 3}, {.dtype = kFloat64});
  manual_seed(1);
  Tensor base = ones({3, 2}, {.dtype = kFloat64}), view = base.t();
  dropout_(view, 0.5);
  manual_seed(1);
  CHECK(close(base.t(), dropout(ones_, 0.5)));
  CHECK_THROWS_AS(dropout_(a, 0.5), ValueError);  // a leaf that requires a gradient
  Tensor whole = tensor({1, 2});
  CHECK_THROWS_AS(dropout_(whole, 0.5), ValueError);
  CHECK_THROWS_AS(dropout_(view, 1.5), ValueError);
  CHECK(dropout_(whole, 0.5, false).is_same(whole));
}
