// Why two recordings of a function disagree, in words.
#include <tapir/core/modes.h>

#include "../core/messages.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// The two sides of "what: X before, Y now": the words behind the last ": " or ", at " before the one and before the other.
std::pair<std::string, std::string> sides_of(const std::string& why) {
  const size_t before = why.find(" before, "), now = why.find(" now", before == std::string::npos ? 0 : before);
  if (before == std::string::npos || now == std::string::npos) return {};
  std::string left = why.substr(0, before);
  for (const std::string end : {": ", ", at "})
    if (const size_t at = left.rfind(end); at != std::string::npos) left = left.substr(at + end.size());
  return {left, why.substr(before + 9, now - before - 9)};
}

/// f(x, odd) does not do the same in odd calls. explain() says what, with two sides that differ.
void check_told(const std::string& what, const std::function<Tensor(const Tensor&, bool)>& f) {
  int calls = 0;
  auto fast = compile([&](const Tensor& x) { return f(x, ++calls % 2); });
  for (int i = 0; i < 3; ++i) {  // each says where it was called, which takes a while
    CHECK_NOTHROW(fast(ones({2, 3})));
    if (i == 0) continue;
    const std::string text = fast.explain();
    const auto [left, right] = sides_of(text);
    INFO(text);
    CHECK(contains(text, what));
    CHECK(!left.empty());
    CHECK(left != right);
    CHECK(!contains(text, "5tapir"));
  }
  CHECK(fast.programs() == 0);
}

}  // namespace

TEST_CASE("review 6: what recordings do differently is told: numbers and options") {
  int count = 0;
  check_told("operand 3: ", [&](const Tensor& x, bool) { return x * (0.5 + ++count); });
  check_told("operand 3's type: ", [](const Tensor& x, bool odd) { return x * (odd ? Scalar(2) : Scalar(2.0)); });
  check_told("unary(LeakyRelu)", [](const Tensor& x, bool odd) { return leaky_relu(x, odd ? 0.25 : 0.5); });
  check_told(", a: 0.", [](const Tensor& x, bool odd) { return leaky_relu(x, odd ? 0.25 : 0.5); });
  check_told("dim: ", [](const Tensor& x, bool odd) { return cumsum(x, odd); });
  check_told("dims: ",
             [](const Tensor& x, bool odd) { return sum(x.narrow(1, 0, 2), odd, {.keepdim = true}).reshape({2}); });
  check_told("stride[0]: ", [](const Tensor& x, bool odd) {
    return max_pool2d(x.reshape({1, 1, 2, 3}).narrow(2, 0, 1), {1, 2}, {.stride = {odd ? 1 : 2, 2}});
  });
  check_told("low: ", [](const Tensor&, bool odd) { return randint(odd, 9, {3}); });
  check_told("the number: ", [](const Tensor&, bool odd) { return full({3}, odd ? 0. : -0.); });
  check_told("the number's type: ",
             [](const Tensor&, bool odd) { return zeros({3}).fill_(odd ? Scalar(1) : Scalar(1.5)); });
  Tensor w = ones({3}).requires_grad_();
  w.set_grad(ones({3}));
  check_told("optimizer_step(RMSprop)", [&](const Tensor& x, bool odd) {
    optim::RMSprop({w}, {.alpha = odd ? 0.5 : 0.25}).step();
    return x * 2;
  });
}

TEST_CASE("review 6: what recordings do differently is told: operations, dtypes, shapes, strides, places") {
  check_told("op: ", [](const Tensor& x, bool odd) { return odd ? exp(x) : sin(x); });
  check_told("kernel calls: ", [](const Tensor& x, bool odd) { return odd ? exp(x) : exp(exp(x)); });
  check_told("dtype: ", [](const Tensor& x, bool odd) { return x.to(odd ? kFloat64 : kFloat16); });
  check_told("shape: ", [](const Tensor& x, bool odd) { return x.narrow(1, 0, odd ? 2 : 1) * 2; });
  check_told("strides: ", [](const Tensor& x, bool odd) {
    return (odd ? x.narrow(1, 0, 2) : transpose(x.narrow(1, 0, 2), 0, 1)) * 2;
  });
  check_told("offset in its memory: ", [](const Tensor& x, bool odd) { return x.select(0, odd) * 2; });
  check_told("memory: ", [](const Tensor& x, bool odd) {
    const Tensor a = x * 2, b = x * 2;
    return (odd ? a : b) + 1;
  });
  check_told("operand 2: a ", [](const Tensor& x, bool odd) { return odd ? x - x : 1 - x; });
  check_told("result 1, offset", [](const Tensor& x, bool odd) { return (x * 2).select(0, odd); });
  std::vector<Tensor> both = {ones({2}).requires_grad_(), ones({2}).requires_grad_()}, one = {both[0]};
  for (Tensor& t : both) t.set_grad(ones({2}));
  check_told(", tensors: ",
             [&](const Tensor& x, bool odd) { return optim::clip_grad_norm_(odd ? both : one, 1.0) + sum(x); });
  check_told("deterministic: ", [](const Tensor& x, bool odd) {
    const ScopedMode<bool> mode(modes.deterministic, odd);
    return x * 2;
  });
}

TEST_CASE(
    "review 6: what recordings do differently is told: tensors from outside, gradients, constants, random numbers") {
  const Tensor two[] = {ones({3}), ones({3})};
  check_told("another tensor than before, at ", [&](const Tensor& x, bool odd) { return x * two[odd]; });
  Tensor leaves[] = {ones({3}).requires_grad_(), ones({3}).requires_grad_()};
  check_told("the gradient of another parameter, at ", [&](const Tensor& x, bool odd) {
    leaves[odd].set_grad({});
    return x * 2;
  });
  check_told("gradients that change: ", [&](const Tensor& x, bool odd) {
    for (Tensor& w : leaves)
      if (odd || &w == leaves) w.set_grad({});
    return x * 2;
  });
  check_told("at the end: ", [&](const Tensor& x, bool odd) {
    const Tensor y = x * 2, gradient = x.select(0, 0) * 3;
    leaves[0].set_grad(odd ? gradient : Tensor());
    return y;
  });
  check_told("of the host's numbers, number 1: ", [](const Tensor& x, bool odd) {
    return x * tensor({1.f, odd ? 0.25f : 0.5f, 2.f});
  });
  check_told("pieces of memory: ", [](const Tensor& x, bool odd) {
    const Tensor y = x * 2, more = odd ? empty({3}) : Tensor();
    return y;
  });
  check_told("(Uniform)", [](const Tensor& x, bool odd) {
    if (!odd) (void)default_generator().take(16);
    return x + rand({3});
  });
  check_told("random numbers drawn: ", [](const Tensor& x, bool odd) {
    if (!odd) (void)default_generator().take(16);
    return x * 2;
  });
}
