#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;

TEST_CASE("an optimizer whose state is spread over ranks steps like one alone") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* ranks : {"1", "2", "3"}) {
    const Ended e = launch({"--nproc", ranks}, {worker(), "zero"});
    INFO(ranks << e.output);
    CHECK(e.status == 0);
  }
}
