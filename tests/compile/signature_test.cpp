// What people read of signatures: explain() names them, and warnings say what to change.
#include "../core/messages.h"
#include "../stderr_of.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("explain() names the signatures of a function") {
  auto f = compile([](const Tensor& x, const Tensor& y, double k) { return y.defined() ? x + sum(y) * k : x * k; });
  const Tensor leaf = ones({}).requires_grad_();
  const std::vector<std::pair<std::function<void()>, std::string>> calls = {
      {[&] {
         f(ones({4, 3}), arange(5), 2.);
       },
       "float32 (4, 3), int64 (5,), 8 bytes of numbers and texts"},
      {[&] {
         f(ones({3, 4}).t(), Tensor(), 2.);
       },
       "float32 (4, 3) strides (1, 4), undefined, 8 bytes of numbers and texts"},
      {[&] { f(leaf, Tensor(), 2.); }, "float32 () that requires a gradient, undefined, 8 bytes of numbers and texts"},
      {[&] {
         const NoGrad guard;
         f(ones({2}, {.dtype = kFloat64}), Tensor(), 2.);
       },
       "float64 (2,), undefined, 8 bytes of numbers and texts; no gradients"},
  };
  for (const auto& [call, text] : calls) {
    for (int i = 0; i < 3; ++i) call();
    INFO(f.explain());
    CHECK(contains(f.explain(), " times: " + text + "\n"));
  }
  CHECK(contains(f.explain(), "4 signatures, 12 calls\n"));
  auto none = compile([] {}, {.enabled = false});
  none();
  CHECK(contains(none.explain(), "0 signatures, 1 calls, which run as they are: enabled = false\n"));
}

TEST_CASE("too many signatures: the warning says what varies") {
  const auto warning_of = [](const auto& call) {
    auto f = compile([](const Tensor& x, double k) { return x.detach() * k; }, {.max_programs = 2});
    return stderr_of([&] {
      const NoGrad guard;
      for (int i = 0; i < 6; ++i) call(f, i);
    });
  };
  CHECK(contains(warning_of([](auto& f, int i) { f(ones({2}), double(i)); }), "pass a tensor"));
  CHECK(contains(warning_of([](auto& f, int i) { f(ones({2 + i}), 1.); }), "pad arguments to fewer shapes"));
  CHECK(contains(warning_of([](auto& f, int i) { f(ones({i + 1, 2}).sum(0), double(i)); }), "pass a tensor"));
  std::vector<Tensor> kept;
  CHECK(contains(warning_of([&](auto& f, int) {
                   kept.push_back(ones({2}).requires_grad_());
                   f(kept.back(), 1.);
                 }),
                 "another leaf"));
}

TEST_CASE("results that nobody differentiates: the warning says NoGrad, once") {
  Tensor w = ones({3}).requires_grad_();
  auto f = compile([&w](const Tensor& x) { return square(w * x); });
  const std::string text = stderr_of([&] {
    for (int i = 0; i < 200; ++i) CHECK(same_bits(f(full({3}, 2.)), full({3}, 4.)));
  });
  CHECK(contains(text, "no backward came to the results of 70 calls"));
  CHECK(text.find("NoGrad") == text.rfind("NoGrad"));
  const NoGrad guard;
  for (int i = 0; i < 4; ++i) f(ones({3}));
  CHECK(f.programs() == 1);
}
