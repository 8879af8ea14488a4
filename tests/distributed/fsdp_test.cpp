#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;

TEST_CASE("fully sharded training equals one process") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* ranks : {"1", "2", "4"}) {
    const Ended e = launch({"--nproc", ranks}, {worker(), "fsdp"});
    INFO(ranks << e.output);
    CHECK(e.status == 0);
  }
  for (const char* ranks : {"1", "2"}) {
    const Ended e = launch({"--nproc", ranks}, {worker(), "fsdp_unused"});
    INFO(ranks << e.output);
    CHECK(e.status == 0);
  }
  const TemporaryFolder folder;
  const Ended e = launch({"--nproc", "2"}, {worker(), "fsdp_errors"}, {"TAPIR_TEST_FILE=" + (folder / "x")});
  INFO(e.output);
  CHECK(e.status == 0);
}

TEST_CASE("training in 8-bit floats by several ranks equals one process") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* ranks : {"1", "2"}) {
    const Ended e = launch({"--nproc", ranks}, {worker(), "float8"});
    INFO(ranks << e.output);
    CHECK(e.status == 0);
  }
}

TEST_CASE("float32 states of bfloat16 weights in a sharded checkpoint") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* ranks : {"1", "2"}) {
    const TemporaryFolder folder;
    const Ended e = launch({"--nproc", ranks}, {worker(), "fsdp_states"}, {"TAPIR_TEST_FILE=" + (folder / "x")});
    INFO(ranks << e.output);
    CHECK(e.status == 0);
  }
}

TEST_CASE("memory of a rank falls with their number") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* ranks : {"1", "2", "4"}) {
    const Ended e = launch({"--nproc", ranks}, {worker(), "fsdp_memory"});
    INFO(ranks << e.output);
    CHECK(e.status == 0);
  }
}

static std::string loss(const char* ranks, const std::string& folder, bool saves) {
  const Ended e = launch({"--nproc", ranks}, {worker(), "fsdp_checkpoint"},
                         {"TAPIR_TEST_FILE=" + folder, saves ? "TAPIR_TEST_SAVES=1" : "TAPIR_TEST_SAVES=0"});
  INFO(e.output);
  CHECK(e.status == 0);
  const size_t at = e.output.find("final loss");
  return at == std::string::npos ? "" : e.output.substr(at, 23);
}

TEST_CASE("a sharded checkpoint of 4 ranks goes on with 4, 2 and 1; one of 1 with 2") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const TemporaryFolder folder;
  const std::string wanted = loss("4", folder / "four", true);
  CHECK(wanted.size() > 18);
  for (const char* ranks : {"4", "2", "1"}) CHECK(loss(ranks, folder / "four", false) == wanted);
  CHECK(loss("1", folder / "one", true) == wanted);
  CHECK(loss("2", folder / "one", false) == wanted);
  CHECK(loss("2", folder / "four", true) == wanted);  // in the same folder: the older files go
  CHECK(loss("1", folder / "four", false) == wanted);
}

TEST_CASE("a sharded checkpoint is of one save, and of a model with these shapes") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* scenario : {"fsdp_failed_save", "fsdp_shapes"}) {
    const TemporaryFolder folder;
    const Ended e = launch({"--nproc", "2"}, {worker(), scenario}, {"TAPIR_TEST_FILE=" + (folder / "x")});
    INFO(scenario << "\n" << e.output);
    CHECK(e.status == 0);
  }
}
