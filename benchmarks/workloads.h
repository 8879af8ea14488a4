#pragma once
#include <tapir/compile/compile.h>
#include <tapir/core/device.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Where everything runs.
extern tapir::Device bench_device;
/// Waits for it: before a clock is read.
void wait_for_bench_device();

/// How variants named compiled are compiled, and what came of the last one.
struct BenchProgram {
  std::function<std::vector<tapir::CompileStats>()> stats;
  std::function<std::string()> explain;
};
extern tapir::CompileOptions bench_compile;
extern BenchProgram bench_program;

/// The rate of training on one batch: so small that weights stay as they are. Nets that learn the batch end in gradients and states that are
/// denormal numbers, on which PyTorch, and many processors, are slow. peer_models.py has the same.
inline constexpr double kRate = 1e-12;

/// Runs that many steps and returns the milliseconds that one took.
using Run = std::function<double(int64_t steps)>;

using Clock = std::chrono::steady_clock;
inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
/// Times a step that needs nothing untimed in between.
template <class F> Run timed(F step) {
  return [step](int64_t steps) mutable {
    const auto start = Clock::now();
    for (int64_t i = 0; i < steps; ++i) step();
    wait_for_bench_device();
    return ms_since(start) / double(steps);
  };
}

/// The same, by compile() where `compiled`; the warm-up steps record it.
template <class F> Run timed(F step, bool compiled) {
  if (!compiled) return timed(std::move(step));
  auto program = std::make_shared<tapir::Compiled<F>>(tapir::compile(std::move(step), bench_compile));
  bench_program = {[program] { return program->stats(); }, [program] { return program->explain(); }};
  return timed([program] { (*program)(); });
}

/// The forward of one batch.
template <class Net> Run inference(const std::string& variant, std::shared_ptr<Net> net, const tapir::Tensor& x) {
  net->eval();
  auto forward = [net](const tapir::Tensor& batch) {
    tapir::InferenceMode guard;
    return (*net)(batch);
  };
  if (!variant.starts_with("compiled")) return timed([forward, x] { forward(x); });
  // A batch that were captured would count as a weight, and all that is computed of it as known.
  auto program = std::make_shared<tapir::Compiled<decltype(forward)>>(tapir::compile(forward, bench_compile));
  bench_program = {[program] { return program->stats(); }, [program] { return program->explain(); }};
  return timed([program, x] { (*program)(x); });
}

struct Workload {
  std::string name;
  std::vector<std::string> variants;
  Run (*make)(const std::string& variant);  // builds model and data; not yet warm
  int64_t warm_steps = 20;
};

/// peer.py and peer_models.py hold the same for PyTorch.
const std::vector<Workload>& workloads();

/// How large the models are: $TAPIR_BENCH_SIZE, which is `target` (what others publish for GPUs), `small` or `tiny` (for an emulated device);
/// without it target on a GPU and small on a CPU. peer_models.py has the same table.
struct BenchSize {
  int64_t images, pixels, width;  // resnet50: a batch, the side of an image, the channels of the first stage
  int64_t rows, tokens, layers, channels, vocabulary;  // GPT-2
  int64_t copied, side;                                // ceiling: float32 numbers, and the side of the matrices
};
const BenchSize& bench_size();
/// What a step does, as "256 images of 224x224": both sides of a comparison say it, and must agree.
std::string work_of(const std::string& workload, const std::string& variant);

/// Prints what compile() makes of these workloads, and its passes one by one. "gpt_mini:bf16" is a variant's.
void compile_table(const std::vector<std::string>& names, int repeats, double seconds, bool each_pass);

// models.cpp
Run resnet18_cifar(const std::string& variant);
Run resnet18_infer(const std::string& variant);
Run resnet50(const std::string& variant);
Run gpt_mini(const std::string& variant);
Run gpt2_124m(const std::string& variant);
Run gpt2_decode(const std::string& variant);
Run ceiling(const std::string& variant);
Run loader(const std::string& variant);

/// One operation: "NAME|INPUTS|PASS".
Run op(const std::string& variant);
