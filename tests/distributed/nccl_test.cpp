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

TEST_CASE("a group with NCCL's stand-in on emulated devices") {
  const std::string plugin = build_folder() + "/libtapir_cuda_emulated.so";
  if (!use_stand_in() || access(plugin.c_str(), R_OK) != 0)
    SKIP_TEST("no libtapir_cuda_emulated.so in the build folder");
  setenv("TAPIR_CUDA_PLUGIN", plugin.c_str(), 0);
  for (const Ended& e : run_ranks("nccl_group", 2, 2)) {
    INFO(e.output);
    CHECK(e.status == 0);
  }
  for (const Ended& e : run_ranks("nccl_alone", 1, 1)) {
    INFO(e.output);
    CHECK(e.status == 0);
  }
  unsetenv("TAPIR_CUDA_PLUGIN");
}
