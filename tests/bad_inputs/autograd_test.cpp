// In-place writes and the tape.
#include "refused.h"

TEST_CASE("BI-165 source and target that overlap partly") {
  Tensor x = tensor({1.0, 2.0, 3.0, 4.0});
  x.slice(0, 1).add_(x.slice(0, 0, 3));  // as if the source had been copied first
  CHECK(values(x) == Values{1, 3, 5, 7});
  x.slice(0, 0, 3).copy_(x.slice(0, 1));
  CHECK(values(x) == Values{3, 5, 7, 7});
}

TEST_CASE("BI-187 buckets of gradients have counters of their own") {
  Tensor flat = zeros({4});
  Tensor p = ones({2}).requires_grad_(), q = ones({2}).requires_grad_();
  p.set_grad(flat.narrow(0, 0, 2).detach());
  q.set_grad(flat.narrow(0, 2, 2).detach());
  sum(p * p + q * 3).backward();
  CHECK(values(flat) == Values{2, 2, 3, 3});
}

TEST_CASE("BI-186 gradcheck tells what is wrong") {
  const Tensor narrow = ones({2}, {.dtype = kFloat32}).requires_grad_();
  REFUSED(gradcheck([](const std::vector<Tensor>& x) { return std::vector<Tensor>{exp(x[0])}; }, {narrow}), "gradcheck",
          "float64", "float32");
}

TEST_CASE("BI-175 a backward of the user's that throws, or gives nothing") {
  const auto fails = custom_function(
      "fails", [](const Tensor& x) { return x * 2; },
      [](const Tensor&, const Tensor&, const Tensor&) -> Tensor { throw RuntimeError("the user's own"); });
  const auto silent = custom_function(
      "silent", [](const Tensor& x) { return x * 2; },
      [](const Tensor&, const Tensor&, const Tensor&) { return Tensor(); });
  const Tensor x = leaf({1, 2});
  std::string text;
  try {
    sum(fails(x)).backward();
  } catch (const RuntimeError& e) {
    text = e.what();
  }
  CHECK(has(text, "the user's own"));
  CHECK(!x.grad().defined());
  sum(silent(x) + x).backward();
  CHECK(values(x.grad()) == Values{1, 1});
}
