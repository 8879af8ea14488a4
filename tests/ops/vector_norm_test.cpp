#include "helpers.h"

TEST_CASE("norm: values") {
  const Tensor x = reshape(floats({3, -4, 0, 1, -1, 2}), {2, 3});
  CHECK(norm(x).item() == Approx(std::sqrt(31.0)));
  CHECK(close(values(norm(x, 2, 1)), {5, std::sqrt(6.0)}));
  CHECK(close(values(norm(x, 1, {0}, {.keepdim = true})), {4, 5, 2}));
  CHECK(close(values(norm(x, 3, 1)), {std::cbrt(91.0), std::cbrt(10.0)}));
  CHECK(close(values(norm(x, kInf, 1)), {4, 2}));
  CHECK(close(values(norm(x, -kInf, 1)), {0, 1}));
  CHECK(close(values(norm(x, 0, 1)), {2, 3}));
  CHECK(close(values(linalg::vector_norm(x, 0.5, 1)), {std::pow(std::sqrt(3) + 2, 2), std::pow(2 + std::sqrt(2), 2)}));
  CHECK(norm(to(x, kFloat16), 2, {}, {.dtype = kFloat32}).dtype() == kFloat32);
  CHECK(norm(full({70000}, 1, {.dtype = kFloat16})).dtype() == kFloat16);
  CHECK(norm(zeros({0})).item() == 0);  // BI-110
  CHECK(has(error_of([] { norm(zeros({0}), kInf); }), "[norm]"));
  CHECK(norm(zeros({0, 3}), kInf, 1).shape() == Shape{0});
  CHECK(has(error_of([] { norm(tensor({1, 2})); }), "floating point"));
}

TEST_CASE("norm: gradients") {
  const Tensor a = leaf({1, 5, -2, 0.5, -4, 3}, {2, 3});
  for (double p : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, -1.0, kInf, -kInf}) {
    INFO("p = " << p);
    CHECK(gradients_hold([p](const Tensor& a) { return norm(a, p, 1); }, {a}));
    CHECK(gradients_hold([p](const Tensor& a) { return norm(a, p); }, {a}));
  }
  for (double p : {0.5, 1.0, 1.5, 2.0, 3.0}) {  // at 0 there is none: no NaN
    Tensor zero = leaf({0, 0});
    norm(zero, p).backward();
    CHECK(values(zero.grad()) == Values{0, 0});
  }
}

TEST_CASE("norms of zeros have second derivatives without NaN") {
  for (double p : {0.5, 1.0, 2.0, 3.0}) {
    const Tensor x = zeros({2, 3}, {.dtype = kFloat64}).requires_grad_(),
                 g = ones({2}, {.dtype = kFloat64}).requires_grad_();
    const Tensor gx = grad({norm(x, p, 1)}, {x}, {g}, {.create_graph = true})[0];
    for (const Tensor& t : grad({sum(gx)}, {x, g}, {}, {.allow_unused = true}))
      if (t.defined()) CHECK(close(values(t), Values(size_t(t.numel()), 0)));
  }
}
