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
  const int64_t sizes[][4] = {{210, 310, 5, 3},  {12, 12, 5, 3},   {97, 97, 70, 33},
                              {193, 64, 64, 64}, {95, 193, 17, 8}, {300, 289, 3, 40}};  // around panels and blocks
  for (const auto& [queries, keys, depth, width] : sizes) {
    const Tensor q = leaf({1, 4, queries, depth}), k = leaf({1, 2, keys, depth}, 0.2),
                 v = leaf({1, 2, keys, width}, 0.9);
    const Tensor whole = zeros({queries, keys}, {.dtype = kFloat64}).requires_grad_();  // wants a gradient: no blocks
    const Tensor some = gt(numbers({queries, keys}, 0.4), -0.5);
    for (int kind : {0, 1, 2}) {
      AttentionOptions plain{.is_causal = kind == 1, .enable_gqa = true}, all{.enable_gqa = true};
      const Tensor seen = kind == 1   ? le(arange(keys), view(arange(queries), {queries, 1}))
                          : kind == 2 ? some
                                      : ones({}, {.dtype = kBool});
      if (kind == 2) plain.attn_mask = some, plain.scale = all.scale = -0.3;
      all.attn_mask = where(seen, whole, -INFINITY);
      const Tensor y = scaled_dot_product_attention(q, k, v, plain), z = scaled_dot_product_attention(q, k, v, all);
      CHECK(close(y, z));
      const Tensor g = numbers(y.shape(), 0.1);
      const auto a = grad({y}, {q, k, v}, {g}), b = grad({z}, {q, k, v}, {g});
      for (size_t i = 0; i < 3; ++i) CHECK(close(a[i], b[i], 1e-9));
      for (DType t : {kFloat32, kFloat16, kBFloat16}) {
        INFO(queries << " " << keys << " " << depth << " " << kind << " " << name_of(t));
        const double error = t == kFloat32 ? 1e-5 : 2e-2;
        const auto strided = [&](const Tensor& x) {
          return transpose(contiguous(transpose(to(x.detach(), t), 1, 2)), 1, 2).requires_grad_();
        };
        const Tensor sq = strided(q), sk = strided(k), sv = strided(v),
                     sy = scaled_dot_product_attention(sq, sk, sv, plain);
        CHECK(close(sy, y, error));
        const auto c = grad({sy}, {sq, sk, sv}, {to(g, t)});
        for (size_t i = 0; i < 3; ++i) CHECK(close(div(c[i], amax(abs(a[i]))), div(a[i], amax(abs(a[i]))), error));
      }
    }
  }
}

TEST_CASE("attention: large scores, whose scale rounds") {
  for (DType t : {kFloat32, kFloat64})
    for (const double large : {1e2, 1e3, 1e4, 1e5})
      for (const int64_t queries : {2, 40}) {
        INFO(name_of(t) << " " << large << " " << queries);
        const auto operand = [&](const Shape& shape, double from, double factor) {
          return to(mul(numbers(shape, from), factor), t).requires_grad_();
        };
        const Tensor q = operand({1, 1, queries, 5}, 0.37, large), k = operand({1, 1, 50, 5}, 0.2, large),
                     v = operand({1, 1, 50, 4}, 0.9, 1);
        const Tensor y = scaled_dot_product_attention(q, k, v);
        const Tensor z = matmul(softmax(mul(matmul(q, transpose(k, -2, -1)), 1 / std::sqrt(5.0)), -1), v);
        CHECK(close(y, z, 1e-3));
        const Tensor g = to(numbers(y.shape(), 0.1), t);
        const auto a = grad({y}, {q, k, v}, {g}), b = grad({z}, {q, k, v}, {g});
        for (size_t i = 0; i < 3; ++i) CHECK(close(div(a[i], large), div(b[i], large), 1e-3));
      }
}

TEST_CASE("attention: dropout of weights is that of a tensor of all weights, forward and backward") {
  struct {
    int64_t heads, groups, queries, keys;
    bool causal;
  } const cases[] = {{3, 3, 1, 7, false}, {4, 2, 30, 29, true}, {2, 2, 13, 301, false}, {1, 1, 3, 5, false}};
  for (const auto& c : cases)
    for (DType t : {kFloat64, kFloat32, kBFloat16})
      for (double p : {0.3, 1.0}) {
        INFO(c.queries << " " << c.keys << " " << name_of(t) << " " << p);
        const Tensor q = leaf({2, c.heads, c.queries, 4}), k = leaf({2, c.groups, c.keys, 4}, 0.2),
                     v = leaf({2, c.groups, c.keys, 3}, 0.9);
        manual_seed(7);
        const Tensor stays = dropout(ones({2, c.heads, c.queries, c.keys}, {.dtype = kFloat64}), p);
        const auto wide = [&](const Tensor& x) { return repeat_interleave(x, c.heads / c.groups, 1); };
        Tensor scores = mul(matmul(q, transpose(wide(k), -2, -1)), 0.5);
        if (c.causal) scores = where(le(arange(c.keys), view(arange(c.queries), {c.queries, 1})), scores, -INFINITY);
        const Tensor z = matmul(mul(softmax(scores, -1), stays), wide(v)), g = numbers(z.shape(), 0.1);
        const auto b = grad({z}, {q, k, v}, {g});
        const Tensor lq = to(q.detach(), t).requires_grad_(), lk = to(k.detach(), t).requires_grad_(),
                     lv = to(v.detach(), t).requires_grad_();
        manual_seed(7);
        const AttentionOptions options{.dropout_p = p, .is_causal = c.causal, .enable_gqa = c.heads != c.groups};
        const Tensor y = scaled_dot_product_attention(lq, lk, lv, options);
        const double error = t == kFloat64 ? 1e-9 : t == kFloat32 ? 1e-5 : 3e-2;
        CHECK(close(y, z, error));
        CHECK(default_generator().offset() == uint64_t(2 * c.heads * c.queries * c.keys + 3) / 4);
        const auto a = grad({y}, {lq, lk, lv}, {to(g, t)}, {.create_graph = t == kFloat64});
        for (size_t i = 0; i < 3; ++i) CHECK(close(a[i], b[i], error));
        {
          NoGrad guard;
          manual_seed(7);
          CHECK(close(scaled_dot_product_attention(lq, lk, lv, options), y, error));
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
