// The workloads. A step is zero_grad, forward, loss, backward and optimizer, on random data of fixed seed.
#include "workloads.h"

#include <sys/wait.h>
#include <tapir/tapir.h>
#include <unistd.h>
#include <csignal>

#include <chrono>
#include <memory>
#include <string>

using namespace tapir;

Device bench_device = kCPU;
CompileOptions bench_compile{.background = false};
BenchProgram bench_program;
void wait_for_bench_device() {
  if (bench_device.is_cuda()) cuda::synchronize(bench_device.index);
}

/// z = x + y of one float32 element. A step is 1,000 calls, so that ms per step are us per call.
static Run op_overhead(const std::string& variant) {
  constexpr int calls = 1000;
  Tensor x = ones({1}, {.device = bench_device}), y = ones({1}, {.device = bench_device});
  if (variant == "no_grad")
    return timed([=] {
      NoGrad guard;
      for (int i = 0; i < calls; ++i) Tensor z = x + y;
    });
  if (variant == "inference")
    return timed([=] {
      InferenceMode guard;
      for (int i = 0; i < calls; ++i) Tensor z = x + y;
    });
  x.requires_grad_();
  if (variant == "recording")
    return timed([=] {
      for (int i = 0; i < calls; ++i) Tensor z = x + y;
    });
  return [=](int64_t steps) {  // backward through a chain, and its release; building it is not timed
    double ms = 0;
    for (int64_t step = 0; step < steps; ++step) {
      Tensor z = x;
      for (int i = 0; i < calls; ++i) z = z + y;
      const auto start = Clock::now();
      z.backward();
      z = Tensor();
      wait_for_bench_device();
      ms += ms_since(start);
    }
    return ms / double(steps);
  };
}

struct Mlp : nn::Module {
  nn::Linear fc1{784, 512}, fc2{512, 256}, fc3{256, 10};
  Tensor forward(const Tensor& x) { return fc3(relu(fc2(relu(fc1(x))))); }
  TAPIR_FIELDS(fc1, fc2, fc3)
};

struct Cnn : nn::Module {
  nn::Conv2d conv1{1, 32, 3}, conv2{32, 64, 3};
  nn::Linear fc1{9216, 128}, fc2{128, 10};
  Tensor forward(const Tensor& x) {                         // (N, 1, 28, 28)
    Tensor h = max_pool2d(relu(conv2(relu(conv1(x)))), 2);  // (N, 64, 12, 12)
    return fc2(relu(fc1(flatten(h, 1))));                   // (N, 10)
  }
  TAPIR_FIELDS(conv1, conv2, fc1, fc2)
};

template <class Net, class Optimizer> static Run training(const std::string& variant, std::shared_ptr<Net> net,
                                                          std::shared_ptr<Optimizer> optimizer, Tensor x,
                                                          Tensor labels) {
  x = x.to(bench_device), labels = labels.to(bench_device);
  const auto step = [=, anomaly = variant == "anomaly"] {
    AnomalyMode mode(anomaly);
    optimizer->zero_grad();
    cross_entropy((*net)(x), labels).backward();
    optimizer->step();
  };
  return timed(step, variant.starts_with("compiled"));
}

/// Also "batch1", "batch8", and "infer": the forward of one row; each compiled too ("compiled_batch1").
static Run mlp(const std::string& variant) {
  auto net = std::make_shared<Mlp>();
  net->to(bench_device);
  if (variant.ends_with("infer")) return inference(variant, net, randn({1, 784}));
  const int64_t batch = variant.ends_with("batch1") ? 1 : variant.ends_with("batch8") ? 8 : 64;
  auto optimizer = std::make_shared<optim::Adam>(net->parameters(), optim::AdamOptions{.lr = kRate});
  return training(variant, net, optimizer, randn({batch, 784}), randint(0, 10, {batch}));
}

static Run cnn(const std::string& variant) {
  auto net = std::make_shared<Cnn>();
  net->to(bench_device);
  net->to(kChannelsLast);
  auto optimizer =
      std::make_shared<optim::AdamW>(net->parameters(), optim::AdamWOptions{.lr = kRate, .weight_decay = 0.01});
  return training(variant, net, optimizer, randn({128, 1, 28, 28}).to(kChannelsLast), randint(0, 10, {128}));
}

struct LstmNet : nn::Module {
  nn::Embedding embed{10000, 512};
  nn::LSTM lstm{512, 512, {.num_layers = 2}};
  nn::Linear out{512, 10000};
  Tensor forward(const Tensor& tokens) { return flatten(out(lstm(embed(tokens)).output), 0, 1); }  // (T, B) -> (T B, V)
  TAPIR_FIELDS(embed, lstm, out)
};

static Run lstm(const std::string& variant) {
  auto net = std::make_shared<LstmNet>();
  net->to(bench_device);
  auto optimizer = std::make_shared<optim::Adam>(net->parameters(), optim::AdamOptions{.lr = kRate});
  return training(variant, net, optimizer, randint(0, 10000, {64, 32}), randint(0, 10000, {64 * 32}));
}

