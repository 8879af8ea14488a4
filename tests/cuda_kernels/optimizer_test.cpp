// cuda_kernels/optimizer/optimizer.cu, foreach.cu: many tensors, large ones, gaps, of one dtype and of several.
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include <tapir/core/formulas/optimizer.h>

#include "../io/temporary.h"
#include "kernels.h"

using namespace tapir;

namespace {
/// Parameters of many sizes, one of them with gaps between its elements, with gradients.
std::vector<Tensor> parameters(DType dtype, Device device) {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < 70; ++i) all.push_back(numbers({i * i % 37 + 1, 5}, dtype, uint64_t(i)).to(device));
  all.push_back(numbers({30000}, dtype, 90).to(device));
  all.push_back(narrow(numbers({40, 30}, dtype, 91).to(device), 1, 3, 20));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].requires_grad_();
    all[i].set_grad(numbers(all[i].shape(), dtype, 200 + i).to(device));
  }
  return all;
}
double worst(const std::vector<Tensor>& there, const std::vector<Tensor>& here, bool grads = false) {
  double most = 0;
  for (size_t i = 0; i < here.size(); ++i) {
    const Tensor a = grads ? there[i].grad() : there[i].detach(), b = grads ? here[i].grad() : here[i].detach();
    most = std::max(most, difference(a.contiguous(), b));
  }
  return most;
}
template <class Optimizer, class Options> void check_steps(const Options& options) {
  for (DType dtype : kFloats) {
    const auto here = parameters(dtype, kCPU), there = parameters(dtype, kCUDA);
    Optimizer a(here, options), b(there, options);
    for (int step = 0; step < 3; ++step) a.step(), b.step();
    CHECK(worst(there, here) < rounding(dtype) * 4);
  }
}
/// Shapes that fill tables, with odd sizes; the last two begin where no pack does, and have gaps.
std::vector<Tensor> tensors(Device device, uint64_t seed, const std::function<DType(size_t)>& dtype_of) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < 150; ++i)
    all.push_back(numbers({int64_t(i * i % 37 + 1), 5}, dtype_of(i), seed + i).to(device));
  all.push_back(numbers({30001}, dtype_of(150), seed + 150).to(device));
  all.push_back(numbers({20001}, dtype_of(151), seed + 151).to(device).slice(0, 1));
  all.push_back(narrow(numbers({40, 30}, dtype_of(152), seed + 152).to(device), 1, 3, 20));
  return all;
}
/// In units of what rounding may differ by; a step whose first parameter is not of float64 computes in float32.
double worst_of(const std::vector<Tensor>& there, const std::vector<Tensor>& here) {
  double most = 0;
  for (size_t i = 0; i < here.size(); ++i) {
    const DType dtype = here[i].dtype() == kFloat64 ? kFloat32 : here[i].dtype();
    most = std::max(most, difference(there[i].contiguous(), here[i]) / rounding(dtype));
  }
  return most;
}
}  // namespace

