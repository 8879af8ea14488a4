#include "helpers.h"

TEST_CASE("BI-047 equations that are none, and operands that do not fit") {
  const Tensor a = ones({2, 3}), b = ones({3, 4});
  const auto text = [&](const char* equation, const std::vector<Tensor>& x) {
    return error_of([&] { einsum(equation, x); });
  };
  CHECK(mentions(text("ij,jk->im", {a, b}), {"[einsum]", "'m'", "ij,jk->im"}));
  CHECK(mentions(text("ij,jk->ii", {a, b}), {"'i' twice", "ij,jk->ii"}));
  CHECK(mentions(text("ij,jk->ik", {a}), {"2 operands", "got 1"}));
  CHECK(mentions(text("ij->ij", {a, b}), {"1 operands", "got 2"}));
  CHECK(mentions(text("ij,jk->ik", {a, a}), {"3 and 2", "ij,jk->ik", "(2, 3)"}));
  CHECK(mentions(text("ij->j->i", {a}), {"ij->j->i"}));
  CHECK(mentions(text("i1->i", {a}), {"i1"}));
  CHECK(mentions(text("ijk->i", {a}), {"3 dimensions", "(2, 3)"}));
  CHECK(mentions(text("i->i", {a}), {"1 dimensions", "(2, 3)"}));
  CHECK(mentions(text("......i->i", {a}), {"..."}));
  CHECK(mentions(text("ii->i", {a}), {"2 and 3"}));
  CHECK(mentions(text("i->i", {}), {"at least one operand"}));
  CHECK(mentions(text("ij,jk->ik", {a, to(b, kFloat64)}), {"float32", "float64"}));
}

TEST_CASE("einsum of one operand has a sum's dtype, whatever the extent") {
  for (const int64_t n : {1, 2})
    for (const DType t : {kInt8, kInt32, kBool}) {
      CHECK(einsum("i->", {ones({n}, {.dtype = t})}).dtype() == kInt64);
      CHECK(einsum("ij->j", {ones({n, 3}, {.dtype = t})}).dtype() == kInt64);
    }
}

TEST_CASE("einsum: the forms of an equation") {
  const Tensor a = reshape(arange(6, {.dtype = kFloat64}), {2, 3}),
               b = reshape(arange(12, {.dtype = kFloat64}), {3, 4});
  CHECK(values(einsum("ij,jk", {a, b})) == values(matmul(a, b)));
  CHECK(values(einsum("ba", {a})) == values(transpose(a, 0, 1)));  // alphabetical
  CHECK(values(einsum(" i j , j k -> i k ", {a, b})) == values(matmul(a, b)));
  CHECK(values(einsum("iJ->Ji", {a})) == values(transpose(a, 0, 1)));
  CHECK(einsum("ij->", {a}).item() == 15);
  CHECK(einsum(",->", {tensor(2.0), tensor(3.0)}).item() == 6);
  CHECK(einsum("...,...", {a, a}).shape() == Shape{2, 3});
  CHECK(values(einsum("i...->...", {a})) == values(sum(a, 0)));
  CHECK(values(einsum("...j->", {a})) == Values{15});
  CHECK(einsum("bij,bjk->bik", {ones({1, 2, 3}), ones({5, 3, 4})}).shape() == Shape{5, 2, 4});  // 1 broadcasts
  CHECK(einsum("i,i", {ones({0}), ones({0})}).item() == 0);
  CHECK(einsum("ij,kl->ijkl", {ones({2, 0}), ones({3, 4})}).shape() == Shape{2, 0, 3, 4});
  CHECK(einsum("ij->ji", {a}).data_ptr() == a.data_ptr());
}

TEST_CASE("einsum contracts in an order that keeps results small") {
  // From the left this would pass through 200^4 elements.
  const Tensor x = ones({200, 200}), v = ones({200});
  CHECK(einsum("ab,cd,ab,cd->", {x, x, x, x}).item() == 1.6e9);
  CHECK(einsum("i,j,k,l,i,j,k,l->", {v, v, v, v, v, v, v, v}).item() == 1.6e9);
}

TEST_CASE("einsum and tensordot: derivatives") {
  manual_seed(2);
  const auto number = [](const Shape& shape) { return randn(shape, {.dtype = kFloat64}).requires_grad_(); };
  CHECK(gradients_hold(
      [](const Tensor& a, const Tensor& b, const Tensor& c) {
        return einsum("abi,bcj,ijk->ack", {a, b, c});
      },
      {number({2, 3, 2}), number({3, 2, 3}), number({2, 3, 2})}));
  CHECK(gradients_hold([](const Tensor& a) { return einsum("iji->j", {a}); }, {number({2, 3, 2})}));
  CHECK(gradients_hold([](const Tensor& a) { return einsum("ii->i", {expand(a, {3, 3})}); }, {number({3})}));
  CHECK(gradients_hold(
      [](const Tensor& a, const Tensor& b) {
        return tensordot(a, b, {0, 1}, {2, 0});
      },
      {number({2, 3, 4}), number({3, 5, 2})}));
}

TEST_CASE("tensordot and bilinear check their dimensions") {
  const Tensor a = ones({2, 3, 4}), b = ones({4, 3});
  CHECK(mentions(error_of([&] { tensordot(a, b, {1}, {0}); }), {"[tensordot]", "3", "4"}));
  CHECK(mentions(error_of([&] { tensordot(a, b, {1, 1}, {1, 1}); }), {"once"}));
  CHECK(mentions(error_of([&] { tensordot(a, b, {1, 2}, {1}); }), {"[tensordot]"}));
  CHECK(mentions(error_of([&] { tensordot(a, b, 3); }), {"got 3"}));
  CHECK(mentions(error_of([&] { tensordot(a, to(b, kFloat64), {2}, {0}); }), {"float32", "float64"}));
  CHECK(mentions(error_of([&] { inner(a, b); }), {"[inner]", "(2, 3, 4)"}));
  CHECK(mentions(error_of([&] { bilinear(ones({5, 2}), ones({5, 3}), ones({4, 2, 2})); }), {"[bilinear]"}));
  CHECK(mentions(error_of([&] {
                   bilinear(ones({5, 2}), ones({5, 3}), ones({4, 2, 3}), ones({3}));
                 }),
                 {"[bilinear]", "bias"}));
}
