// Host code as one call of a program.
#include <cmath>

#include "../core/messages.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

Tensor soft_sign(const Tensor& x) {
  const Tensor y = empty(x.shape());
  custom_call("softsign", {x}, {y}, [](const auto& reads, const auto& writes) {
    for (int64_t i = 0; i < reads[0].numel(); ++i) {
      const float v = reads[0].template data<float>()[i];
      writes[0].template data<float>()[i] = v / (1 + std::fabs(v));
    }
  });
  return y;
}
struct Softsign {
  Tensor forward(FunctionContext& ctx, const Tensor& x) { return ctx.save(x), soft_sign(x); }
  Grads backward(FunctionContext& ctx, const Tensor& g) { return {g / square(abs(ctx.saved(0)) + 1)}; }
};

}  // namespace

TEST_CASE("custom calls: eager, recorded and replayed") {
  check_like_eager([](const CompileOptions& options) {
    std::vector<Tensor> left;
    auto fast = compile([](const Tensor& x) { return soft_sign(soft_sign(x * 2) + 1) * 3; }, options);
    for (int i = 0; i < 12; ++i) left.push_back(fast(wave({5}, i + 1)));
    if (options.enabled) {
      CHECK(fast.programs() == 1);
      CHECK(contains(fast.explain(), "custom_call(softsign)"));
    }
    return left;
  });
}

TEST_CASE("custom calls: in custom functions, in steps and differentiable calls") {
  for (const bool whole : {false, true})
    check_like_eager([whole](const CompileOptions& options) {
      std::vector<Tensor> left;
      Tensor w = wave({5}, .3).requires_grad_();
      const auto loss_of = [&](const Tensor& x) { return sum(square(apply_function("softsign", Softsign(), w * x))); };
      auto step = compile(
          [&](const Tensor& x) {
            w.set_grad({});
            const Tensor loss = loss_of(x);
            loss.backward();
            return loss;
          },
          options);
      auto forward = compile(loss_of, options);
      for (int i = 0; i < 12; ++i) {
        const Tensor x = wave({5}, i + 1);
        if (whole) left.push_back(copy_of(step(x)));
        else w.set_grad({}), forward(x).backward();
        left.push_back(copy_of(w.grad()));
      }
      if (options.enabled) CHECK((whole ? replays_of(step) : replays_of(forward)) >= 6);
      return left;
    });
}

TEST_CASE("custom calls: what they update, effects without tensors, views, empty ones; none is left out or merged") {
  check_like_eager([](const CompileOptions& options) {
    std::vector<Tensor> left;
    int64_t calls = 0;
    const Tensor state = zeros({3});
    auto fast = compile(
        [&](const Tensor& x) {
          const auto add = [](const auto& reads, const auto& writes) {
            for (int64_t i = 0; i < 3; ++i)
              writes[0].template data<float>()[i * writes[0].stride(0)] +=
                  reads[1].template data<float>()[i * reads[1].stride(0)];
          };
          const auto count = [&](const auto&, const auto&) { ++calls; };
          const Tensor m = x.reshape({3, 2}) * 1;
          custom_call("add", {state, m.select(1, 1)}, {state}, add);
          custom_call("add", {state, m.select(1, 1)}, {state}, add);
          custom_call("count", {}, {}, count);
          custom_call("count", {}, {}, count);
          custom_call("empty", {zeros({0, 4})}, {}, count);
          return state * 2;
        },
        options);
    for (int i = 0; i < 12; ++i) left.push_back(fast(wave({6}, i + 1)));
    CHECK(calls == 36);
    left.push_back(state.clone());
    return left;
  });
}

TEST_CASE("custom calls: errors, versions, memory that may not be written, another name") {
  bool bad = false;
  Tensor y;
  auto fast = compile([&](const Tensor& x) {
    const Tensor twice = x * 2;
    custom_call("maybe", {twice}, {}, [&](const auto&, const auto&) {
      if (bad) throw std::runtime_error("bad");
    });
    return twice + 1;
  });
  for (int i = 0; i < 12; ++i) {
    bad = i == 6;
    if (bad) CHECK(contains(message_of<std::runtime_error>([&] { y = fast(ones({3})); }), "bad"));
    else CHECK(same_bits(fast(ones({3})), full({3}, 3.)));
  }
  const Tensor w = ones({3});
  const uint32_t before = w.version();
  custom_call("write", {}, {w}, [](const auto&, const auto& writes) { writes[0].fill_(2); });
  CHECK(w.version() > before);
  CHECK(message_of<ValueError>([&] { custom_call("read", {Tensor()}, {}, [](const auto&, const auto&) {}); }) ==
        "[read] expected tensors to read, got an undefined one");
  const char* name = "one";
  auto named = compile(
      [&](const Tensor& x) {
        custom_call(name, {x}, {}, [](const auto&, const auto&) {});
        return x + 1;
      },
      {.verify = 1});
  for (int i = 0; i < 12; ++i) {
    if (i == 6) name = "two";
    named(w);
  }
  CHECK(contains(named.explain(), "varied"));
}

TEST_CASE("a gradient that is a tensor from outside is set in replays too") {
  check_like_eager([](const CompileOptions& options) {
    std::vector<Tensor> left;
    Tensor w = wave({3}, .3).requires_grad_();
    const Tensor place = zeros({3});
    auto step = compile(
        [&](const Tensor& x) {
          w.set_grad({});
          sum(square(w * x)).backward();
          NoGrad guard;
          Tensor(place).copy_(w.grad());
          w.set_grad(place);
          w.sub_(w.grad() * .1);
        },
        options);
    for (int i = 0; i < 12; ++i) {
      if (i % 3 == 0) w.set_grad({});
      step(wave({3}, i + 1));
      CHECK(w.grad().is_same(place));
      left.push_back(copy_of(w)), left.push_back(copy_of(place));
    }
    if (options.enabled) CHECK(replays_of(step) >= 6);
    return left;
  });
}
