// Values that kernels refuse in a replay: what is said, and what is left outside by then.
#include <algorithm>
#include <functional>
#include <limits>

#include <tapir/compile/passes/passes.h>

#include "../core/messages.h"
#include "program_bits.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;
using ir::Program;

namespace {

using Step = std::function<Tensor(Tensor& state, const Tensor& x, const Tensor& v)>;

/// After replays with `good` the call with `bad` ends as eager's: with the same in `state`, and words of the same error. The next call is right.
void check_refusal(const char* words, const Step& f, const Tensor& x, const Tensor& good, const Tensor& bad) {
  INFO(words);
  NoGrad guard;
  Tensor eager = zeros({4}), state = zeros({4});
  auto fast = compile([&](const Tensor& a, const Tensor& b) {
    NoGrad inside;
    return f(state, a, b);
  });
  for (int i = 0; i < 4; ++i) (void)fast(x, good), (void)f(eager, x, good);
  REQUIRE(fast.programs() == 1);
  const std::string want = message_of<ValueError>([&] { (void)f(eager, x * 2, bad); }),
                    got = message_of<ValueError>([&] { (void)fast(x * 2, bad); });
  INFO(want << "\n" << got);
  CHECK(contains(want, words));
  CHECK(contains(got, words));
  CHECK(same_bits(state, eager));
  CHECK(same_bits(fast(x, good), f(eager, x, good)));
  CHECK(same_bits(state, eager));
}

Tensor rows() { return ones({4, 1000}); }
/// Large, and not fused with what reads it: what ends it goes up, where another one is alive meanwhile.
Tensor sums(const Tensor& x) { return cumsum(x, 1); }

/// The program of f(x, i), with a call between that may refuse a value if `refuses`.
Program program_of(bool refuses, const std::function<Tensor(const Tensor&, const std::function<void()>&)>& f,
                   const Tensor& x) {
  const Tensor i = tensor({0, 1});
  ir::Recording recording(std::array{x, i});
  Tensor picked;
  const Tensor y = f(x, [&] {
    NoGrad guard;
    picked = refuses ? index_select(rows(), 0, i) : rows() + 1;
  });
  return recording.finish(std::array{y, picked});
}
template <class E> int64_t count(const Program& p) { return std::count_if(p.calls.begin(), p.calls.end(), ir::is<E>); }
/// What the first call of that entry writes there lies outside from now on.
template <class E> void move_outside(Program& p, entry::Out E::*output) {
  for (const ir::Call& call : p.calls)
    if (ir::is<E>(call)) {
      ir::Block& b = p.blocks[size_t(call[output].block)];
      b.kind = ir::Block::Kind::Outside, b.memory = allocate_storage(b.bytes, kCPU);
      return;
    }
  FAIL("no such call");
}

}  // namespace

TEST_CASE("refusals: what a replay writes outside is what eager code has written by then") {
  const Tensor divisors = tensor({1, 2}), zero = tensor({2, 0}), numbers = tensor({3, 4});
  const auto moved_up = [&](auto refuse) {
    return [=](Tensor& s, const Tensor& x, const Tensor& v) {
      const Tensor big = sums(x), y = refuse(v), other = sums(x + 1);
      s.copy_(sum(big, {1}));
      return y + sum(other);
    };
  };
  const char* const division = "ZeroDivisionError: the integer divisor at position 1 is 0";
  for (const char* rounding : {"floor", "trunc"})
    check_refusal(division, moved_up([&](const Tensor& v) { return div(numbers, v, rounding); }), rows(), divisors,
                  zero);
  check_refusal(division, moved_up([&](const Tensor& v) { return remainder(numbers, v); }), rows(), divisors, zero);
  check_refusal(division, moved_up([&](const Tensor& v) { return fmod(numbers, v); }), rows(), divisors, zero);
  check_refusal("expected probabilities in [0, 1], got", moved_up([](const Tensor& p) { return bernoulli(p) * 0; }),
                rows(), full({4}, 0.5), full({4}, 7.));
  check_refusal("at position 1 is out of bounds",
                moved_up([&](const Tensor& i) { return index_select(numbers, 0, i); }), rows(), tensor({0, 1}),
                tensor({0, 5}));
  // The other way round: a call that may refuse ends a large tensor, and would go up past a write.
  check_refusal(
      "index 5 at position 1 is out of bounds",
      [](Tensor& s, const Tensor& x, const Tensor& i) {
        const Tensor big = sums(x);
        s.add_(1);
        const Tensor other = sums(x + 1), y = sum(index_select(big, 0, i));
        return y + sum(other);
      },
      rows(), tensor({0, 1}), tensor({0, 5}));
  // Two of them: the first one's error.
  check_refusal(
      division,
      [&](Tensor&, const Tensor& x, const Tensor& v) {
        const Tensor big = sums(x), y = remainder(numbers, v), other = sums(x + 1), z = index_select(big, 0, v);
        return sum(y) + sum(z) + sum(other);
      },
      rows(), divisors, tensor({5, 0}));
}

