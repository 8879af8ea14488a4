#include <tapir/tapir.h>

#include "../ops/helpers.h"

namespace {

struct Scale {
  double factor;
  Tensor forward(FunctionContext& ctx, const Tensor& x) {
    CHECK(!grad_enabled());
    ctx.save(x);
    return x * x * factor;
  }
  Grads backward(FunctionContext& ctx, const Tensor& g) { return {g * ctx.saved(0) * (2 * factor)}; }
};

/// (a b, sign(a)): two outputs, of which one has no gradient.
struct Product {
  std::pair<Tensor, Tensor> forward(FunctionContext& ctx, const Tensor& a, const Tensor& b) {
    Tensor y = a * b, s = sign(a);
    ctx.save(a, b);
    ctx.mark_non_differentiable(s);
    return {y, s};
  }
  Grads backward(FunctionContext& ctx, const Grads& g) {
    return {ctx.needs_input_grad(0) ? g[0] * ctx.saved(1) : Tensor(),
            ctx.needs_input_grad(1) ? g[0] * ctx.saved(0) : Tensor()};
  }
};

/// e^x, which saves its output.
struct Exp {
  Tensor forward(FunctionContext& ctx, const Tensor& x) {
    Tensor y = exp(x);
    ctx.save(y);
    return y;
  }
  Tensor backward(FunctionContext& ctx, const Tensor& g) { return g * ctx.saved(0); }
};

}  // namespace

TEST_CASE("a struct with forward and backward is an operation, twice differentiable") {
  const Tensor x = leaf({1, -2, 3});
  const Tensor y = apply_function("scale", Scale{0.5}, x);
  CHECK(y.to_vector<double>() == Values{0.5, 2, 4.5});
  CHECK(y.grad_fn() == "scale");
  CHECK(gradcheck([](const Tensor& x) { return apply_function("scale", Scale{0.5}, x); }, {x}));
  CHECK(gradgradcheck([](const Tensor& x) { return apply_function("scale", Scale{0.5}, x); }, {x}));
  CHECK(gradgradcheck([](const Tensor& x) { return apply_function("exp", Exp{}, x); }, {x}));
  CHECK(!apply_function("scale", Scale{0.5}, x.detach()).requires_grad());
}

TEST_CASE("several outputs, one without a gradient; only wanted gradients are asked for") {
  const Tensor a = leaf({2, -3}), b = leaf({4, 5});
  auto [y, s] = apply_function("product", Product{}, a, b);
  CHECK(y.requires_grad());
  CHECK(!s.requires_grad());
  sum(y + s).backward();
  CHECK(a.grad().to_vector<double>() == Values{4, 5});
  CHECK(b.grad().to_vector<double>() == Values{2, -3});
  CHECK(grad({sum(apply_function("product", Product{}, a, b.detach()).first)}, {a})[0].to_vector<double>() ==
        Values{4, 5});
}

TEST_CASE("an output saved by its function makes no cycle") {
  const int64_t before = Node::live_nodes();
  {
    const Tensor x = leaf({1, 2});
    Tensor y = apply_function("exp", Exp{}, x);
    CHECK(Node::live_nodes() == before + 1);
  }
  CHECK(Node::live_nodes() == before);
}

TEST_CASE("a function makes a node only where it is recorded") {
  struct Counts {
    int64_t& nodes;
    Tensor forward(FunctionContext& ctx, const Tensor& x) {
      nodes = Node::live_nodes();
      ctx.save(x);
      return x * 2;
    }
    Grads backward(FunctionContext&, const Tensor& g) { return Grads(g * 2); }
  };
  const Tensor x = leaf({1});
  const int64_t before = Node::live_nodes();
  int64_t nodes = -1;
  CHECK(apply_function("counts", Counts{nodes}, x.detach()).to_vector<double>() == Values{2});
  CHECK(nodes == before);
  {
    NoGrad guard;
    CHECK(!apply_function("counts", Counts{nodes}, x).requires_grad());
    CHECK(nodes == before);
  }
  CHECK(apply_function("counts", Counts{nodes}, x).requires_grad());
  CHECK(nodes == before + 1);
}

TEST_CASE("a pair of functions is an operation") {
  const auto cube = custom_function(
      "cube", [](const Tensor& x) { return x * x * x; },
      [](const Tensor& g, const Tensor& x, const Tensor&) { return g * x * x * 3; });
  const auto ratio = custom_function(
      "ratio", [](const Tensor& a, const Tensor& b) { return a / b; },
      [](const Tensor& g, const Tensor&, const Tensor& b, const Tensor& y) {
        return Grads{g / b, -g * y / b};
      });
  const Tensor x = leaf({1.5, -2}), y = leaf({2, 3});
  CHECK(gradgradcheck([&](const Tensor& x) { return cube(x); }, {x}));
  CHECK(gradgradcheck([&](const Tensor& a, const Tensor& b) { return ratio(a, b); }, {x, y}));
}

TEST_CASE("mistakes in custom functions are errors that name them") {
  const Tensor x = leaf({1, 2});
  struct Wrong {
    int what;
    Tensor forward(FunctionContext& ctx, const Tensor& x) {
      if (what == 0) const_cast<Tensor&>(x).mul_(2);
      ctx.save(x);
      return x * 2;
    }
    Grads backward(FunctionContext& ctx, const Tensor& g) {
      if (what == 1) return {g, g};
      if (what == 2) return {sum(g)};
      return {g * ctx.saved(7)};
    }
  };
  const auto message = [&](int what) {
    return error_of([&] { sum(apply_function("wrong", Wrong{what}, x * 1)).backward(); });
  };
  CHECK(mentions(message(0), {"wrong", "wrote to"}));
  CHECK(mentions(message(1), {"wrong", "returned 2 gradients, expected 1"}));
  CHECK(mentions(message(2), {"wrong", "invalid gradient at index 0"}));
  CHECK(mentions(message(3), {"wrong", "7"}));
  Tensor z = x * 1, y = apply_function("scale", Scale{1}, z);
  z.add_(1);
  CHECK(mentions(error_of([&] { sum(y).backward(); }), {"scale", "inplace"}));
}

TEST_CASE("an input given back is a view of it with the function's gradient") {
  struct Reverse {
    Tensor forward(FunctionContext&, const Tensor& x) { return x; }
    Tensor backward(FunctionContext&, const Tensor& g) { return -g; }
  };
  const Tensor x = leaf({1, 2});
  const Tensor y = apply_function("reverse", Reverse{}, x);
  CHECK(!y.is_same(x));
  CHECK(y.data_ptr() == x.data_ptr());
  sum(y * 3).backward();
  CHECK(x.grad().to_vector<double>() == Values{-3, -3});
}

TEST_CASE("review 15: gradcheck takes what custom_function makes, and finds a wrong gradient") {
  const auto product = custom_function(
      "product", [](const Tensor& x, const Tensor& y) { return x * y; },
      [](const Tensor& g, const Tensor& x, const Tensor& y, const Tensor&) {
        return Grads{g * y, g * x};
      });
  const auto wrong = custom_function(
      "wrong", [](const Tensor& x) { return x * x; },
      [](const Tensor& g, const Tensor& x, const Tensor&) { return g * x; });
  const Tensor x = tensor({1.5, -2.0}, {.dtype = kFloat64}).requires_grad_();
  const Tensor y = tensor({0.5, 3.0}, {.dtype = kFloat64}).requires_grad_();
  CHECK((gradcheck(product, {x, y}) && gradgradcheck(product, {x, y})));
  CHECK_THROWS_AS(gradcheck(wrong, {x}), ValueError);
}
