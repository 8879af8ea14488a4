#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("BI-114 attention without keys, without queries") {
  const Tensor q = leaf({1, 2, 3, 4}), none = leaf({1, 2, 0, 4});
  const Tensor y = scaled_dot_product_attention(q, none, none);
  CHECK(close(y, zeros({1, 2, 3, 4})));
  y.backward(ones_like(y));
  CHECK(close(q.grad(), zeros({1, 2, 3, 4})));
  CHECK(scaled_dot_product_attention(none, q, q).shape() == Shape{1, 2, 0, 4});
  const Tensor k = leaf({1, 2, 3, 4});
  sum(scaled_dot_product_attention(none, k, k)).backward();
  CHECK(close(k.grad(), zeros({1, 2, 3, 4})));
  const Tensor headless = leaf({0, 3, 4});
  const Tensor g = grad({sum(scaled_dot_product_attention(headless, headless, headless))}, {headless}, {},
                        {.create_graph = true})[0];
  CHECK(g.shape() == headless.shape());
}

TEST_CASE("BI-141 attention: sizes that do not fit") {
  const Tensor q = zeros({1, 4, 3, 8}), k = zeros({1, 4, 5, 8});
  CHECK(refuses([&] { scaled_dot_product_attention(q, zeros({1, 4, 5, 6}), k); }, "(1, 4, 3, 8)", "(1, 4, 5, 6)"));
  CHECK(refuses([&] { scaled_dot_product_attention(q, k, zeros({1, 4, 6, 8})); }, "(1, 4, 6, 8)"));
  CHECK(refuses(
      [&] {
        scaled_dot_product_attention(q, zeros({1, 3, 5, 8}), zeros({1, 3, 5, 8}), {.enable_gqa = true});
      },
      "number of heads", "(1, 3, 5, 8)"));
  CHECK(refuses([&] { scaled_dot_product_attention(q, zeros({1, 2, 5, 8}), zeros({1, 2, 5, 8})); }, "4", "2"));
  CHECK(refuses([&] { scaled_dot_product_attention(q, to(k, kFloat64), k); }, "float64"));
  CHECK(refuses([&] { scaled_dot_product_attention(zeros({8}), k, k); }, "2 dimensional"));
  CHECK(refuses([&] { scaled_dot_product_attention(q, k, k, {.dropout_p = 1.5}); }, "1.5"));
}

TEST_CASE("BI-142 attention: masks that do not fit") {
  const Tensor q = zeros({1, 4, 3, 8}), k = zeros({1, 4, 5, 8}), mask = ones({3, 5}, {.dtype = kBool});
  CHECK(refuses(
      [&] {
        scaled_dot_product_attention(q, k, k, {.attn_mask = ones({3, 4}, {.dtype = kBool})});
      },
      "(3, 4)", "(1, 4, 3, 5)"));
  CHECK(refuses([&] { scaled_dot_product_attention(q, k, k, {.attn_mask = to(mask, kInt64)}); }, "int64"));
  CHECK(refuses([&] { scaled_dot_product_attention(q, k, k, {.attn_mask = mask, .is_causal = true}); }, "is_causal"));
}

TEST_CASE("BI-143 attention: rows that see nothing give zero and take no gradient") {
  const double inf = INFINITY;
  const Tensor hides = tensor({{true, false}, {false, false}}),
               adds = tensor({{0.0, -inf}, {-inf, -inf}}, {.dtype = kFloat64});
  for (const Tensor& mask : {hides, adds, leaf({2, 2}).mul(0).add(adds)}) {  // the last one wants a gradient: no kernel
    const Tensor q = leaf({1, 1, 2, 3}), k = leaf({1, 1, 2, 3}, 0.2), v = leaf({1, 1, 2, 3}, 0.7);
    const Tensor y = scaled_dot_product_attention(q, k, v, {.attn_mask = mask});
    CHECK(close(y[{0, 0, 0}], v[{0, 0, 0}]));
    CHECK(close(y[{0, 0, 1}], zeros(3)));
    y.backward(ones_like(y));
    CHECK(close(q.grad(), zeros({1, 1, 2, 3})));
    CHECK(close(k.grad(), zeros({1, 1, 2, 3})));
    CHECK(close(v.grad()[{0, 0}], view(tensor(std::vector<double>{1, 1, 1, 0, 0, 0}), {2, 3})));
  }
}

