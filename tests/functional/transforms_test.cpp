#include <tapir/tapir.h>

#include "../ops/helpers.h"

namespace {
const auto f = [](const Tensor& x) { return stack({x.select(0, 0) * x.select(0, 1), sin(x.select(0, 0))}, 0); };
}  // namespace

TEST_CASE("vjp and jvp are products with the Jacobian") {
  const Tensor x = tensor({2.0, 3.0}, {.dtype = kFloat64}), v = tensor({1.0, 10.0}, {.dtype = kFloat64});
  const double c = std::cos(2.0);  // J = (3 2; cos 2, 0)
  auto [y, g] = vjp(f, x, v);
  CHECK(values(y) == Values{6, std::sin(2.0)});
  CHECK(values(g) == Values{3 + 10 * c, 2});
  CHECK(!g.requires_grad());
  auto [z, t] = jvp(f, x, v);
  CHECK(values(z) == values(y));
  CHECK(values(t) == Values{3 + 20, c});
  CHECK(!x.requires_grad());
}

TEST_CASE("jacobian and hessian, of one input and of several") {
  const Tensor x = tensor({2.0, 3.0}, {.dtype = kFloat64});
  CHECK(values(jacobian(f, x)) == Values{3, 2, std::cos(2.0), 0});
  CHECK(jacobian(f, x).shape() == Shape{2, 2});
  const auto cubic = [](const Tensor& x) { return sum(pow(x, 3)) + x.select(0, 0) * x.select(0, 1); };
  CHECK(values(hessian(cubic, x)) == Values{12, 1, 1, 18});
  const auto two = [](const Tensor& a, const Tensor& b) { return sum(a * a * b); };
  const Tensor b = tensor({5.0, 7.0}, {.dtype = kFloat64});
  const auto js = jacobian([](const Tensor& a, const Tensor& b) { return a * b; }, std::vector<Tensor>{x, b});
  CHECK(values(js[0]) == Values{5, 0, 0, 7});
  CHECK(values(js[1]) == Values{2, 0, 0, 3});
  const auto hs = hessian(two, std::vector<Tensor>{x, b});
  CHECK(values(hs[0]) == Values{10, 0, 0, 14});
  CHECK(values(hs[1]) == Values{4, 0, 0, 6});
  CHECK(values(hs[2]) == values(hs[1]));
  CHECK(values(hs[3]) == Values{0, 0, 0, 0});
  CHECK(jacobian([](const Tensor& x) { return x * 2; }, zeros({0, 3})).shape() == Shape{0, 3, 0, 3});
}

TEST_CASE("transforms can be differentiated again") {
  const Tensor x = leaf({2, 3});
  const auto cube = [](const Tensor& x) { return x * x * x; };
  const Tensor ones_ = ones({2}, {.dtype = kFloat64});
  const Tensor t = jvp(cube, x, ones_, {.create_graph = true}).second;
  CHECK(values(grad({sum(t)}, {x})[0]) == Values{12, 18});
  CHECK(values(grad({sum(jacobian(cube, x, {.create_graph = true}))}, {x})[0]) == Values{12, 18});
}

TEST_CASE("review 14: hvp and vhp are products with the Hessian") {
  const auto two = [](const Tensor& a, const Tensor& b) { return sum(a * a * sin(b)) + prod(a) * sum(b); };
  const std::vector<Tensor> x = {tensor({2.0, 3.0}, {.dtype = kFloat64}), tensor({5.0, 7.0}, {.dtype = kFloat64})},
                            v = {tensor({1.0, -2.0}, {.dtype = kFloat64}), tensor({0.5, 4.0}, {.dtype = kFloat64})};
  const auto h = hessian(two, x);
  const auto [y, left] = vhp(two, x, v);
  const auto [z, right] = hvp(two, x, v);
  CHECK(y.item() == two(x[0], x[1]).item());
  CHECK((z.item() == y.item() && !y.requires_grad() && !left[0].requires_grad() && !right[0].requires_grad()));
  for (size_t i = 0; i < 2; ++i) {
    CHECK(close(values(left[i]), values(matmul(v[0], h[i]) + matmul(v[1], h[2 + i]))));
    CHECK(close(values(right[i]), values(matmul(h[2 * i], v[0]) + matmul(h[2 * i + 1], v[1]))));
  }
  const auto cubes = [](const Tensor& x) { return sum(x * x * x); };
  CHECK(values(hvp(cubes, x[0], v[0]).second) == Values{12, -36});
  CHECK(values(vhp(cubes, x[0], v[0]).second) == Values{12, -36});
  CHECK(vhp(cubes, tensor(2.0)).second.item() == 12);  // one element: v is 1
  CHECK(hvp(cubes, tensor(2.0)).second.item() == 12);
  const auto linear = [](const Tensor& x) { return sum(x * 2); };  // no second derivatives: zeros
  CHECK(values(hvp(linear, x[0], v[0]).second) == Values{0, 0});
  CHECK(values(vhp(linear, x[0], v[0]).second) == Values{0, 0});
  // create_graph: third derivatives
  const Tensor p = leaf({2, 3});
  CHECK(values(grad({sum(hvp(cubes, p, v[0], {.create_graph = true}).second)}, {p})[0]) == Values{6, -12});
  CHECK(values(grad({sum(vhp(cubes, p, v[0], {.create_graph = true}).second)}, {p})[0]) == Values{6, -12});
  CHECK(mentions(error_of([&] { hvp(cubes, x[0]); }), {"[hvp]", "like input 0"}));
  CHECK(mentions(error_of([&] { vhp(cubes, x[0], zeros({3}, {.dtype = kFloat64})); }), {"[vhp]", "(3,)"}));
  CHECK(mentions(error_of([&] { hvp([](const Tensor& x) { return x * 2; }, x[0], v[0]); }), {"[hvp]", "one element"}));
}

TEST_CASE("what cannot be transformed is an error that says so") {
  const Tensor x = tensor({2.0, 3.0}), ints = zeros({2}, {.dtype = kInt64});
  CHECK(mentions(error_of([&] { vjp(f, ints, ints); }), {"vjp", "floating"}));
  CHECK(mentions(error_of([&] { jvp(f, x, zeros({3})); }), {"jvp", "(3,)"}));
  CHECK(mentions(error_of([&] { hessian(f, x); }), {"hessian", "one element"}));
}

TEST_CASE("grad with a batch of incoming gradients") {
  const Tensor x = leaf({2, 3}), y = f(x), eye_ = eye(2, {.dtype = kFloat64});
  CHECK(values(grad({y}, {x}, {eye_}, {.is_grads_batched = true})[0]) == Values{3, 2, std::cos(2.0), 0});
  CHECK(mentions(error_of([&] { grad({f(x)}, {x}, {}, {.is_grads_batched = true}); }), {"grad", "batch"}));
}
