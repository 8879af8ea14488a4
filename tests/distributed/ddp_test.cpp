#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;

TEST_CASE("data-parallel training equals one process with the whole batch") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* scenario :
       {"ddp", "against_one", "ddp_errors", "overlap", "mixed", "metrics", "joined", "static_graph", "hooks"})
    for (const char* ranks : {"2", "3"}) {
      const Ended e = launch({"--nproc", ranks}, {worker(), scenario});
      INFO(scenario << ranks << e.output);
      CHECK(e.status == 0);
    }
}

TEST_CASE("compiled steps and forwards reduce as eager ones do") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* scenario :
       {"compiled_steps", "compiled_forwards", "compiled_accumulation", "compiled_collectives", "compiled_shards"}) {
    const Ended e = launch({"--nproc", "2"}, {worker(), scenario});
    INFO(scenario << e.output);
    CHECK(e.status == 0);
  }
}

TEST_CASE("review 14: ranks with synchronised batch norms train a ResNet as one process does") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* ranks : {"2", "3"}) {
    const Ended e = launch({"--nproc", ranks}, {worker(), "resnet"});
    INFO(ranks << e.output);
    CHECK(e.status == 0);
  }
}
