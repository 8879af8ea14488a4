#pragma once
// What the scenarios of distributed_worker share.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <tapir/distributed/process_group.h>
#include <tapir/tapir.h>

namespace worker {
using namespace tapir;
using distributed::ProcessGroup, distributed::Work;
using Op = distributed::ReduceOp;

#define EXPECT(...) check(bool(__VA_ARGS__), "expected {} (line {})", #__VA_ARGS__, __LINE__)

struct Scenario {
  const char* name;
  void (*run)();
};
std::vector<Scenario> fault_scenarios();
std::vector<Scenario> training_scenarios();
std::vector<Scenario> sharding_scenarios();
std::vector<Scenario> compiled_scenarios();
std::vector<Scenario> elastic_scenarios();
std::vector<Scenario> nccl_scenarios();
std::vector<Scenario> nccl_mistakes();
std::vector<Scenario> nccl_async_scenarios();

inline distributed::ProcessGroupOptions options{.timeout = 20, .init_timeout = 20};

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
template <class E, class F> std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    std::printf("caught: %s\n", e.what());
    return e.what();
  }
  return {};
}
inline int my_rank() { return std::atoi(std::getenv("RANK")); }
inline bool second() { return my_rank() == 1; }
inline int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

}  // namespace worker
