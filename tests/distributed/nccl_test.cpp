#include <optional>

#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;

/// Makes the stand-in for NCCL what this process and its children load; false where it was not built.
static bool use_stand_in() {
  const std::string path = build_folder() + "/tests/libnccl_stand_in.so";
  setenv("TAPIR_NCCL_LIBRARY", path.c_str(), 1);
  return can_run_jobs() && access(path.c_str(), R_OK) == 0;
}

TEST_CASE("NCCL's calls, and what becomes of their errors, with a library that stands in for it") {
  if (!use_stand_in()) SKIP_TEST("no tapir-run, distributed_worker or libnccl_stand_in.so beside this program");
  for (const int ranks : {2, 3})
    for (const Ended& e : run_ranks("nccl_calls", ranks, ranks)) {
      INFO(ranks << e.output);
      CHECK(e.status == 0);
    }
  for (const char* scenario : {"nccl_init_hang", "nccl_init_error", "nccl_hang", "nccl_remote_error", "nccl_cuda_error",
                               "nccl_invalid_argument", "nccl_killed", "nccl_refused", "nccl_missing"}) {
    const auto ended = run_ranks(scenario, 3, 3);
    for (size_t r = 0; r < ended.size(); ++r) {
      INFO(scenario << " " << ended[r].output);
      CHECK(ended[r].status == (r == 1 && std::string(scenario) == "nccl_killed" ? 137 : 0));
    }
  }
}

TEST_CASE("NCCL: what ranks do differently is told to all of them, and misuse by name") {
  if (!use_stand_in()) SKIP_TEST("no tapir-run, distributed_worker or libnccl_stand_in.so beside this program");
  for (const char* scenario : {"nccl_order", "nccl_rows", "nccl_misuse"})
    for (const Ended& e : run_ranks(scenario, scenario == std::string("nccl_misuse") ? 1 : 2, 2)) {
      INFO(scenario << " " << e.output);
      CHECK(e.status == 0);
    }
}

namespace {

/// The emulated plugin and a driver's stand-in for the jobs of this scope; `there` is false where they were not built.
struct EmulatedDevices {
  const std::string plugin = build_folder() + "/libtapir_cuda_emulated.so",
                    driver = build_folder() + "/tests/driver_stand_in";
  const bool there = use_stand_in() && access(plugin.c_str(), R_OK) == 0;
  EmulatedDevices() {
    for (const char* name : {"TAPIR_CUDA_PLUGIN", "TAPIR_CUDA_ALLOCATOR", "LD_LIBRARY_PATH"})
      before.emplace_back(name, now(name));
    setenv("TAPIR_CUDA_PLUGIN", plugin.c_str(), 1);
    setenv("TAPIR_CUDA_ALLOCATOR", "direct", 1);  // every tensor's memory for itself
    const char* const others = std::getenv("LD_LIBRARY_PATH");
    setenv("LD_LIBRARY_PATH", (others ? driver + ":" + others : driver).c_str(), 1);
  }
  ~EmulatedDevices() {
    for (const auto& [name, value] : before)
      if (value) setenv(name, value->c_str(), 1);
      else unsetenv(name);
  }
  EmulatedDevices(const EmulatedDevices&) = delete;

 private:
  static std::optional<std::string> now(const char* name) {
    const char* text = std::getenv(name);
    return text ? std::optional<std::string>(text) : std::nullopt;
  }
  std::vector<std::pair<const char*, std::optional<std::string>>> before;
};

}  // namespace

TEST_CASE("a group with NCCL's stand-in on emulated devices") {
  const EmulatedDevices devices;
  if (!devices.there) SKIP_TEST("no libtapir_cuda_emulated.so in the build folder");
  for (const char* scenario : {"nccl_group", "nccl_devices"})
    for (const Ended& e : run_ranks(scenario, 2, 2)) {
      INFO(scenario << " " << e.output);
      CHECK(e.status == 0);
    }
  for (const Ended& e : run_ranks("nccl_alone", 1, 1)) {
    INFO(e.output);
    CHECK(e.status == 0);
  }
  unsetenv("LD_LIBRARY_PATH");  // nobody chooses the thread's device: rank 1 has a communicator of device 0
  const auto lost = run_ranks("nccl_group", 2, 2);
  INFO(lost[1].output);
  CHECK(lost[1].status == 1);
  CHECK(lost[1].output.find("expected a stream of device 0, got one of device 1") != std::string::npos);
}

TEST_CASE("NCCL: the host goes on, streams wait, and a thread watches over what is on its way") {
  const EmulatedDevices devices;
  if (!devices.there) SKIP_TEST("no libtapir_cuda_emulated.so in the build folder");
  for (const char* scenario : {"nccl_overlap", "nccl_streams", "nccl_buffers", "nccl_batch_norm", "nccl_compared",
                               "nccl_late", "nccl_aborted"})
    for (const Ended& e : run_ranks(scenario, 2, 2)) {
      INFO(scenario << " " << e.output);
      CHECK(e.status == 0);
    }
  for (const char* scenario : {"nccl_lost", "nccl_graphs"}) {  // rank 1 ends itself
    const auto lost = run_ranks(scenario, 2, 2);
    INFO(scenario << " " << lost[0].output << lost[1].output);
    CHECK(lost[0].status == 0);
    CHECK(lost[1].status == 128 + SIGKILL);
  }
}

TEST_CASE("NCCL: memory that is freed before the host has waited for the call") {
  const EmulatedDevices devices;
  if (!devices.there) SKIP_TEST("no libtapir_cuda_emulated.so in the build folder");
  for (const char* scenario : {"nccl_freed_on_its_way", "nccl_freed_unwaited"}) {
    const Ended e = run_ranks(scenario, 1, 1)[0];
    INFO(scenario << " " << e.output);
    CHECK(e.status == 128 + SIGABRT);
    CHECK(e.output.find("[cudaFree] nccl all_reduce(sum) of 64 x float32 uses the allocation of 256 bytes") !=
          std::string::npos);
  }
}

TEST_CASE("NCCL: NVIDIA's library without a driver says so, and nothing hangs") {
  const char* path = "/usr/local/cuda/lib64/libnccl.so.2";
  if (access(path, R_OK) != 0 || !can_run_jobs()) SKIP_TEST("no libnccl.so.2 in /usr/local/cuda/lib64");
  if (access("/dev/nvidiactl", R_OK) == 0) SKIP_TEST("there is a driver");
  setenv("TAPIR_NCCL_LIBRARY", path, 1);
  const Ended e = run_ranks("nccl_real", 1, 1)[0];
  INFO(e.output);
  CHECK(e.status == 0);
}
