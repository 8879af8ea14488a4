#pragma once
// Eager and compiled steps side by side.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tapir/tapir.h>

#include "../catch.h"
#include "../same_bits.h"

namespace tapir_tests {
using namespace tapir;

/// Equal within rounding.
inline bool same_values(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined() || same_bits(a, b)) return true;
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  NoGrad guard;
  const Tensor x = a.detach().to(kFloat64), y = b.detach().to(kFloat64);
  return isclose(x, y, {.rtol = tolerance, .atol = tolerance, .equal_nan = true}).all().item<bool>();
}
/// Everything that a step of `net` leaves: losses, parameters, gradients, buffers.
template <class Net> std::vector<Tensor> left_by(Net& net) {
  std::vector<Tensor> out;
  for (const auto& [name, p] : net.named_parameters()) {
    out.push_back(p.detach().clone());
    out.push_back(p.grad().defined() ? p.grad().clone() : Tensor());
  }
  for (const auto& [name, b] : net.named_buffers()) out.push_back(b.clone());
  return out;
}

/// How many calls of a compiled function were replays, or were checked and found the same.
template <class F> int64_t replays_of(const Compiled<F>& f) {
  int64_t all = 0;
  const std::string text = f.explain();
  for (const std::string word : {", replayed ", "  checked "})
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
      all += std::atoll(text.c_str() + at + word.size());
  return all;
}

/// run(options) gives the same tensors eager and compiled: without checks, with the usual ones, and with every call checked.
template <class Run> void check_like_eager(Run run) {
  manual_seed(3);
  const std::vector<Tensor> want = run(CompileOptions{.enabled = false});
  for (const double verify : {0., -1., 1.}) {
    manual_seed(3);
    const std::vector<Tensor> got = run(CompileOptions{.verify = verify});
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      INFO("verify " << verify << ", tensor " << i);
      CHECK(same_values(got[i], want[i]));
    }
  }
}
inline Tensor wave(const Shape& shape, double step) {
  return sin(arange(0., double(numel_of(shape)), 1., {.dtype = kFloat32}) * step).reshape(shape);
}
inline Tensor copy_of(const Tensor& x) { return x.defined() ? x.detach().clone() : x; }

/// What is compiled of a training loop: nothing, the step as a whole, or the forwards that it calls.
enum class Form : uint8_t { Eager, Step, Forwards };

/// compile() for the forwards of a loop, where they are to be compiled, and what came of them.
class Forwards {
 public:
  explicit Forwards(const CompileOptions& options) : options_(options) {}
  /// compile(f), of a module or a function.
  template <class F> auto operator()(F&& f) {
    using Fast = decltype(compile(std::forward<F>(f), options_));
    auto fast = std::make_shared<Fast>(compile(std::forward<F>(f), options_));
    if (options_.enabled) checks_.push_back([fast] { check_replayed(*fast); });
    return [fast](const auto&... x) { return (*fast)(x...); };
  }
  /// Each was replayed, in all its signatures.
  void check_replayed() const {
    CHECK(!checks_.empty());
    for (const auto& check : checks_) check();
  }

 private:
  template <class F> static void check_replayed(const Compiled<F>& fast) {
    const std::string text = fast.explain();
    INFO(text.substr(0, 3000));
    const int64_t signatures = std::atoll(text.c_str()), calls = std::atoll(text.c_str() + text.find(", ") + 2);
    CHECK(fast.programs() >= 1);
    CHECK(fast.programs() == signatures);
    CHECK(replays_of(fast) >= calls - 4 * signatures);
    for (const char* reason : {"runs as it is", "not replayed yet"}) CHECK(text.find(reason) == std::string::npos);
  }
  CompileOptions options_;
  std::vector<std::function<void()>> checks_;
};