TEST_CASE("cuda optimizers: operands of any floats up to 32 bits") {
  NEEDS_CUDA
  const DType floats[] = {kFloat32, kBFloat16, kFloat16};
  // By operand and tensor: all nine pairs, and whatever else. What is of float64, whole or in part, is not in the tables.
  const auto dtype_of = [&](size_t k) {
    return [&floats, k](size_t i) {
      if (i == 20 || i == 21 + k) return kFloat64;
      return floats[(k == 0 ? i : k == 1 ? i / 3 : i * k / 2) % 3];
    };
  };
  const auto run = [&](const OptimizerParams& params, Device device) {
    std::vector<Tensor> operands[5];
    std::vector<TensorView> views[5];
    for (size_t k = 0; k < 5; ++k) {
      operands[k] = tensors(device, 200 * k, dtype_of(k));
      if (k > 2)  // second moments
        for (Tensor& x : operands[k]) x = abs(x);
      for (const Tensor& x : operands[k]) views[k].emplace_back(x);
    }
    const Tensor lr = full({}, 0.05, {.dtype = kFloat64, .device = device}),
                 step = zeros({}, {.dtype = kInt64, .device = device});
    for (int i = 0; i < 2; ++i) {
      entry::OptimizerStep c{.values = views[0], .grads = views[1], .lr = lr, .step = step, .params = params};
      const int states = formulas::states_of(params);
      if (states > 0) c.first = views[2];
      if (states > 1) c.second = views[3];
      if (states > 2) c.third = views[4];
      backend(device).optimizer_step(context(device), c);
    }
    for (size_t k : {2, 3, 4}) operands[0].insert(operands[0].end(), operands[k].begin(), operands[k].end());
    return operands[0];
  };
  using O = OptimizerOp;
  for (const OptimizerParams& params :
       {OptimizerParams{O::Sgd, 0.01}, OptimizerParams{O::Sgd, 0.01, 0.9, 0.1}, OptimizerParams{O::Lion, 0, 0.9, 0.99},
        OptimizerParams{O::AdamW, 0.01, 0.9, 0.99, 1e-3}, OptimizerParams{O::Adam, 0, 0.9, 0.99, 1e-3, false, true}}) {
    CAPTURE(int(params.op));
    CHECK(worst_of(run(params, kCUDA), run(params, kCPU)) < 4);
  }
}

TEST_CASE("cuda optimizers: float32 copies of parameters of 16 bits, which some were written to") {
  NEEDS_CUDA
  for (DType dtype : {kBFloat16, kFloat16}) {
    const auto trained = [&](Device device, auto make) {
      const std::vector<Tensor> params = tensors(device, 1, [&](size_t) { return dtype; });
      for (const Tensor& p : params) Tensor(p).requires_grad_();
      auto opt = make(params);
      for (uint64_t step = 0; step < 4; ++step) {
        for (size_t i = 0; i < params.size(); ++i)
          params[i].set_grad(numbers(params[i].shape(), dtype, 1000 * step + i).to(device));
        if (step == 2) {
          NoGrad guard;
          for (size_t i = 0; i < params.size(); i += 7) {
            Tensor part = flatten(params[i], 0, -1).slice(0, 0, 3);
            part.fill_(i == 14 ? NAN : 2.5);
          }
        }
        opt.step();
      }
      std::vector<Tensor> all;
      for (const Tensor& p : params) all.push_back(p.detach());
      for (auto& [name, t] : opt.state_dict())
        if (name.starts_with("state.") && !name.ends_with("step")) all.push_back(t);
      return all;
    };
    const auto compare = [&](auto make) { CHECK(worst_of(trained(kCUDA, make), trained(kCPU, make)) < 4); };
    compare([](const auto& p) { return optim::SGD(p, {.lr = 0.1, .low_precision = "master"}); });
    compare([](const auto& p) { return optim::SGD(p, {.lr = 0.1, .momentum = 0.9, .low_precision = "master"}); });
    compare([](const auto& p) { return optim::AdamW(p, {.lr = 0.01, .eps = 1e-3, .low_precision = "master"}); });
    compare([](const auto& p) {
      return optim::Adam(p, {.lr = 0.01, .eps = 1e-3, .amsgrad = true, .low_precision = "master"});
    });
  }
}

TEST_CASE("cuda optimizers step as those of the CPU") {
  NEEDS_CUDA
  check_steps<optim::SGD>(optim::SGDOptions{.lr = 0.1});
  check_steps<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  check_steps<optim::Adam>(optim::AdamOptions{.lr = 0.1, .weight_decay = 0.01});
  check_steps<optim::AdamW>(optim::AdamWOptions{.lr = 0.1, .amsgrad = true});
  check_steps<optim::ASGD>(optim::ASGDOptions{.lr = 0.1, .t0 = 1});
  check_steps<optim::Adamax>(optim::AdamaxOptions{.lr = 0.1});
  check_steps<optim::NAdam>(optim::NAdamOptions{.lr = 0.1, .weight_decay = 0.01, .decoupled_weight_decay = true});
  check_steps<optim::RAdam>(optim::RAdamOptions{.lr = 0.1, .betas = {0.5, 0.6}});
  check_steps<optim::Adagrad>(optim::AdagradOptions{.lr = 0.1, .initial_accumulator_value = 0.1});
  check_steps<optim::Adadelta>(optim::AdadeltaOptions{});
  check_steps<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.1});
  check_steps<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.1, .eps = 0.1, .momentum = 0.5, .centered = true});
  check_steps<optim::Rprop>(optim::RpropOptions{.lr = 0.1});
  check_steps<optim::Lion>(optim::LionOptions{.lr = 0.1});
  check_steps<optim::Adafactor>(optim::AdafactorOptions{.lr = 0.1});
}

