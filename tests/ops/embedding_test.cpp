#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("embedding: rows, and gradients that add up") {
  Tensor w = leaf({4, 3});
  const Tensor index = tensor({{1, 3}, {1, 0}});
  const Tensor y = embedding(index, w);
  CHECK(y.shape() == Shape{2, 2, 3});
  CHECK(close(y[{0, 1}], w[3]));
  CHECK(close(embedding(to(index, kInt32), w), y));
  y.backward(ones({2, 2, 3}, {.dtype = kFloat64}));
  CHECK(w.grad().to_vector<double>() == std::vector<double>{1, 1, 1, 2, 2, 2, 0, 0, 0, 1, 1, 1});
}

TEST_CASE("embedding: options") {
  const Tensor index = tensor({1, 3, 1});
  Tensor w = leaf({4, 2});
  embedding(index, w, {.padding_idx = -1}).backward(ones({3, 2}, {.dtype = kFloat64}));
  CHECK(w.grad().to_vector<double>() == std::vector<double>{0, 0, 2, 2, 0, 0, 0, 0});
  Tensor v = leaf({4, 2});
  embedding(index, v, {.scale_grad_by_freq = true}).backward(ones({3, 2}, {.dtype = kFloat64}));
  CHECK(v.grad().to_vector<double>() == std::vector<double>{0, 0, 1, 1, 0, 0, 1, 1});
  Tensor u = tensor(std::vector<double>{3, 4, 0.3, 0.4, 3, 4});
  u = view(u, {3, 2});
  const Tensor limited = embedding(tensor({0, 1}), u, {.max_norm = 1.0});
  CHECK(close(limited, view(tensor(std::vector<double>{0.6, 0.8, 0.3, 0.4}), {2, 2}), 1e-6));
  CHECK(close(u[2], tensor(std::vector<double>{3, 4})));
  CHECK(gradgradcheck([&](const Tensor& w) { return embedding(index, w, {.padding_idx = 3}); }, {leaf({4, 2})}));
}

TEST_CASE("embedding: gradients of first and second order") {
  const Tensor index = tensor({1, 3, 1});
  check_gradients([&](const Tensor& w) { return mul(embedding(index, w), embedding(index, w)); }, {leaf({4, 2})});
}

TEST_CASE("BI-067 embedding of a row that is not there") {
  const Tensor w = zeros({4, 2});
  CHECK(refuses([&] { embedding(tensor({0, 4}), w); }, "[embedding]", "index 4", "position 1", "4 rows"));
  CHECK(refuses([&] { embedding(tensor({-1, 0}), w); }, "index -1", "position 0", "4 rows"));
  CHECK(refuses([&] { embedding(zeros(2), w); }, "integer"));
  CHECK(refuses([&] { embedding(tensor({0}), w, {.padding_idx = 4}); }, "padding_idx", "4"));
  CHECK(embedding(zeros(0, {.dtype = kInt64}), w).shape() == Shape{0, 2});
}

TEST_CASE("BI-068 one_hot") {
  CHECK(one_hot(tensor({1, 0})).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 1, 0});
  CHECK(one_hot(tensor({{1}, {0}}), 3).shape() == Shape{2, 1, 3});
  CHECK(refuses([] { one_hot(tensor({1, 3}), 3); }, "[one_hot]", "class 3", "3"));
  CHECK(refuses([] { one_hot(tensor({1, -1})); }, "class -1"));
  CHECK(refuses([] { one_hot(zeros(0, {.dtype = kInt64})); }, "[one_hot]"));
}

TEST_CASE("BI-116 embedding of nothing, bags of nothing") {
  Tensor w = leaf({4, 3});
  CHECK(embedding(zeros({0, 2}, {.dtype = kInt64}), w).shape() == Shape{0, 2, 3});
  for (const char* mode : {"sum", "mean", "max"}) {
    const Tensor y = embedding_bag(tensor({1, 2}), w, tensor({0, 2, 2}), {.mode = mode});
    CHECK(close(y[1], zeros(3)));
    CHECK(close(y[2], zeros(3)));
    CHECK(close(embedding_bag(zeros(0, {.dtype = kInt64}), w, tensor({0, 0}), {.mode = mode}), zeros({2, 3})));
    CHECK(close(embedding_bag(zeros({2, 0}, {.dtype = kInt64}), w, {}, {.mode = mode}), zeros({2, 3})));
    CHECK(close(embedding_bag(tensor({{1, 1}}), w, {}, {.mode = mode, .padding_idx = 1}), zeros({1, 3})));
  }
}

TEST_CASE("BI-138 embedding: padding_idx out of range, bags that do not fit") {
  const Tensor w = zeros({4, 3}), index = tensor({1, 2});
  CHECK(refuses([&] { embedding(index, w, {.padding_idx = 4}); }, "padding_idx must be within num_embeddings", "4"));
  CHECK(refuses([&] { embedding(index, w, {.padding_idx = -5}); }, "padding_idx", "-5"));
  CHECK(refuses([&] { embedding_bag(index, w, tensor({0}), {.padding_idx = 4}); }, "padding_idx"));
  CHECK(refuses([&] { embedding_bag(index, w); }, "offsets"));
  CHECK(refuses([&] { embedding_bag(tensor({{1, 2}}), w, tensor({0})); }, "offsets"));
  CHECK(refuses([&] { embedding_bag(index, w, tensor({1})); }, "offsets[0]", "1"));
  CHECK(refuses([&] { embedding_bag(index, w, tensor({0, 2, 1})); }, "ascend"));
  CHECK(refuses([&] { embedding_bag(index, w, tensor({0, 3})); }, "at most 2", "3"));
  CHECK(refuses([&] { embedding_bag(tensor({1, 4}), w, tensor({0})); }, "4", "position 1"));
  CHECK(refuses([&] { embedding_bag(tensor({-1, 0}), w, tensor({0})); }, "-1", "position 0"));
  CHECK(refuses([&] { embedding_bag(index, w, tensor({0}), {.mode = "min"}); }, "min"));
  CHECK(refuses([&] { embedding_bag(index, w, tensor({0}), {.per_sample_weights = ones(2)}); }, "per_sample_weights"));
  CHECK(refuses([&] { embedding_bag(index, w, tensor({0}), {.mode = "sum", .per_sample_weights = ones(3)}); }, "(3,)"));
}