/// After each step its loss, what it left and, where the loop can be evaluated, the loss of that.
struct Trained {
  std::vector<std::vector<Tensor>> steps;
  uint64_t offset = 0;  // of the generator, at the end
};
/// `make_step(net)`, or `make_step(net, forwards)` where it has some compiled, gives a step of a net, called with `batch(i)`.
template <class MakeNet, class MakeStep, class Batch>
Trained train_as(Form form, MakeNet make_net, MakeStep make_step, Batch batch, int steps, CompileOptions options = {}) {
  manual_seed(7);
  auto net = make_net();
  options.enabled = form == Form::Forwards;
  Forwards forwards(options);
  auto step = [&] {
    if constexpr (std::is_invocable_v<MakeStep&, decltype(net)&, Forwards&>) return make_step(net, forwards);
    else return make_step(net);
  }();
  options.enabled = form == Form::Step;
  auto whole = compile([&](const Tensor& x, const Tensor& y) { return step(x, y); }, options);
  Trained out;
  for (int i = 0; i < steps; ++i) {
    const auto [x, y] = batch(i);
    std::vector<Tensor>& left = out.steps.emplace_back(1, whole(x, y).detach().clone());
    for (const Tensor& t : left_by(net)) left.push_back(t);
    if constexpr (requires { step.validate(x, y); }) left.push_back(step.validate(x, y).clone());
  }
  out.offset = default_generator().offset();
  INFO(whole.explain().substr(0, 2000));
  if (form == Form::Step) CHECK(whole.programs() >= 1);
  if (form == Form::Forwards) forwards.check_replayed();
  return out;
}
inline void check_same(const Trained& a, const Trained& b, double tolerance) {
  CHECK(a.offset == b.offset);
  REQUIRE(a.steps.size() == b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    REQUIRE(a.steps[i].size() == b.steps[i].size());
    for (size_t k = 0; k < a.steps[i].size(); ++k) {
      INFO("step " << i << ", tensor " << k << " of " << a.steps[i].size());
      CHECK((tolerance > 0 ? same_values(a.steps[i][k], b.steps[i][k], tolerance)
                           : same_bits(a.steps[i][k], b.steps[i][k])));
    }
  }
}

/// After each of ten steps eager and compiled code left the same.
template <class MakeNet, class MakeStep, class Batch>
void check_compiled(MakeNet make_net, MakeStep make_step, Batch batch, double tolerance = 1e-5, int steps = 10,
                    const CompileOptions& options = {}) {
  check_same(train_as(Form::Eager, make_net, make_step, batch, steps),
             train_as(Form::Step, make_net, make_step, batch, steps, options), tolerance);
}
/// Deterministic training leaves the same bits in each form, for any number of threads, also where it goes on with another one.
template <class Train> void check_threads(const std::vector<Form>& forms, Train train) {
  const ScopedMode<bool> deterministic(modes.deterministic, true);
  const int before = get_num_threads();
  const Trained by_eight = train(forms[0], 8, 8);
  for (const Form form : forms) {
    for (const auto& [first, then] :
         {std::pair(8, 8), std::pair(1, 1), std::pair(2, 2), std::pair(3, 3), std::pair(2, 8)}) {
      if (form == forms[0] && first == 8) continue;
      INFO("form " << int(form) << ", " << first << " threads, then " << then);
      check_same(by_eight, train(form, first, then), 0);
    }
  }
  set_num_threads(before);
}
/// The same of a loop over compiled forwards, in two runs that are alike bit by bit; and of compiled steps, unless the step keeps tensors.
/// With TAPIR_TEST_THREADS: twice as many steps of each form, by several numbers of threads (entry `threads` of ctest).
template <class MakeNet, class MakeStep, class Batch>
void check_forms(MakeNet make_net, MakeStep make_step, Batch batch, double tolerance, int steps = 10,
                 bool keeps = false, const CompileOptions& options = {}) {
  if (std::getenv("TAPIR_TEST_THREADS")) {
    const auto threads_of = [&](Form form, int first, int then) {
      const auto at = [&](int i) {
        set_num_threads(i < steps ? first : then);
        return batch(i);
      };
      return train_as(form, make_net, make_step, at, 2 * steps, options);
    };
    std::vector<Form> forms{Form::Eager, Form::Forwards};
    if (!keeps) forms.push_back(Form::Step);
    return check_threads(forms, threads_of);
  }
  const auto train = [&](Form form) { return train_as(form, make_net, make_step, batch, steps, options); };
  const Trained eager = train(Form::Eager), fast = train(Form::Forwards);
  check_same(eager, fast, tolerance);
  check_same(fast, train(Form::Forwards), 0);
  if (!keeps) check_same(eager, train(Form::Step), tolerance);
}

}  // namespace tapir_tests
