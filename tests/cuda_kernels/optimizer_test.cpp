// cuda_kernels/optimizer/optimizer.cu, foreach.cu: many tensors, large ones, gaps.
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
}  // namespace

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