/// The 160 parameter shapes of ResNet-50 without fc.bias: 25,556,032 numbers where the first stage has 64 channels.
static std::vector<Shape> resnet50_shapes() {
  std::vector<Shape> shapes;
  const auto conv = [&](int64_t out, int64_t in, int64_t k) {
    shapes.insert(shapes.end(), {{out, in, k, k}, {out}, {out}});
  };  // and its norm
  const int64_t first = bench_size().width, blocks[] = {3, 4, 6, 3};
  conv(first, 3, 7);
  int64_t in = first;
  for (int stage = 0; stage < 4; ++stage)
    for (int64_t block = 0, width = first << stage; block < blocks[stage]; ++block) {
      conv(width, in, 1), conv(width, width, 3), conv(4 * width, width, 1);
      if (block == 0) conv(4 * width, in, 1);
      in = 4 * width;
    }
  shapes.push_back({1000, in});
  return shapes;
}

/// Variants: gradients of 1 or, "tiny", of 1e-20, whose squares are denormal numbers.
static Run adamw(const std::string& variant) {
  std::vector<Tensor> parameters;
  for (const Shape& shape : resnet50_shapes()) {
    parameters.push_back(randn(shape, {.device = bench_device}).requires_grad_());
    parameters.back().set_grad(randn(shape, {.device = bench_device}) * (variant == "tiny" ? 1e-20 : 1));
  }
  auto optimizer = std::make_shared<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 1e-3, .weight_decay = 0.01});
  return timed([=] { optimizer->step(); });
}

/// A Linear of 768 by 3072 with 8-bit weights and activations, 100 calls a step. Variants: "rows16" and so on.
static Run linear_int8(const std::string& variant) {
  const Tensor weight = randn({3072, 768}, {.device = bench_device}), bias = randn({3072}, {.device = bench_device});
  auto linear = std::make_shared<quant::DynamicLinear>(weight, bias);
  const Tensor x = randn({std::stoll(variant.substr(4)), 768}, {.device = bench_device});
  return timed([=] {
    InferenceMode guard;
    for (int i = 0; i < 100; ++i) (*linear)(x);
  });
}

/// Another process that computes for as long as this object lives (and no longer than ours).
struct Neighbour {
  pid_t child;
  Neighbour() {
    const pid_t parent = getpid();
    child = fork();
    if (child == 0) {
      while (getppid() == parent) {}
      _exit(0);
    }
    usleep(100000);
  }
  ~Neighbour() { kill(child, SIGKILL), waitpid(child, nullptr, 0); }
};

static Run busy_neighbour(const std::string& variant) {
  return [alone = mlp(variant)](int64_t steps) {
    Neighbour neighbour;
    return alone(steps);
  };
}

/// Ten pointwise operations, one after the other. "cheap_1e7", "mixed_1e4_c": of so many elements; c: compiled. "copy_1e7": their bytes.
static Tensor cheap_chain(const Tensor& x) {
  Tensor y = relu(x * 1.5 + 0.5) - x;
  return maximum(abs(y * y), x) * 0.25 - 1 + x;
}
static Tensor mixed_chain(const Tensor& x) {
  const Tensor y = sqrt(sigmoid(x * 1.5 + 0.5)) * x;
  return tanh(x / (y + 1)) * 0.5 + x;
}
static Tensor heavy_chain(const Tensor& x) {
  Tensor y = x;
  for (int i = 0; i < 3; ++i) y = exp(gelu(tanh(y)));
  return tanh(y);
}

static Run chain(const std::string& variant) {
  const std::string kind = variant.substr(0, 5), size = variant.substr(variant.find('_') + 1, 3);
  Tensor x = randn({int64_t(std::stod(size))}, {.device = bench_device});
  if (kind == "copy_") return timed([x, y = empty_like(x)]() mutable { y.copy_(x); });
  const auto f = kind == "cheap" ? cheap_chain : kind == "mixed" ? mixed_chain : heavy_chain;
  return timed([x, f] { return f(x); }, variant.ends_with("_c"));
}
static std::vector<std::string> chains() {
  std::vector<std::string> all;
  for (const char* size : {"1e4", "1e5", "1e7"}) {
    all.push_back(std::string("copy_") + size);
    for (const char* kind : {"cheap_", "mixed_", "heavy_"})
      for (const char* mode : {"", "_c"}) all.push_back(std::string(kind) + size + mode);
  }
  return all;
}

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"op_overhead", {"no_grad", "recording", "inference", "backward"}, op_overhead},
      {"mlp", {"step", "compiled", "anomaly"}, mlp},
      {"cnn", {"step", "compiled", "anomaly"}, cnn},
      {"lstm", {"step", "compiled"}, lstm, 4},
      {"resnet18_cifar", {"step", "compiled", "bf16", "compiled_bf16"}, resnet18_cifar, 4},
      {"resnet50", {"step", "compiled", "bf16", "compiled_bf16"}, resnet50, 4},
      {"gpt_mini", {"step", "compiled", "bf16", "compiled_bf16"}, gpt_mini, 4},
      {"resnet18_infer", {"step", "compiled"}, resnet18_infer},
      {"gpt2_124m", {"step", "compiled", "bf16", "compiled_bf16"}, gpt2_124m, 4},
      {"gpt2_decode",
       {"step", "compiled", "bf16", "compiled_bf16", "int8", "compiled_int8", "int4", "compiled_int4"},
       gpt2_decode,
       16},
      {"ceiling", {"copy", "matmul_f32", "matmul_bf16"}, ceiling, 3},
      {"loader", {"0", "1", "2"}, loader, 10},
      {"adamw", {"step", "tiny"}, adamw},
      {"linear_int8", {"rows1", "rows16", "rows256"}, linear_int8, 4},
      {"chain", chains(), chain},
      {"busy_neighbour", {"step"}, busy_neighbour},
      {"ops", {}, op, 2},
  };
  return all;
}