TEST_CASE("refusals: statistics of a norm whose relu comes behind") {
  nn::BatchNorm1d compiled(1000), eager(1000);
  const auto step = [](nn::BatchNorm1d& norm, const Tensor& i) {
    NoGrad guard;
    const Tensor h = norm(rows()), picked = index_select(rows(), 0, i);
    return relu(h) + sum(picked);
  };
  auto fast = compile([&](const Tensor& i) { return step(compiled, i); });
  for (int i = 0; i < 4; ++i) (void)fast(tensor({0, 1})), (void)step(eager, tensor({0, 1}));
  REQUIRE(fast.programs() == 1);
  CHECK_THROWS_AS(fast(tensor({0, 7})), ValueError);
  CHECK_THROWS_AS(step(eager, tensor({0, 7})), ValueError);
  CHECK(same_bits(compiled.running_mean, eager.running_mean));
  CHECK(same_bits(compiled.running_var, eager.running_var));
}

TEST_CASE("refusals: passes do not carry a write outside past a call that may refuse") {
  const Tensor w = full({1000, 8}, 0.1), image = ones({2, 3, 6, 6});
  nn::Conv2d conv(3, 4, 3);
  nn::BatchNorm2d norm(3), folded(4);
  folded.eval();
  for (bool refuses : {false, true}) {
    INFO("refuses: " << refuses);
    Program product = program_of(
        refuses,
        [&](const Tensor& x, const std::function<void()>& between) {
          NoGrad guard;
          const Tensor h = matmul(x, w);
          between();
          return relu(h);
        },
        rows());
    move_outside(product, &entry::Unary::out);
    ir::join_epilogues(product);
    CHECK(count<entry::Unary>(product) == (refuses ? 1 : 0));

    Program evaluation = program_of(
        refuses,
        [&](const Tensor& x, const std::function<void()>& between) {
          NoGrad guard;
          const Tensor h = conv(x);
          between();
          return folded(h);
        },
        image);
    move_outside(evaluation, &entry::Norm::y);
    ir::fold_norms(evaluation);
    CHECK(count<entry::Norm>(evaluation) == (refuses ? 1 : 0));

    Program training = program_of(
        refuses,
        [&](const Tensor& x, const std::function<void()>& between) {
          NoGrad guard;
          const Tensor h = norm(x);
          between();
          return relu(h);
        },
        image);
    ir::join_norms(training);
    CHECK(count<entry::Norm>(training) == (refuses ? 1 : 0));

    Program gradient = program_of(
        refuses,
        [&](const Tensor& x, const std::function<void()>& between) {
          norm.zero_grad();
          Tensor h = norm(x), y = relu(h);
          h.register_hook([&](const Tensor&) { between(); });
          sum(y * x).backward();
          return y.detach();
        },
        image);
    move_outside(gradient, &entry::NormBackward::dweight);
    ir::join_norms(gradient);
    CHECK(count<entry::NormRelu>(gradient) == 1);
    CHECK(count<entry::NormReluBackward>(gradient) == (refuses ? 0 : 1));
  }
}

TEST_CASE("refusals: integer divisions of weights are not made before what stands before them") {
  const Tensor divisors = tensor({1, 2});
  Tensor s = zeros({3});
  auto fast = compile([&](const Tensor& x) {
    NoGrad guard;
    s.add_(x);
    return x + sum(remainder(tensor({3, 4}), divisors));
  });
  for (int i = 0; i < 4; ++i) (void)fast(ones({3}));
  REQUIRE(fast.programs() == 1);
  divisors.select(0, 0).fill_(0);
  CHECK_THROWS_AS(fast(ones({3})), ValueError);
  CHECK(same_bits(s, full({3}, 5.)));
}

