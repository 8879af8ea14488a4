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

TEST_CASE("multilabel_soft_margin_loss: terms of large inputs do not cancel") {
  const float inf = std::numeric_limits<float>::infinity();
  const auto loss = [](float x, float t) {
    return multilabel_soft_margin_loss(tensor({x}).unsqueeze(0), tensor({t}).unsqueeze(0)).item();
  };
  for (const float x : {-10.f, -49.f, -80.f}) {
    const double expected = std::log1p(std::exp(double(x)));
    CHECK(std::abs(loss(x, 0) - expected) <= 1e-6 * expected);
    CHECK(std::abs(loss(-x, 1) - expected) <= 1e-6 * expected);
  }
  CHECK(loss(-inf, 1) == inf);
  CHECK(loss(inf, 0) == inf);
}
