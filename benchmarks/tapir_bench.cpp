// tapir_bench NAME [--threads N] [--device D] [--repeats R] [--seconds S]: one JSON line per variant; mlp and cnn have one in anomaly mode.
// tapir_bench compile_table NAME...: compile() and its passes one by one, as Markdown; compile_memory: without the passes.
// tapir_bench profile NAME VARIANT: where three steps spend their time, by operation and shape, on a GPU also of the device.
// tapir_bench [--threads N] [--device D]: a server for bench.py. A line `run WORKLOAD VARIANT STEPS` is answered with the milliseconds per step,
// `compile` with the milliseconds that passes over the program took, `work WORKLOAD VARIANT` with what a step does, `count WORKLOAD VARIANT` with
// the flops and bytes of one (Note [Work] in core/work.h), `scaling WORKLOAD VARIANT` with what its loops gain by
// threads: after --simulated, Note [Simulated threads] in core/simulation.h.
// tapir_bench device [--device D]: what the device is; status 1 and why not where it is not available. TAPIR_LIBRARY_REPORT=1: at the end,
// what the libraries of the device did.
#include <tapir/core/recording.h>
#include <tapir/tapir.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>

#include "workloads.h"

static const Workload& find(const std::string& name) {
  for (const Workload& w : workloads())
    if (w.name == name) return w;
  std::fprintf(stderr, "tapir_bench: there is no workload '%s'\n", name.c_str());
  std::exit(2);
}

static Run make_warm(const Workload& workload, const std::string& variant) {
  Run run = workload.make(variant);
  run(workload.warm_steps);
  return run;
}

static void print_all(const Workload& workload, int threads, int repeats, double seconds) {
  for (const std::string& variant : workload.variants) {
    Run run = make_warm(workload, variant);
    const int64_t steps = std::max<int64_t>(1, int64_t(seconds * 1000 / run(2)));
    std::vector<double> ms;
    for (int i = 0; i < repeats; ++i) ms.push_back(run(steps));
    std::sort(ms.begin(), ms.end());
    std::printf(R"({"workload": "%s", "variant": "%s", "threads": %d, "min_ms": %.6g, "median_ms": %.6g})"
                "\n",
                workload.name.c_str(), variant.c_str(), threads, ms.front(), ms[ms.size() / 2]);
    std::fflush(stdout);
  }
}

static int print_device(const std::string& name) {
  const bool on_cuda = name.starts_with("cuda");
  if (on_cuda && !tapir::cuda::is_available())
    return std::printf("%s%s is not available: %s\n", tapir::cuda::library_report().c_str(), name.c_str(),
                       tapir::cuda::why_not().c_str()),
           1;
  if (!on_cuda)
    return std::printf("%s, %s, %d threads\n", name.c_str(), tapir::backends::cpu::get_cpu_capability().c_str(),
                       tapir::get_num_threads()),
           0;
  const auto p = tapir::cuda::get_device_properties();
  std::printf("%s, compute capability %d.%d, %.1f GiB, %d multiprocessors, L2 %.1f MiB\n", p.name.c_str(), p.major,
              p.minor, double(p.total_memory) / double(1 << 30), p.multi_processor_count,
              double(p.l2_cache_size) / double(1 << 20));
  std::printf("CUDA driver %d.%d, runtime %d.%d, %d devices\n", p.driver_version / 1000, p.driver_version % 1000 / 10,
              p.runtime_version / 1000, p.runtime_version % 1000 / 10, tapir::cuda::device_count());
  std::printf("%s", tapir::cuda::library_report().c_str());
  try {  // it answers, but does it compute?
    tapir::check_runtime(tapir::ones({4}, {.device = name}).sum().item<float>() == 4, "a sum of four ones is not four");
  } catch (const std::exception& e) {
    return std::printf("%s is not available: %s\n", name.c_str(), e.what()), 1;
  }
  return 0;
}

static void print_profile(const std::string& name, const std::string& variant) {
  Run run = make_warm(find(name), variant);
  run(3);
  tapir::profiler::Profile profile({.record_shapes = true});
  const double ms = run(3);
  profile.stop();
  const char* by = bench_device.is_cuda() ? "self_cuda_time_total" : "self_cpu_time_total";
  std::printf("%s %s, 3 steps of %.3f ms\n%s", name.c_str(), variant.c_str(), ms,
              profile.table({.sort_by = by, .row_limit = 40, .group_by_input_shape = true}).c_str());
  std::printf("%s", profile.table({.sort_by = by, .row_limit = 25}).c_str());
}

