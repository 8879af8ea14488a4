#include <tapir/distributed/store.h>

#include <tapir/core/error.h>

#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;

TEST_CASE("tapir-run: ranks, prefixes, the first failure, restarts") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const Ended plain = launch({"--nproc", "3"}, {"/bin/sh", "-c", "echo $RANK of $WORLD_SIZE"});
  CHECK((plain.status == 0 && mentions(plain.output, {"[0] 0 of 3\n", "[1] 1 of 3\n", "[2] 2 of 3\n"})));
  const Ended failed =
      launch({"--nproc", "2"}, {"/bin/sh", "-c", "test $RANK = 0 && sleep 30; echo no such luck >&2; exit 3"});
  CHECK((failed.status == 3 && mentions(failed.output, {"rank 1 failed first, with status 3", "    no such luck"})));
  const TemporaryFolder folder;
  const Ended resumed = launch({"--nproc", "2", "--max-restarts", "5"}, {worker(), "resume"},
                               {"TAPIR_TEST_FILE=" + (folder / "state"), "TAPIR_TEST_KILLS=4"});
  INFO(resumed.output);
  CHECK((resumed.status == 0 && mentions(resumed.output, {"starting all ranks again (4 of 5)", "counted to the end"})));
  CHECK(launch({"--nproc", "0"}, {"/bin/true"}).status == 2);
  CHECK(launch({"--nproc", "1"}, {"/no/such/program"}).status == 127);
}
