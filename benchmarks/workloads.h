#pragma once
#include <tapir/core/device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Where everything runs.
extern tapir::Device bench_device;
/// Waits for it: before a clock is read.
void wait_for_bench_device();

/// Runs that many steps and returns the milliseconds that one took.
using Run = std::function<double(int64_t steps)>;

struct Workload {
  std::string name;
  std::vector<std::string> variants;
  Run (*make)(const std::string& variant);  // builds model and data; not yet warm
  int64_t warm_steps = 20;
};

/// op_overhead, mlp, cnn, lstm, adamw, busy_neighbour and ops. peer.py holds the same for PyTorch.
const std::vector<Workload>& workloads();

/// One operation: "NAME|INPUTS|PASS".
Run op(const std::string& variant);