TEST_CASE("BI-144 attention: query i sees keys 0 to i, however many there are") {
  for (int64_t keys : {2, 3, 5}) {
    const Tensor q = numbers({1, 1, 3, 4}), k = numbers({1, 1, keys, 4}, 0.2), v = numbers({1, 1, keys, 4}, 0.9);
    const Tensor visible = le(arange(keys), view(arange(3), {3, 1}));
    CHECK(close(scaled_dot_product_attention(q, k, v, {.is_causal = true}),
                scaled_dot_product_attention(q, k, v, {.attn_mask = visible})));
  }
}

TEST_CASE("attention: blocks give what the whole gives, in every dtype and layout") {
  const int64_t sizes[][2] = {{210, 310}, {12, 12}, {97, 97}, {193, 64}, {95, 193}};  // around panels and blocks
  for (const auto& [queries, keys] : sizes) {
    const Tensor q = leaf({1, 4, queries, 5}), k = leaf({1, 2, keys, 5}, 0.2), v = leaf({1, 2, keys, 3}, 0.9);
    const Tensor whole = zeros({queries, keys}, {.dtype = kFloat64}).requires_grad_();  // wants a gradient: no blocks
    for (bool causal : {false, true}) {
      AttentionOptions plain{.is_causal = causal, .enable_gqa = true}, all{.enable_gqa = true};
      const Tensor mask = where(le(arange(keys), view(arange(queries), {queries, 1})), whole, -INFINITY);
      all.attn_mask = causal ? mask : whole;
      const Tensor y = scaled_dot_product_attention(q, k, v, plain), z = scaled_dot_product_attention(q, k, v, all);
      CHECK(close(y, z));
      const Tensor g = numbers(y.shape(), 0.1);
      const auto a = grad({y}, {q, k, v}, {g}), b = grad({z}, {q, k, v}, {g});
      for (size_t i = 0; i < 3; ++i) CHECK(close(a[i], b[i], 1e-9));
      for (DType t : {kFloat32, kFloat16, kBFloat16}) {
        const auto strided = [&](const Tensor& x) { return transpose(contiguous(transpose(to(x, t), 1, 2)), 1, 2); };
        CHECK(close(scaled_dot_product_attention(strided(q), strided(k), strided(v), plain), y,
                    t == kFloat32 ? 1e-5 : 2e-2));
      }
    }
  }
}

TEST_CASE("attention: dropout of weights, dimensions in front") {
  const Tensor q = numbers({2, 3, 4}), k = numbers({2, 5, 4}, 0.2), v = ones({2, 5, 4}, {.dtype = kFloat64});
  CHECK(close(scaled_dot_product_attention(q, k, v, {.dropout_p = 1}), zeros({2, 3, 4})));
  CHECK(close(scaled_dot_product_attention(q[0], k[0], v[0]), scaled_dot_product_attention(q, k, v)[0]));
  manual_seed(3);
  const Tensor dropped = scaled_dot_product_attention(q, k, v, {.dropout_p = 0.5});
  CHECK(!close(dropped, scaled_dot_product_attention(q, k, v)));
}

TEST_CASE("attention: a length that is none is refused on every path") {
  const Tensor q = numbers({2, 3, 4}), k = numbers({2, 5, 4}, 0.2), v = ones({2, 5, 4}, {.dtype = kFloat64});
  for (const int64_t length : {int64_t(-1), int64_t(6)})
    for (const double dropout_p : {0.0, 0.5}) {
      INFO(length << " " << dropout_p);
      CHECK_THROWS_AS(scaled_dot_product_attention(q, k, v, {.dropout_p = dropout_p, .length = tensor(length)}),
                      ValueError);
    }
}
