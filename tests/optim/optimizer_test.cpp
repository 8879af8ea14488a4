#include <tapir/tapir.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

Tensor parameter(double value) { return tensor({value}, {.dtype = kFloat64, .requires_grad = true}); }
void set(const Tensor& p, double gradient) { p.set_grad(tensor({gradient}, {.dtype = kFloat64})); }
bool near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }
template <class Optimizer> double updated(Optimizer&& opt, const Tensor& p, int steps) {
  for (int i = 0; i < steps; ++i) set(p, 1), opt.step();
  return p.item();
}
}  // namespace

TEST_CASE("what a group does not give is the optimizer's") {
  const Tensor w = parameter(1), v = parameter(1), u = parameter(1);
  optim::SGD opt({{.params = {w}, .lr = 0.5}, {.params = {v}}, {.params = {u}, .momentum = 0, .weight_decay = 0}},
                 {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  CHECK(opt.num_groups() == 3);
  CHECK(opt.lr(0) == 0.5);
  CHECK(opt.lr(1) == 0.1);
  for (int i = 0; i < 2; ++i) {
    for (const Tensor& p : {w, v, u}) set(p, 1);
    opt.step();
  }
  // d = g + 0.1 w; buffer = d, then 0.9 buffer + d; w -= lr buffer
  CHECK(near(w.item(), 0.45 - 0.5 * (0.9 * 1.1 + 1.045)));
  CHECK(near(v.item(), 0.89 - 0.1 * (0.9 * 1.1 + 1.089)));
  CHECK(near(u.item(), 0.8));
}

TEST_CASE("the rule of groups holds for Adam and AdamW") {
  const optim::AdamWOptions whole{.lr = 0.1, .betas = {0.5, 0.8}, .eps = 0.1, .weight_decay = 0.2, .amsgrad = true};
  optim::AdamWOptions own = whole;
  own.lr = 0.3, own.weight_decay = 0;
  const Tensor a = parameter(2), b = parameter(2), c = parameter(2), d = parameter(2);
  optim::AdamW grouped({{.params = {a}}, {.params = {b}, .lr = 0.3, .weight_decay = 0}}, whole);
  for (int i = 0; i < 3; ++i) set(a, 1), set(b, 1), grouped.step();
  CHECK(a.item() == updated(optim::AdamW({c}, whole), c, 3));
  CHECK(b.item() == updated(optim::AdamW({d}, own), d, 3));
  CHECK(grouped.state_dict().contains("state.1.max_exp_avg_sq"));

  const Tensor e = parameter(2), f = parameter(2);
  optim::Adam adam({{.params = {e}, .betas = std::array{0.5, 0.6}, .maximize = true}},
                   {.lr = 0.1, .weight_decay = 0.2});
  set(e, 1), adam.step();
  CHECK(e.item() ==
        updated(optim::Adam({f}, {.lr = 0.1, .betas = {0.5, 0.6}, .weight_decay = 0.2, .maximize = true}), f, 1));
}

TEST_CASE("BI-206 a parameter in two groups is refused; so are no groups") {
  const Tensor w = parameter(1);
  CHECK(error_of([&] {
          optim::SGD({{.params = {w}}, {.params = {w}}});
        }).find("more than one parameter group") != std::string::npos);
  CHECK(error_of([] { optim::Adam(std::vector<optim::AdamGroup>{}); }).find("empty parameter list") !=
        std::string::npos);
}

TEST_CASE("a skipped first step counts for nothing: momentum begins with the first real one") {
  for (const bool skipped : {false, true}) {
    const Tensor w = parameter(1);
    optim::SGD opt({w}, {.lr = 1, .momentum = 0.9, .dampening = 0.5});
    if (skipped) {
      set(w, kInf);
      opt.step({.inv_scale = {}, .found_inf = ones({})});
      CHECK(w.item() == 1);
      CHECK(opt.state_dict().at("state.0.step").item<int64_t>() == 0);
    }
    set(w, 1), opt.step();
    CHECK(w.item() == 0);  // the first buffer is the gradient, without dampening
    set(w, 1), opt.step();
    CHECK(near(w.item(), -(0.9 + 0.5)));
  }
}

TEST_CASE("BI-220 found_inf leaves parameters, state and count; a zero flag and inv_scale step") {
  const Tensor a = parameter(1), b = parameter(1);
  optim::AdamW scaled({a}, {.lr = 0.1}), plain({b}, {.lr = 0.1});
  const Tensor quarter = full({}, 0.25), good = zeros({}), bad = ones({});
  for (int i = 0; i < 3; ++i) {
    set(a, kInf), scaled.step({quarter, bad});
    set(a, 8), scaled.step({quarter, good});
    set(b, 2), plain.step();
  }
  CHECK(a.item() == b.item());
  CHECK(scaled.state_dict().at("state.0.step").item<int64_t>() == 3);
}

TEST_CASE("parameters that rest keep their own count") {
  // Who has a gradient in which step; alone, each parameter gives the same bits.
  const std::vector<std::vector<bool>> active{{1, 1, 1, 0}, {1, 0, 1, 0}, {0, 1, 1, 1}, {1, 1, 0, 1}, {1, 1, 1, 1}};
  std::vector<Tensor> together, alone;
  for (int k = 0; k < 4; ++k) together.push_back(parameter(1 + k)), alone.push_back(parameter(1 + k));
  optim::Adam opt(together, {.lr = 0.1, .weight_decay = 0.1});
  std::vector<optim::Adam> single;
  for (const Tensor& p : alone)
    single.emplace_back(std::vector<Tensor>{p}, optim::AdamOptions{.lr = 0.1, .weight_decay = 0.1});
  for (const auto& step : active) {
    opt.zero_grad();
    for (size_t k = 0; k < 4; ++k) {
      if (!step[k]) continue;
      set(together[k], double(k) + 1), set(alone[k], double(k) + 1);
      single[k].step();
    }
    opt.step();
  }
  const StateDict state = opt.state_dict();
  const int64_t counts[] = {4, 4, 4, 3};
  for (size_t k = 0; k < 4; ++k) {
    CHECK(together[k].item() == alone[k].item());
    CHECK(state.at("state." + std::to_string(k) + ".step").item<int64_t>() == counts[k]);
  }
}

TEST_CASE("BI-204 options that make no sense are refused with name and value") {
  const Tensor w = parameter(1);
  const auto sgd = [&](const optim::SGDOptions& o) { return error_of([&] { optim::SGD({w}, o); }); };
  const auto adam = [&](const optim::AdamOptions& o) { return error_of([&] { optim::Adam({w}, o); }); };
  const auto adamw = [&](const optim::AdamWOptions& o) { return error_of([&] { optim::AdamW({w}, o); }); };
  for (const double bad : {-1.0, kNan, kInf}) {
    CHECK(sgd({.lr = bad}).find("learning rate") != std::string::npos);
    CHECK(sgd({.weight_decay = bad}).find("weight_decay") != std::string::npos);
    CHECK(adam({.lr = bad}).find("learning rate") != std::string::npos);
    CHECK(adam({.eps = bad}).find("eps") != std::string::npos);
    CHECK(adam({.weight_decay = bad}).find("weight_decay") != std::string::npos);
    CHECK(adamw({.weight_decay = bad}).find("weight_decay") != std::string::npos);
  }
  for (const double bad : {-0.1, 1.0, 1.5, kNan}) {
    CHECK(sgd({.momentum = bad}).find("momentum") != std::string::npos);
    CHECK(adam({.betas = {bad, 0.9}}).find("index 0") != std::string::npos);
    CHECK(adamw({.betas = {0.9, bad}}).find("index 1") != std::string::npos);
  }
  CHECK(sgd({.momentum = 1.5}).find("1.5") != std::string::npos);
  CHECK(sgd({.dampening = kNan}).find("dampening") != std::string::npos);
  CHECK(sgd({.momentum = 0.9, .dampening = -1}).empty());
  CHECK(error_of([&] { optim::SGD({{.params = {w}, .lr = -1}}); }).find("learning rate") != std::string::npos);
  CHECK(error_of([&] { optim::AdamW({{.params = {w}, .eps = kNan}}); }).find("eps") != std::string::npos);
  optim::SGD opt({w});
  CHECK(error_of([&] { opt.set_lr(kNan); }).find("learning rate") != std::string::npos);
}

TEST_CASE("SGD goes on from PyTorch's momentum buffers, which have no count; Adam's need one") {
  Tensor p = zeros({2}, {.requires_grad = true}), q = zeros({2}, {.requires_grad = true});
  optim::SGD sgd({p}, {.lr = 1, .momentum = 0.5, .dampening = 0.5});
  StateDict state = sgd.state_dict();
  state.set("state.0.momentum_buffer", full({2}, 4.0));
  sgd.load_state_dict(state);
  p.set_grad(ones({2}));
  sgd.step();
  CHECK(p.to_vector<float>() == std::vector<float>{-2.5f, -2.5f});  // 0.5 x 4 + (1 - 0.5) x 1
  optim::Adam adam({q}, {.lr = 1});
  state = adam.state_dict();
  state.set("state.0.exp_avg", ones({2}));
  CHECK(error_of([&] { adam.load_state_dict(state); }).find("state.0.step") != std::string::npos);
}

TEST_CASE("every optimizer goes on from its state as if nothing had been between") {
  const auto check_resume = [](auto make) {
    const Tensor a = tensor({1., -2., 3.}, {.dtype = kFloat64, .requires_grad = true}),
                 b = a.detach().clone().requires_grad_();
    auto one = make(a);
    const auto step = [&](auto& o, const Tensor& p, int i) {
      p.set_grad(tensor({0.5 * i, -1. + i % 3, 2. - i}, {.dtype = kFloat64}));
      o.step();
    };
    for (int i = 0; i < 4; ++i) step(one, a, i);
    auto two = make(b);
    step(two, b, 7);
    two.load_state_dict(one.state_dict());
    {
      NoGrad guard;
      Tensor(b).copy_(a);
    }
    for (int i = 4; i < 8; ++i) step(one, a, i), step(two, b, i);
    CHECK(a.to_vector<double>() == b.to_vector<double>());
    CHECK(isfinite(a).all().item() == 1);
  };
  using namespace optim;
  const auto of = [](auto type, auto options) {
    return [options](const Tensor& p) { return typename decltype(type)::type({p}, options); };
  };
#define RESUMES(Name, ...) check_resume(of(std::type_identity<Name>(), Name##Options{__VA_ARGS__}))
  RESUMES(SGD, .lr = 0.1, .momentum = 0.9, .nesterov = true);
  RESUMES(ASGD, .lr = 0.1, .lambd = 0.01, .t0 = 2);
  RESUMES(Adam, .lr = 0.1, .amsgrad = true, .decoupled_weight_decay = true);
  RESUMES(AdamW, .lr = 0.1);
  RESUMES(Adamax, .lr = 0.1, .weight_decay = 0.1);
  RESUMES(NAdam, .lr = 0.1);
  RESUMES(RAdam, .lr = 0.1, .betas = {0.5, 0.9});
  RESUMES(Adagrad, .lr = 0.1, .initial_accumulator_value = 0.5);
  RESUMES(Adadelta, .maximize = true);
  RESUMES(RMSprop, .lr = 0.1, .momentum = 0.5, .centered = true);
  RESUMES(RMSprop, .lr = 0.1, .centered = true);
  RESUMES(Rprop, .lr = 0.1);
  RESUMES(Lion, .lr = 0.1, .weight_decay = 0.1);
  RESUMES(Adafactor, .lr = 0.1, .weight_decay = 0.1);
}

TEST_CASE("options travel with the state, PyTorch's names, and are checked") {
  const Tensor w = parameter(1), v = parameter(1);
  optim::NAdam a({w}, {.lr = 0.5, .betas = {0.7, 0.8}, .momentum_decay = 0.25, .maximize = true}), b({v});
  set(w, 1), a.step();
  StateDict state = a.state_dict();
  CHECK(state.at("param_groups.0.betas").to_vector<double>() == std::vector{0.7, 0.8});
  CHECK(state.at("param_groups.0.params").to_vector<int64_t>() == std::vector<int64_t>{0});
  CHECK(state.at("state.0.mu_product").dtype() == kFloat32);
  b.load_state_dict(state);
  CHECK(b.state_dict().at("param_groups.0.momentum_decay").item() == 0.25);
  CHECK(b.momentum() == 0.7);
  CHECK(b.lr() == 0.5);
  state.set("param_groups.0.betas", tensor({0.7, 1.5}));
  CHECK(error_of([&] { b.load_state_dict(state); }).find("betas at index 1") != std::string::npos);
  CHECK(b.state_dict().at("param_groups.0.betas").to_vector<double>() == std::vector{0.7, 0.8});
  optim::SGD plain({v});
  CHECK(error_of([&] {
          plain.load_state_dict({{"state.0.step", full({}, 1)}});
        }).find("param_groups.0.lr") != std::string::npos);
  state.set("param_groups.0.params", arange(2));
  CHECK(error_of([&] { b.load_state_dict(state); }).find("match the size") != std::string::npos);
}

TEST_CASE("BI-204 options of the further optimizers") {
  const Tensor w = parameter(1);
  using namespace optim;
#define REFUSES(text, Name, ...) \
  CHECK(error_of([&] { Name({w}, Name##Options{__VA_ARGS__}); }).find(text) != std::string::npos)
  REFUSES("rho", Adadelta, .rho = 1.5);
  REFUSES("lr_decay", Adagrad, .lr_decay = -1);
  REFUSES("initial_accumulator_value", Adagrad, .initial_accumulator_value = -1);
  REFUSES("etas", Rprop, .etas = {1.2, 0.5});
  REFUSES("step_sizes", Rprop, .step_sizes = {1, 0.5});
  REFUSES("momentum", RMSprop, .momentum = -0.5);
  REFUSES("alpha", RMSprop, .alpha = kNan);
  REFUSES("betas at index 0", Lion, .betas = {1, 0.5});
  REFUSES("momentum_decay", NAdam, .momentum_decay = kInf);
  REFUSES("lambd", ASGD, .lambd = -1);
  REFUSES("beta2_decay", Adafactor, .beta2_decay = 0.5);
  REFUSES("invalid d", Adafactor, .d = 0.5);
  REFUSES("rank 2", Muon, .lr = 0.1);
  CHECK(error_of([&] { SGD({w}).set_momentum(1.5); }).find("momentum") != std::string::npos);
  CHECK(error_of([&] { Adadelta({w}).set_momentum(0.5); }).find("Adadelta") != std::string::npos);
}

TEST_CASE("a cycled momentum is the one that steps") {
  const Tensor a = parameter(1), b = parameter(1);
  optim::Adam one({a}, {.lr = 0.1, .betas = {0.5, 0.9}}), two({b}, {.lr = 0.1, .betas = {0.9, 0.9}});
  two.set_momentum(0.5);
  for (int i = 0; i < 3; ++i) set(a, i), set(b, i), one.step(), two.step();
  CHECK(a.item() == b.item());
  CHECK(two.momentum() == 0.5);
}

TEST_CASE("zero_grad(false) fills the gradients that are there with zeros, each in its place") {
  std::vector<Tensor> params;
  for (const DType t : {kFloat64, kFloat32, kFloat64, kBFloat16})
    params.push_back(ones({2, 3}, {.dtype = t, .requires_grad = true}));
  params.push_back(parameter(1));  // without a gradient
  for (size_t i = 0; i + 1 < params.size(); ++i) params[i].set_grad(full({2, 3}, 5., {.dtype = params[i].dtype()}));
  params[2].set_grad(full({2, 6}, 7., {.dtype = kFloat64}).slice(1, 0, 6, 2));
  optim::SGD opt(params, {.lr = 1});
  const Tensor before = params[0].grad(), other = params[2].grad();
  const auto version = before.version();
  opt.zero_grad(false);
  for (size_t i = 0; i + 1 < params.size(); ++i) CHECK(params[i].grad().abs().sum().item() == 0);
  CHECK_FALSE(params.back().grad().defined());
  CHECK(before.version() > version);
  CHECK(before.data_ptr() == params[0].grad().data_ptr());
  CHECK(other.data_ptr() == params[2].grad().data_ptr());
  opt.zero_grad();
  for (const Tensor& p : params) CHECK_FALSE(p.grad().defined());
}

TEST_CASE(
    "zero_grad(false) leaves gradients without a history, so that second derivatives are those of the next step "
    "alone") {
  const auto second = [](const Tensor& q, const std::function<void()>& zero) {
    const auto backward = [](const Tensor& y) { y.backward({}, true, true); };
    backward(sum(q * q * q));
    zero();
    CHECK_FALSE(q.grad().requires_grad());
    backward(sum(q * q));
    const Tensor result = grad({sum(q.grad())}, {q})[0];
    q.set_grad({});  // the gradient's history holds q, and q the gradient
    return result;
  };
  const Tensor q = tensor({2., 3.}, {.requires_grad = true});
  optim::SGD opt({q}, {.lr = 1});
  CHECK(equal(second(q, [&] { opt.zero_grad(false); }), tensor({2., 2.})));
  nn::Linear layer(2, 1, {.bias = false});
  CHECK(equal(second(layer.weight, [&] { layer.zero_grad(false); }), full({1, 2}, 2.f)));
}
