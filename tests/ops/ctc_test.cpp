#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

static Tensor logits() { return log_softmax(numbers({5, 2, 4}), 2); }
using List = std::vector<int64_t>;

TEST_CASE("ctc_loss: forms of the same call") {
  const Tensor x = logits(), two = tensor({{1, 2}, {3, 3}}), flat = tensor({1, 2, 3});
  const CtcLossOptions each{.reduction = Reduction::None};
  const Tensor y = ctc_loss(x, two, List{5, 4}, List{2, 1}, each);
  CHECK(close(ctc_loss(x, flat, List{5, 4}, List{2, 1}, each), y));
  CHECK(close(ctc_loss(x, to(two, kInt32), tensor({5, 4}), tensor({2, 1}), each), y));
  CHECK(close(ctc_loss(x.select(1, 0), two[0], List{5}, List{2}, each), y[0]));
  CHECK(close(ctc_loss(x, two, List{5, 4}, List{2, 1}), mean(div(y, tensor({2, 1})))));
  CHECK(close(ctc_loss(to(x, kFloat32), two, List{5, 4}, List{2, 1}, each), y, 1e-5));
}

TEST_CASE("BI-155 ctc_loss: targets and lengths that do not fit") {
  const Tensor x = logits(), t = tensor({{1, 2}, {3, 3}});
  CHECK(refuses([&] { ctc_loss(x, t, List{6, 4}, List{2, 1}); }, "input_lengths", "6"));
  CHECK(refuses([&] { ctc_loss(x, t, List{5, -1}, List{2, 1}); }, "input_lengths", "-1"));
  CHECK(refuses([&] { ctc_loss(x, t, List{5, 4}, List{-1, 1}); }, "target_lengths", "-1"));
  CHECK(refuses([&] { ctc_loss(x, t, List{5, 4}, List{3, 1}); }, "target_lengths", "3"));
  CHECK(refuses([&] { ctc_loss(x, tensor({1, 2, 3}), List{5, 4}, List{2, 2}); }, "sum of target_lengths 4"));
  CHECK(refuses([&] { ctc_loss(x, tensor({1, 2}), List{5, 4}, List{INT64_MAX, INT64_MAX}); }, "sum of target_lengths"));
  CHECK(refuses([&] { ctc_loss(x, t, List{5}, List{2, 1}); }, "batch_size"));
  CHECK(refuses([&] { ctc_loss(x, t, List{5, 4}, List{2, 1}, {.blank = 4}); }, "blank", "4"));
  CHECK(refuses([&] { ctc_loss(x, t, List{5, 4}, List{2, 1}, {.blank = -1}); }, "blank", "-1"));
  CHECK(refuses([&] { ctc_loss(x, tensor({{1, 4}, {3, 3}}), List{5, 4}, List{2, 1}); }, "targets", "4"));
  CHECK(refuses([&] { ctc_loss(x, to(t, kFloat32), List{5, 4}, List{2, 1}); }, "integer"));
  CHECK(refuses([&] { ctc_loss(zeros({5, 0, 4}), zeros({0, 2}, {.dtype = kInt64}), List{}, List{}); }, "batch_size"));
  // A target longer than its input is no error: nothing can be aligned.
  const Tensor wants = leaf({2, 1, 4});
  for (bool zero : {false, true}) {
    const Tensor y = ctc_loss(log_softmax(wants, 2), tensor({{1, 1, 2}}), List{2}, List{3}, {.zero_infinity = zero});
    CHECK(y.item() == (zero ? 0 : INFINITY));
    if (zero) CHECK(close(grad({y}, {wants})[0], zeros({2, 1, 4})));
  }
}

TEST_CASE("ctc_loss: no frames align the empty target alone") {
  const Tensor y = ctc_loss(logits(), tensor({{1}, {2}}), List{0, 0}, List{0, 1}, {.reduction = Reduction::None});
  CHECK(y[0].item() == 0);
  CHECK(std::isinf(y[1].item()));
}

TEST_CASE("ctc_loss: empty targets are all blanks") {
  const Tensor x = logits();
  const Tensor y = ctc_loss(x, tensor({{1}, {2}}), List{5, 3}, List{0, 0}, {.reduction = Reduction::None});
  CHECK(close(y[0], neg(sum(x.select(1, 0).select(1, 0)))));
  CHECK(close(y[1], neg(sum(x.select(1, 1).select(1, 0).narrow(0, 0, 3)))));
  CHECK(
      close(ctc_loss(x, zeros({2, 0}, {.dtype = kInt64}), List{5, 3}, List{0, 0}, {.reduction = Reduction::None}), y));
}
