#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Runs that many steps and returns the milliseconds that one took.
using Run = std::function<double(int64_t steps)>;

struct Workload {
  std::string name;
  std::vector<std::string> variants;
  Run (*make)(const std::string& variant);  // builds model and data; not yet warm
};

/// op_overhead, mlp, cnn, adamw, busy_neighbour. peer.py holds the same five for PyTorch.
const std::vector<Workload>& workloads();
