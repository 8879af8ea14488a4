// All optimizers whose step takes gradients that are there (LBFGS wants a closure), each in a form that uses all of its states; and what a
// step makes of denormal numbers.
#pragma once
#include <tapir/tapir.h>

#include <cmath>
#include <memory>
#include <vector>

namespace tapir_tests {

struct AnyOptimizer {
  const char* name;
  std::unique_ptr<tapir::optim::Optimizer> (*make)(std::vector<tapir::Tensor>);
};

#define TAPIR_TEST_OPTIMIZER(name, Name, ...)                                                              \
  AnyOptimizer {                                                                                           \
    name, [](std::vector<tapir::Tensor> p) -> std::unique_ptr<tapir::optim::Optimizer> {                   \
      return std::make_unique<tapir::optim::Name>(std::move(p), tapir::optim::Name##Options{__VA_ARGS__}); \
    }                                                                                                      \
  }
inline const AnyOptimizer every_optimizer[] = {
    TAPIR_TEST_OPTIMIZER("SGD", SGD, .lr = 0.1, .weight_decay = 0.01),
    TAPIR_TEST_OPTIMIZER("SGD with momentum", SGD, .lr = 0.1, .momentum = 0.9, .nesterov = true),
    TAPIR_TEST_OPTIMIZER("ASGD", ASGD, .lr = 0.1, .t0 = 1),
    TAPIR_TEST_OPTIMIZER("Adam", Adam, .lr = 0.1, .weight_decay = 0.01),
    TAPIR_TEST_OPTIMIZER("AdamW", AdamW, .lr = 0.1, .amsgrad = true),
    TAPIR_TEST_OPTIMIZER("Adamax", Adamax, .lr = 0.1),
    TAPIR_TEST_OPTIMIZER("NAdam", NAdam, .lr = 0.1, .decoupled_weight_decay = true),
    TAPIR_TEST_OPTIMIZER("RAdam", RAdam, .lr = 0.1, .betas = {0.5, 0.6}),
    TAPIR_TEST_OPTIMIZER("Adagrad", Adagrad, .lr = 0.1),
    TAPIR_TEST_OPTIMIZER("Adadelta", Adadelta, .lr = 1),
    TAPIR_TEST_OPTIMIZER("RMSprop", RMSprop, .lr = 0.1, .momentum = 0.5, .centered = true),
    TAPIR_TEST_OPTIMIZER("Rprop", Rprop, .lr = 0.1),
    TAPIR_TEST_OPTIMIZER("Lion", Lion, .lr = 0.1, .weight_decay = 0.01),
    TAPIR_TEST_OPTIMIZER("Muon", Muon, .lr = 0.1),
    TAPIR_TEST_OPTIMIZER("Adafactor", Adafactor, .lr = 0.1, .weight_decay = 0.01)};

inline std::vector<double> values_of(const tapir::Tensor& x) {
  return x.detach().cpu().to(tapir::kFloat64).contiguous().to_vector<double>();
}
inline int64_t denormals_in(const tapir::Tensor& x) {
  int64_t n = 0;
  for (const double v : values_of(x)) n += v != 0 && std::abs(v) < 0x1p-126;
  return n;
}

/// x with other numbers where i % 4 == at or 3: denormal ones, 0, numbers whose squares are denormal, or twice the smallest that is not denormal.
enum class Small { Denormal, Zero, Squares, Edge };
inline tapir::Tensor with_small(const tapir::Tensor& x, int64_t at, Small kind) {
  std::vector<double> all = values_of(x);
  for (size_t i = 0; i < all.size(); ++i)
    if (i % 4 == 3 || i % 4 == size_t(at))
      all[i] = kind == Small::Squares ? 1e-20
               : kind == Small::Edge  ? 0x1p-125
               : kind == Small::Zero  ? 0
               : i % 8 < 4            ? 0x1p-130
                                      : 0x1.8p-128;
  return tapir::tensor(std::span<const double>(all), x.shape()).to(x.dtype()).to(x.device());
}

/// Parameters and states, by name, after three steps: denormal numbers among parameters, gradients and the states that the second
/// step begins with, or what `kind` says in place of them; a quarter of the elements has them in all of these.
inline tapir::StateDict stepped(const AnyOptimizer& any, tapir::DType dtype, tapir::Device device, Small kind) {
  using namespace tapir;
  manual_seed(5);
  std::vector<Tensor> params;
  for (const Shape& shape : {Shape{150, 200}, Shape{12, 7}}) {
    const Tensor p = with_small(randn(shape).to(dtype), 0, kind).to(device);
    params.push_back(
        (params.empty() ? p : transpose(p, 0, 1)).detach().requires_grad_());  // the second one with gaps, for some
  }
  const auto optimizer = any.make(params);
  for (int step = 0; step < 3; ++step) {
    for (const Tensor& p : params) p.set_grad(with_small(randn(p.shape()).to(dtype), 1, kind).to(device));
    if (step == 1) {
      StateDict state;
      for (auto& [name, t] : optimizer->state_dict())
        state.append(name, t.numel() > 1 && t.dtype() == dtype ? with_small(t, 2, kind) : t.clone());
      optimizer->load_state_dict(state);
    }
    optimizer->step();
  }
  StateDict out = optimizer->state_dict();
  for (size_t i = 0; i < params.size(); ++i) out.append("parameter " + std::to_string(i), params[i].detach());
  return out;
}

/// How many numbers differ, and how many are denormal, 0 being 0 whatever its sign.
struct StepsCompared {
  int64_t different = 0, denormal = 0;
};
inline StepsCompared compared(const tapir::StateDict& a, const tapir::StateDict& b) {
  StepsCompared out;
  for (auto& [name, x] : a) {
    const auto one = values_of(x), other = values_of(b.at(name));
    for (size_t i = 0; i < one.size(); ++i) out.different += !(one[i] == other[i]);
    if (x.dtype() == tapir::kFloat32 || x.dtype() == tapir::kBFloat16) out.denormal += denormals_in(x);
  }
  return out;
}

}  // namespace tapir_tests