TEST_CASE("cuda foreach: many tensors of any dtype become zero") {
  NEEDS_CUDA
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kUInt8, kBool}) {
    CAPTURE(std::string(name_of(dtype)));
    std::vector<Tensor> all;
    for (int64_t i = 0; i < 70; ++i) all.push_back(ones({i * i % 37, 5}, {.dtype = dtype, .device = kCUDA}));
    all.push_back(ones({30001}, {.dtype = dtype, .device = kCUDA}).slice(0, 1));  // not where 16 bytes begin
    const Tensor whole = ones({40, 30}, {.dtype = dtype, .device = kCUDA});
    all.push_back(narrow(whole, 1, 3, 20));
    const std::vector<TensorView> views(all.begin(), all.end());
    backend(kCUDA).foreach (context(kCUDA), {.xs = views, .params = {ForeachOp::Zero}});
    for (const Tensor& x : all) CHECK(x.cpu().to(kFloat64).sum().item<double>() == 0);
    CHECK(whole.cpu().to(kFloat64).sum().item<double>() == 40 * 10);  // beside the view nothing is written
  }
}

TEST_CASE("cuda clipping: gradients of several dtypes") {
  NEEDS_CUDA
  const auto all = [](Device device) {
    std::vector<Tensor> params = tensors(device, 5, [](size_t i) { return kFloats[i % 4]; });
    for (Tensor& p : params) {
      const Tensor g = p;
      p = zeros_like(p), p.requires_grad_(), p.set_grad(g);
    }
    return params;
  };
  for (double p : {2.0, 3.0, double(INFINITY)}) {
    const auto here = all(kCPU), there = all(kCUDA);
    const Tensor a = optim::clip_grad_norm_(here, 1, {.norm_type = p}),
                 b = optim::clip_grad_norm_(there, 1, {.norm_type = p});
    CHECK(difference(b, a) < 1e-5);
    CHECK(worst(there, here, true) < rounding(kFloat32));
    optim::clip_grad_value_(here, 0.01), optim::clip_grad_value_(there, 0.01);
    CHECK(worst(there, here, true) < rounding(kFloat32));
  }
}

TEST_CASE("cuda clipping: norms and values of many gradients") {
  NEEDS_CUDA
  for (DType dtype : kFloats)
    for (double p : {1.0, 2.0, 3.0, double(INFINITY)}) {
      const auto here = parameters(dtype, kCPU), there = parameters(dtype, kCUDA);
      const Tensor a = optim::clip_grad_norm_(here, 1, {.norm_type = p}),
                   b = optim::clip_grad_norm_(there, 1, {.norm_type = p});
      CHECK(difference(b, a) < 1e-5);
      CHECK(worst(there, here, true) < rounding(dtype));
      optim::clip_grad_value_(here, 0.01), optim::clip_grad_value_(there, 0.01);
      CHECK(worst(there, here, true) < rounding(dtype));
    }
}

