#include <tapir/tapir.h>

#include <stdexcept>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
/// Rosenbrock's valley; its minimum is 0 at (1, 1).
Tensor valley(const Tensor& w) { return square(1 - w[0]) + 100 * square(w[1] - square(w[0])); }
Tensor start() { return tensor({-1.2, 1.}, {.dtype = kFloat64, .requires_grad = true}); }
auto closure(optim::LBFGS& opt, const Tensor& w) {
  return [&opt, w] {
    opt.zero_grad();
    Tensor loss = valley(w);
    loss.backward();
    return loss;
  };
}
}  // namespace

TEST_CASE("LBFGS with a line search finds the end of Rosenbrock's valley") {
  Tensor w = start();
  optim::LBFGS opt({w}, {.max_iter = 100, .line_search_fn = "strong_wolfe"});
  const Tensor first = opt.step(closure(opt, w));
  CHECK(first.item() == Approx(24.2));
  CHECK(valley(w).item() < 1e-8);
  CHECK(opt.state_dict().at("state.0.n_iter").item() < 60);
}

TEST_CASE("LBFGS goes on from its state") {
  Tensor w = start(), v = start();
  const optim::LBFGSOptions o{.lr = 0.8, .max_iter = 3, .history_size = 2, .line_search_fn = "strong_wolfe"};
  optim::LBFGS one({w}, o), two({v}, {.max_iter = 1});
  for (int i = 0; i < 2; ++i) one.step(closure(one, w));
  two.load_state_dict(one.state_dict());
  // line_search_fn is a text, which no tensor holds: the second one searches only where it was made to
  optim::LBFGS three({v}, o);
  three.load_state_dict(one.state_dict());
  {
    NoGrad guard;
    v.copy_(w);
  }
  one.step(closure(one, w)), three.step(closure(three, v));
  CHECK(w.to_vector<double>() == v.to_vector<double>());
  StateDict bad = one.state_dict();
  bad.set("state.0.d", zeros({3}));
  CHECK(error_of([&] { three.load_state_dict(bad); }).find("state.0.d") != std::string::npos);
}

TEST_CASE("BI-215 LBFGS without a closure; a closure that throws") {
  Tensor w = start();
  optim::LBFGS opt({w}, {.line_search_fn = "strong_wolfe"});
  CHECK(error_of([&] { opt.step(); }).find("closure") != std::string::npos);
  int calls = 0;
  const auto failing = [&] {
    if (++calls == 4) throw std::runtime_error("no data");
    return closure(opt, w)();
  };
  CHECK_THROWS_AS(opt.step(failing), std::runtime_error);
  CHECK(w.to_vector<double>() == std::vector{-1.2, 1.});
  CHECK(!opt.state_dict().contains("state.0.func_evals"));
  opt.step(closure(opt, w));
  CHECK(valley(w).item() < 24);
}

TEST_CASE("LBFGS refuses options that make no sense, and parameters of several dtypes") {
  Tensor w = start(), v = zeros({1}, {.requires_grad = true});
  const auto refused = [&](const optim::LBFGSOptions& o) { return error_of([&] { optim::LBFGS({w}, o); }); };
  CHECK(refused({.lr = -1}).find("learning rate") != std::string::npos);
  CHECK(refused({.max_iter = -1}).find("max_iter") != std::string::npos);
  CHECK(refused({.history_size = 0}).find("history_size") != std::string::npos);
  CHECK(refused({.line_search_fn = "armijo"}).find("armijo") != std::string::npos);
  CHECK(error_of([&] { optim::LBFGS({w, v}); }).find("one dtype") != std::string::npos);
}