static void print_library_report() {
  const char* wanted = std::getenv("TAPIR_LIBRARY_REPORT");
  if (!bench_device.is_cuda() || !wanted || std::string(wanted) != "1") return;
  std::fprintf(stderr, "%s%s\n", tapir::cuda::library_report().c_str(), tapir::cuda::memory_summary().c_str());
}

/// What the kernels of the next step compute and move.
static tapir::entry::Work count_one(Run& run) {
  tapir::profiler::start_recording({.profile_memory = false, .nvtx = false});
  run(1);
  tapir::entry::Work sum;
  for (const auto& thread : tapir::profiler::stop_recording().threads)
    for (const auto& event : thread.events) sum.flops += event.work.flops, sum.bytes += event.work.bytes;
  return sum;
}
/// Of a step that is none of compile()'s checks, which run as they are: of two in a row one at most is checked.
static tapir::entry::Work count(Run& run) {
  const tapir::entry::Work one = count_one(run), other = count_one(run);
  return one.bytes < other.bytes ? one : other;
}

/// Of a step with simulated threads, as JSON: the milliseconds of all, and by kernel those that it took, those that its threads save, its
/// loops.
static void print_scaling(Run& run) {
  struct Kernel {
    double ms = 0, saved = 0, loops = 0;
  };
  tapir::profiler::start_recording({.profile_memory = false, .nvtx = false});
  const double ms = run(1);
  std::map<std::string, Kernel> kernels;
  for (const auto& thread : tapir::profiler::stop_recording().threads)
    for (const auto& e : thread.events) {
      if (e.kind != tapir::profiler::Kind::Kernel) continue;
      Kernel& k = kernels[tapir::profiler::shown_name(e)];
      k.ms += double(e.end - e.begin) / 1e6, k.saved += double(e.simulation.saved) / 1e6;
      k.loops += e.simulation.loops;
    }
  std::printf("{\"ms\": %.6g, \"kernels\": {", ms);
  const char* comma = "";
  for (const auto& [name, k] : kernels) {
    std::printf("%s\"%s\": [%.6g, %.6g, %.6g]", comma, name.c_str(), k.ms, k.saved, k.loops);
    comma = ", ";
  }
  std::printf("}}\n");
}

static void serve() {
  std::string line, current;
  Run run;  // only the last one is kept: they are large
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string verb, name, variant;
    int64_t steps = 1;
    words >> verb >> name >> variant >> steps;
    if (verb == "compile") {
      const auto stats = bench_program.stats ? bench_program.stats() : std::vector<tapir::CompileStats>();
      std::printf("%.9g\n", stats.empty() ? 0 : stats.back().seconds * 1000);
      std::fflush(stdout);
      continue;
    }
    if (verb == "work") {
      std::printf("%s\n", work_of(name, variant).c_str());
      std::fflush(stdout);
      continue;
    }
    if (name + variant != current) {
      run = nullptr, bench_program = {};
      run = make_warm(find(name), variant);
      current = name + variant;
    }
    if (verb == "count") {
      const tapir::entry::Work step = count(run);
      std::printf("%.0f %.0f\n", step.flops, step.bytes);
      std::fflush(stdout);
      continue;
    }
    if (verb == "scaling") {
      print_scaling(run);
      std::fflush(stdout);
      continue;
    }
    if (steps > 1) run(1);  // threads wake, caches fill
    std::printf("%.9g\n", run(steps));
    std::fflush(stdout);
  }
}

int main(int argc, char** argv) {
  std::string name, device = "cpu";
  std::vector<std::string> more;
  int threads = 0, repeats = 7;
  double seconds = 0.4;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "0";
    if (word == "--threads") threads = std::atoi(value), ++i;
    else if (word == "--simulated") tapir::detail::simulated = true;
    else if (word == "--deterministic") tapir::use_deterministic_algorithms(true);
    else if (word == "--device") device = value, ++i;
    else if (word == "--repeats") repeats = std::max(1, std::atoi(value)), ++i;
    else if (word == "--seconds") seconds = std::atof(value), ++i;
    else if (name.empty()) name = word;
    else more.push_back(word);
  }
  try {
    if (name == "device") return print_device(device);
    bench_device = tapir::Device(device);
    if (threads > 0) tapir::set_num_threads(threads);
    tapir::manual_seed(0);
    if (name.empty()) serve();
    else if (name == "compile_table" || name == "compile_memory")
      compile_table(more, repeats, seconds, name == "compile_table");
    else if (name == "profile") {
      tapir::check(more.size() == 2, "[profile] expected a workload and a variant, got {} words", more.size());
      print_profile(more[0], more[1]);
    } else print_all(find(name), tapir::get_num_threads(), repeats, seconds);
    print_library_report();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tapir_bench: %s\n", e.what());
    return 1;
  }
}