// The emulated device writes down what it launched, kernels of generated text aside: TAPIR_EMULATED_LAUNCHES.
namespace {
/// Kernels by name of the process that ran these steps of a training loop, parameters of `dtypes` by turns.
std::map<std::string, int64_t> launches_of(const std::string& how, int64_t params, int64_t steps) {
  const tapir_tests::TemporaryFolder folder;
  const std::string file = folder / "launches";
  CHECK(run_alone("TAPIR_EMULATED_LAUNCHES=" + file + " TAPIR_STEPS='" + how + " " + std::to_string(params) + " " +
                      std::to_string(steps) + "'",
                  "alone: cuda steps of an optimizer") == 0);
  std::map<std::string, int64_t> out;
  std::ifstream in(file);
  std::string line, name;
  for (std::getline(in, line); std::getline(in, line);) {
    int64_t count = 0;
    std::istringstream(line) >> name >> count;
    out[name] += count;
  }
  return out;
}
/// Launches of a step behind the first ones, which make states, or are recorded.
int64_t launches_of_step(const std::string& how, int64_t params) {
  int64_t all = 0;
  for (auto& [name, n] : launches_of(how, params, 9)) all += n;
  for (auto& [name, n] : launches_of(how, params, 7)) all -= n;
  return all / 2;
}
template <class Optimizer, class Options>
void some_steps(const std::string& what, const std::vector<Tensor>& params, int64_t steps, Options options) {
  if constexpr (requires { options.low_precision; })
    if (contains(what, "master")) options.low_precision = "master";
  Optimizer opt(params, options);
  amp::GradScaler scaler({.enabled = contains(what, "scaled")});
  scaler.scale(ones({}, {.device = kCUDA}));
  const auto step = [&] {
    opt.zero_grad(false);
    if (contains(what, "clip_grad_norm_")) optim::clip_grad_norm_(params, 1);
    scaler.step(opt, contains(what, "max_norm") ? 1 : INFINITY);
    if (scaler.is_enabled()) scaler.update();
  };
  auto program = compile(step, {.enabled = contains(what, "compiled"), .verify = 0, .background = false});
  for (int64_t i = 0; i < steps; ++i) program();
}
}  // namespace

TEST_CASE("cuda optimizers: the launches of a step do not grow with the number of parameters") {
  NEEDS_CUDA
  if (!is_emulated()) SKIP_TEST("launches are counted on the emulated device");
  // zero_grad, the numbers of the step, and a table for each kind of operands
  CHECK(launches_of_step("AdamW float32 plain", 60) == 3);
  CHECK(launches_of_step("SGD bfloat16 plain", 60) == 3);
  CHECK(launches_of_step("Lion mixed plain", 60) == 2 + 3);
  CHECK(launches_of_step("AdamW bfloat16 master", 60) == 3);
  CHECK(launches_of_step("AdamW mixed master", 60) == 3);
  CHECK(launches_of_step("AdamW bfloat16 master", 130) == 4);  // two tables
  CHECK(launches_of_step("AdamW bfloat16 master,compiled", 60) == 3);
  CHECK(launches_of_step("AdamW mixed master,compiled", 60) == 3);
  const auto bounded = [](const std::string& how, int64_t most) {
    CAPTURE(how);
    const int64_t few = launches_of_step(how, 6), many = launches_of_step(how, 60);
    CHECK(few == many);
    CHECK(many <= most);
  };
  bounded("AdamW mixed clip_grad_norm_", 20);
  bounded("SGD mixed scaled", 40);
  bounded("AdamW mixed scaled,max_norm", 40);
  bounded("AdamW mixed master,scaled,max_norm,compiled", 12);
}

TEST_CASE("alone: cuda steps of an optimizer") {
  NEEDS_CUDA
  const char* text = std::getenv("TAPIR_STEPS");
  if (!text) SKIP_TEST("a test of its own process");
  std::string name, dtype, what;
  int64_t count = 0, steps = 0;
  std::istringstream(text) >> name >> dtype >> what >> count >> steps;
  std::vector<Tensor> params;
  for (int64_t i = 0; i < count; ++i) {
    const DType t = dtype == "mixed" ? kFloats[i % 3] : dtype == "bfloat16" ? kBFloat16 : kFloat32;
    params.push_back(ones({i % 5 + 1, 7}, {.dtype = t, .device = kCUDA}).requires_grad_());
    params.back().set_grad(ones_like(params.back().detach()));
  }
  if (name == "SGD") some_steps<optim::SGD>(what, params, steps, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  else if (name == "Lion") some_steps<optim::Lion>(what, params, steps, optim::LionOptions{});
  else some_steps<optim::AdamW>(what, params, steps, optim::AdamWOptions{});
}
