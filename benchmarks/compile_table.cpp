// tapir_bench compile_table [NAME[:VARIANT] ...]: what compile() makes of workloads and what each of its passes contributes, as Markdown.
#include <tapir/core/allocator.h>
#include <tapir/core/generator.h>
#include <tapir/core/parallel.h>
#include <tapir/train/profiler.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>

#include "workloads.h"

using namespace tapir;

namespace {

struct Pass {
  const char* name;
  bool CompileOptions::*on;
};
constexpr Pass kPasses[] = {{"constants", &CompileOptions::constants}, {"common_calls", &CompileOptions::common_calls},
                            {"dead_code", &CompileOptions::dead_code}, {"casts", &CompileOptions::casts},
                            {"layouts", &CompileOptions::layouts},     {"pools", &CompileOptions::pools},
                            {"norms", &CompileOptions::norms},         {"fuse", &CompileOptions::fuse},
                            {"order", &CompileOptions::order},         {"reuse", &CompileOptions::reuse}};

/// A workload in one of its forms, warm.
struct Made {
  Run run;
  CompileStats stats;  // of the compiled ones
  int64_t peak =
      0;  // bytes at most within a step: parameters and states, activations and gradients, scratch memory of kernels

  Made(const Workload& w, const std::string& variant, const CompileOptions& options) {
    manual_seed(0);
    bench_compile = options, bench_compile.background = false, bench_program = {};
    const int64_t before = memory_stats().allocated;
    run = w.make(variant);
    run(5);
    peak = INT64_MAX;
    for (int i = 0; i < 4; ++i) {  // a call that is checked runs as it is
      reset_peak_memory_stats();
      run(1);
      peak = std::min(peak, memory_stats().max_allocated - before);
    }
    if (bench_program.stats && !bench_program.stats().empty()) stats = bench_program.stats().back();
  }
};

const Workload& find(const std::string& name) {
  const auto& all = workloads();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Workload& w) { return w.name == name; });
  check(found != all.end(), "[compile_table] expected a workload, got {}", name);
  return *found;
}

/// Milliseconds per step; with one thread those of this process, what a machine without others would take.
double ms_of(const Run& run, int64_t steps) {
  const std::clock_t start = std::clock();
  const double wall = run(steps);
  return get_num_threads() > 1 ? wall : double(std::clock() - start) * 1000 / CLOCKS_PER_SEC / double(steps);
}

/// The part of a step that products, convolutions, recurrences, attention and the optimizer take, whose kernels a program calls as eager
/// code does: what stays if everything else costs nothing.
double share_of_kept_kernels(const Run& run, int64_t steps) {
  profiler::Profile profile;
  run(steps);
  profile.stop();
  double seconds = 0;
  for (const profiler::ProfileRow& row : profile.key_averages({.row_limit = 1000}))
    for (const char* name : {"matmul", "linear", "quant_matmul", "conv", "rnn", "lstm", "attention",
                             "scaled_dot_product_attention", "optimizer_step"})
      if (row.name.starts_with(name)) {
        seconds += row.self_cpu;
        break;
      }
  return seconds / profile.duration();
}

class Table {
 public:
  Table(const std::string& word, int repeats, double seconds)
      : word_(word), name_(word.substr(0, word.find(':'))),
        variant_(word == name_ ? "" : word.substr(name_.size() + 1)), repeats_(repeats),
        eager_(find(name_), variant_.empty() ? "step" : variant_, {}),
        steps_(std::max<int64_t>(1, int64_t(seconds * 1000 / eager_.run(1)))),
        limit_(share_of_kept_kernels(eager_.run, std::min<int64_t>(steps_, 100))) {}

  /// A row; the numbers of the program.
  CompileStats row(const char* what, const CompileOptions& options) {
    Made made(find(name_), variant_.empty() ? "compiled" : "compiled_" + variant_, options);
    double eager = 1e300, compiled = 1e300;
    for (int i = 0; i < repeats_; ++i)
      eager = std::min(eager, ms_of(eager_.run, steps_)), compiled = std::min(compiled, ms_of(made.run, steps_));
    const auto mib = [](int64_t bytes) { return double(bytes) / (1 << 20); };
    std::printf("| %s | %s | %.3f | %.2f | %.2f | %lld | %.1f | %.2f | %.2f |\n", word_.c_str(), what, compiled,
                compiled / eager, limit_, static_cast<long long>(made.stats.calls), mib(made.stats.arena),
                double(made.peak) / double(eager_.peak), made.stats.seconds);
    std::fflush(stdout);
    return made.stats;
  }

 private:
  std::string word_, name_, variant_;
  int repeats_;
  Made eager_;
  int64_t steps_;
  double limit_;
};

}  // namespace

void compile_table(const std::vector<std::string>& names, int repeats, double seconds, bool each_pass) {
  std::printf(
      "| workload | passes | ms a step | by eager's | limit | kernel calls | arena, MiB | memory by eager's | "
      "passes, s |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string& word : names) {
    Table table(word, repeats, seconds);
    table.row("all", {});
    for (const Pass& pass : kPasses) {
      if (!each_pass) break;
      CompileOptions options;
      options.*pass.on = false;
      table.row((std::string("without ") + pass.name).c_str(), options);
    }
    table.row("all, .memory_budget = 0.75", {.memory_budget = 0.75});
  }
}
