// tapir_bench compile_table [NAME[:VARIANT] ...]: what compile() makes of a workload and what each of its passes contributes, as Markdown.
#include <tapir/core/allocator.h>
#include <tapir/core/generator.h>

#include <algorithm>
#include <cstdio>

#include "workloads.h"

using namespace tapir;

namespace {

struct Pass {
  const char* name;
  bool CompileOptions::*on;
};
constexpr Pass kPasses[] = {{"constants", &CompileOptions::constants},
                            {"common_calls", &CompileOptions::common_calls},
                            {"dead_code", &CompileOptions::dead_code},
                            {"fuse", &CompileOptions::fuse},
                            {"reuse", &CompileOptions::reuse}};

/// A workload in one of its forms, warm.
struct Made {
  Run run;
  CompileStats stats;
  double best = 1e300;  // ms per step

  Made(const Workload& w, const std::string& variant, const CompileOptions& options) {
    manual_seed(0);
    bench_compile = options, bench_program = {};
    run = w.make(variant);
    run(std::max<int64_t>(w.warm_steps, 5));
    if (bench_program.stats && !bench_program.stats().empty()) stats = bench_program.stats().back();
  }
  void time(int64_t steps) { best = std::min(best, run(steps)); }
  /// What a step allocates at most, scratch memory of kernels included, beside what lies outside of it.
  int64_t peak(int64_t results) {
    run(1);
    reset_peak_memory_stats();
    run(1);
    return memory_stats().max_allocated - memory_stats().allocated + stats.arena + results;
  }
};

double mib(int64_t bytes) { return double(bytes) / (1 << 20); }

void interleave(Made& a, Made& b, int repeats, double seconds) {
  const int64_t steps = std::max<int64_t>(1, int64_t(seconds * 1000 / a.run(1)));
  for (int i = 0; i < repeats; ++i) a.time(steps), b.time(steps);
}

void row(const std::string& name, const std::string& what, const Made& m, double ratio) {
  std::printf("| %s | %s | %.3f | %lld | %.1f | %.1f |\n", name.c_str(), what.c_str(), ratio,
              static_cast<long long>(m.stats.calls), mib(m.stats.arena), mib(m.stats.peak()));
  std::fflush(stdout);
}

}  // namespace

void compile_table(const std::vector<std::string>& names, int repeats, double seconds) {
  std::printf(
      "| workload | passes | step, by eager's | kernel calls | arena, MiB | arena and gradients, MiB |\n"
      "|---|---|---|---|---|---|\n");
  std::string memory;
  for (const std::string& word : names) {
    const std::string name = word.substr(0, word.find(':')),
                      variant = word == name ? "step" : word.substr(word.find(':') + 1);
    const std::string compiled = variant == "step" ? "compiled" : "compiled_" + variant;
    const auto w =
        std::find_if(workloads().begin(), workloads().end(), [&](const Workload& w) { return w.name == name; });
    check(w != workloads().end(), "[compile_table] expected a workload, got {}", name);
    const CompileOptions all;
    Made eager(*w, variant, all), full(*w, compiled, all);
    interleave(eager, full, repeats, seconds);
    std::printf("| %s | eager | 1 | %lld | | %.1f |\n", word.c_str(), static_cast<long long>(full.stats.recorded_calls),
                mib(full.stats.recorded_peak));
    row(word, "all", full, full.best / eager.best);
    for (const Pass& pass : kPasses) {
      CompileOptions options;
      options.*pass.on = false;
      Made without(*w, compiled, options);
      full.best = eager.best = 1e300;
      interleave(eager, without, repeats, seconds);
      row(word, std::string("without ") + pass.name, without, without.best / eager.best);
    }
    const int64_t before = eager.peak(full.stats.results), after = full.peak(full.stats.results);
    char line[256];
    std::snprintf(line, sizeof(line), "| %s | %.3f | %.1f | %.1f | %.2f |\n", word.c_str(), full.stats.seconds,
                  mib(before), mib(after), double(after) / double(before));
    memory += line;
  }
  std::printf("\n| workload | passes, s | peak eager, MiB | compiled, MiB | ratio |\n|---|---|---|---|---|\n%s",
              memory.c_str());
}
