#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("BI-156 losses: margins and knees") {
  const Tensor x = zeros({2, 3}), t = ones({2, 3});
  CHECK(refuses([&] { smooth_l1_loss(x, t, {.beta = -1}); }, "beta", "-1"));
  CHECK(refuses([&] { smooth_l1_loss(x, t, {.beta = std::nan("")}); }, "beta"));
  CHECK(refuses([&] { huber_loss(x, t, {.delta = 0}); }, "delta", "0"));
  CHECK(refuses([&] { huber_loss(x, t, {.delta = std::nan("")}); }, "delta"));
  CHECK(refuses([&] { hinge_embedding_loss(x, t, {.margin = std::nan("")}); }, "margin"));
  CHECK(refuses([&] { margin_ranking_loss(x, x, t, {.margin = std::nan("")}); }, "margin"));
  CHECK(refuses([&] { cosine_embedding_loss(x, x, ones(2), {.margin = std::nan("")}); }, "margin"));
  CHECK(refuses([&] { multi_margin_loss(x, tensor({0, 1}), {.margin = std::nan("")}); }, "margin"));
  CHECK(refuses([&] { triplet_margin_loss(x, x, x, {.margin = std::nan("")}); }, "margin"));
  CHECK(refuses([&] { triplet_margin_loss(x, x, x, {.margin = 0}); }, "margin"));
  CHECK(smooth_l1_loss(x, t, {.beta = 0}).item() == 1);
}

TEST_CASE("margin losses: shapes and labels") {
  const Tensor x = zeros({2, 3});
  CHECK(refuses([&] { multi_margin_loss(x, tensor({0, 3})); }, "3", "3 classes"));
  CHECK(refuses([&] { multi_margin_loss(x, tensor({0, -1})); }, "-1"));
  CHECK(refuses([&] { multi_margin_loss(x, tensor({0, 1, 2})); }, "target size"));
  CHECK(refuses([&] { multi_margin_loss(x, tensor({0, 1}), {.p = 3}); }, "p == 1", "3"));
  CHECK(refuses([&] { multi_margin_loss(x, tensor({0, 1}), {.weight = ones(2)}); }, "weight", "(2,)"));
  CHECK(refuses([&] { multilabel_margin_loss(x, tensor({{0, 3, 1}, {0, 1, -1}})); }, "3"));
  CHECK(refuses([&] { multilabel_margin_loss(x, tensor({0, 1, 2})); }, "(2, 3)"));
  CHECK(refuses([&] { cosine_embedding_loss(x, x, ones({2, 1})); }, "(2, 1)"));
  CHECK(refuses([&] { margin_ranking_loss(x, zeros(3), x); }, "one rank"));
  CHECK(refuses([&] { hinge_embedding_loss(zeros(3), x); }, "(2, 3)"));
}

TEST_CASE("multilabel_margin_loss: labels end at the first -1") {
  const Tensor x = tensor({{0.1, 0.2, 0.4, 0.8}});
  const double want =
      0.25 * ((1 - 0.1 + 0.2) + (1 - 0.1 + 0.4) + (1 - 0.8 + 0.2) + (1 - 0.8 + 0.4));  // of PyTorch's manual
  CHECK(std::abs(multilabel_margin_loss(x, tensor({{3, 0, -1, 1}})).item() - want) < 1e-6);
}