TEST_CASE("refusals: a replay says what eager code says") {
  const auto check_words = [](const char* words, const std::function<Tensor(const Tensor&)>& f, const Tensor& good,
                              const Tensor& bad) {
    check_refusal(
        words, [&](Tensor&, const Tensor&, const Tensor& v) { return f(v); }, rows(), good, bad);
  };
  const Tensor table = ones({3, 2}), scores = ones({2, 3});
  check_words(
      "ZeroDivisionError: the integer divisor at position 0 is 0", [](const Tensor& v) { return remainder(v, v); },
      tensor({1, 2}), tensor({0, 2}));
  check_words(
      "[bernoulli] expected probabilities in [0, 1], got", [](const Tensor& v) { return bernoulli(v) * 0; },
      full({4}, 0.5), full({4}, -1.));
  check_words(
      "index 7 at position 0 is out of bounds", [&](const Tensor& v) { return gather(table, 0, v); }, tensor({{0, 1}}),
      tensor({{7, 1}}));
  check_words(
      "target 3 at position 1 is out of bounds for 3 classes",
      [&](const Tensor& v) { return cross_entropy(scores, v); }, tensor({0, 1}), tensor({0, 3}));
  const Tensor regular = eye(2), singular = ones({2, 2}), negative = eye(2) * -1,
               infinite = full({2, 2}, std::numeric_limits<double>::infinity());
  check_words(
      "expected positive-definite matrices, but in batch element 0 the leading minor of order 1",
      [](const Tensor& v) { return linalg::cholesky(v); }, regular, negative);
  check_words(
      "expected matrices that have an inverse, but in batch element 0 pivot 2 is 0",
      [](const Tensor& v) { return linalg::inv(v); }, regular, singular);
  check_words(
      "expected finite numbers, got an infinity or NaN in batch element 0",
      [](const Tensor& v) { return linalg::eigvalsh(v); }, regular, infinite);
  check_words(
      "expected finite numbers, got an infinity or NaN in batch element 0",
      [](const Tensor& v) { return linalg::svdvals(v); }, regular, infinite);
}

TEST_CASE("singular matrices are an error where an inverse is asked for, and nowhere else") {
  const Tensor regular = eye(3), singular = zeros({3, 3});
  using Functions = std::vector<std::function<Tensor(const Tensor&)>>;
  const auto gradient = [](auto f) {
    return [f](const Tensor& x) {
      const Tensor y = f(x);
      return grad({y}, {x}, {ones_like(y)})[0];
    };
  };
  const auto value = [](auto f) {
    return [f](const Tensor& x) {
      NoGrad guard;
      return f(x);
    };
  };
  const auto det = [](const Tensor& x) { return linalg::det(x); };
  const auto log_of = [](const Tensor& x) { return linalg::slogdet(x).second; };
  const auto lu = [](const Tensor& x) { return std::get<2>(linalg::lu(x)); };
  const auto cond = [](const Tensor& x) { return linalg::cond(x, 1); };
  for (const auto& f : Functions{value(det), value(log_of), value(lu), value(cond), gradient(det), gradient(log_of)})
    for (const bool reuse : {true, false}) {
      auto fast = compile(f, {.rows = false, .reuse = reuse});
      const auto view_of = [](const Tensor& x) { return x.clone().requires_grad_().view({3, 3}); };
      for (int i = 0; i < 5; ++i) {
        for (const Tensor& x : {regular, singular}) CHECK(same_bits(fast(view_of(x)), f(view_of(x))));
      }
      INFO(fast.explain());
      CHECK(fast.programs() == 1);
    }
  // A determinant beside it takes nothing from that.
  const auto both = [](const Tensor& x) { return linalg::det(x) + linalg::inv(x).sum(); };
  auto fast = compile(both);
  for (int i = 0; i < 4; ++i) CHECK(same_bits(fast(regular), both(regular)));
  CHECK(fast.programs() == 1);
  CHECK_THROWS_AS(fast(singular), ValueError);
}

TEST_CASE("what was moved from says so") {
  auto f = compile([](const Tensor& x) { return x * 2; });
  auto g = std::move(f);
  CHECK(g(ones({2})).sum().item() == 4);
  CHECK(message_of<ValueError>([&] { (void)f(ones({2})); }) ==
        "[compile] expected a compiled function, got one that was moved from");
  CHECK_THROWS_AS(f.programs(), ValueError);
}
