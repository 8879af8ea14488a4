// Several tapir-runs of one job, each a machine of its own, that are slow, late or gone.
#include <chrono>
#include <thread>

#include <tapir/distributed/door.h>
#include <tapir/distributed/plan.h>

#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;
using namespace tapir::distributed;

namespace {

constexpr const char* kSecret = "0123456789abcdef";

/// A port that nobody listens at now.
std::string free_port() { return std::to_string(StoreServer("127.0.0.1", 0).port()); }

/// Two machines with a rank each. The program finds the folder of the job in $FOLDER; it says `first STATUS, second STATUS` in the end.
struct TwoMachines {
  TemporaryFolder folder;
  Process script;
  TwoMachines(const std::string& options, const std::string& program)
      : script({"/bin/bash", "-c",
                "machine() { exec " + build_folder() + "/tapir-run --nnodes 2 --nproc 1 --rdzv 127.0.0.1:" +
                    free_port() + " " + options + " --node-rank $1 /bin/bash -c \"$PROGRAM\"; }\n" +
                    "machine 1 > $FOLDER/second 2>&1 & second=$!\n"
                    "machine 0 & wait $!; first=$?\n"
                    "wait $second; echo first $first, second $?; cat $FOLDER/second"},
               {"PROGRAM=" + program, "FOLDER=" + folder.path, std::string("TAPIR_STORE_SECRET=") + kSecret},
               folder / "out") {}
};

}  // namespace

TEST_CASE("tapir-run: a machine whose ranks take their grace is waited for, and is not lost") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  if (!has_libcrypto()) SKIP_TEST("built without libcrypto");
  // Rank 0 fails once rank 1 is ready for its SIGTERM, after which it does not end by itself.
  const auto fails_after = [](const std::string& at_term) {
    return "if [ $RANK = 0 ]; then echo $PPID > $FOLDER/launcher\n"
           "until [ -e $FOLDER/ready ]; do sleep 0.05; done; exit 3; fi\n"
           "trap '" +
           at_term + "' TERM; touch $FOLDER/ready; while :; do sleep 0.1; done";
  };
  TwoMachines slow("--silence 1 --grace 4",
                   fails_after("sleep 2.5; (exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT) && echo the store is there")),
      alone("--grace 1", fails_after("kill -KILL $(cat $FOLDER/launcher)")),
      again("--max-restarts 1 --silence 3 --grace 5",
            "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0\n" + fails_after("echo it takes its time"));
  const Ended s = slow.script.end(kHangs), a = alone.script.end(kHangs), g = again.script.end(kHangs);
  INFO(s.output << "\n" << a.output << "\n" << g.output);
  CHECK(mentions(s.output, {"first 3, second 3", "the store is there"}));
  CHECK(mentions(a.output, {"first 137, second 3"}));  // the first machine dies meanwhile
  CHECK((mentions(g.output, {"first 0, second 0", "it takes its time"}) && !mentions(g.output, {"is lost"})));
}

TEST_CASE("tapir-run: without its first machine a job ends, with all that its ranks have started") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  if (!has_libcrypto()) SKIP_TEST("built without libcrypto");
  TwoMachines job(
      "--max-restarts 1 --silence 2",
      "if [ $RANK = 0 ]; then until [ -e $FOLDER/ready ]; do sleep 0.05; done; kill -KILL $PPID; exec sleep 60; fi\n"
      "sleep 1000 > /dev/null 2>&1 & echo child $!; touch $FOLDER/ready; wait");
  const Ended e = job.script.end(kHangs);
  INFO(e.output);
  CHECK((mentions(e.output, {"first 137, second 2"}) && children(e.output) == "1 started, 0 left"));
}

TEST_CASE("tapir-run: what comes late is heard, but of a group that is gone no more") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  if (!has_libcrypto()) SKIP_TEST("built without libcrypto");
  for (const bool elastic : {false, true}) {
    // The first machine is tapir-run with one rank. The second one, and what rank 0 tells as an elastic program, is told here.
    const TemporaryFolder folder;
    const std::string port = free_port();
    Process first(
        {build_folder() + "/tapir-run", "--nnodes", "2", "--nproc", "1", "--max-restarts", "1", "--rdzv",
         "127.0.0.1:" + port, "--node-rank", "0", "/bin/sh", "-c", "until [ -e $FOLDER/go ]; do sleep 0.05; done"},
        {"FOLDER=" + folder.path, std::string("TAPIR_STORE_SECRET=") + kSecret}, folder / "out");
    Store store("127.0.0.1", std::stoi(port), {.secret = kSecret, .timeout = 20});
    const auto begin_to_tell = [&] { return "told/" + std::to_string(store.add("told", 1)); };
    CHECK(newest_plan(store, 0, 20).members.size() == 2);
    if (elastic) tell(store, "elastic 0"), tell(store, "elastic 1");
    const std::string late = begin_to_tell(), never = begin_to_tell(), later = begin_to_tell(), last = begin_to_tell();
    if (elastic) tell(store, "ready 0 0 20");
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    CHECK(!store.has(plan_key(1)));  // nothing is known of rank 1 yet
    store.set(late, "ended 1 9");
    const Plan plan = newest_plan(store, 1, 10);
    INFO(text_of(plan) << slurp(folder / "out"));
    REQUIRE((plan.generation == 1 && plan.goes_on == elastic && plan.members.size() == 2));
    const auto zero = std::to_string(plan.members[0].id), one = std::to_string(plan.members[1].id);
    CHECK((zero == (elastic ? "0" : "2") && one == (elastic ? "2" : "3")));
    store.set(later, "ended 1 9"), store.set(last, "ready 0 0 0");  // of the generation before
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    CHECK(!store.has(plan_key(2)));
    if (elastic) tell(store, "done " + zero + " 1"), tell(store, "done " + one + " 1");
    tell(store, "ended " + one + " 0");
    spit(folder / "go", "");
    const std::string end = store.get(plan_key(2), 10);
    REQUIRE(plan_of(end).status == 0);
    store.add("byes", 1);
    CHECK(first.end(kHangs).status == 0);
  }
}

TEST_CASE("tapir-run: machines that were started with different options end with an error on all") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  if (!has_libcrypto()) SKIP_TEST("built without libcrypto");
  const std::pair<const char*, const char*> cases[] = {
      {"--nproc 3", "expected --nproc 1, as on the first machine, got 3"},
      {"--nnodes 3", "expected --nnodes 2, as on the first machine, got 3"},
      {"--max-restarts 1", "expected --max-restarts 0, as on the first machine, got 1"},
      {"--min-ranks 1", "expected --min-ranks 2, as on the first machine, got 1"},
      {"--silence 7", "expected --silence 20, as on the first machine, got 7"}};
  for (const auto& [options, error] : cases) {
    TwoMachines job("$([ $1 = 1 ] && echo " + std::string(options) + ")", "exec sleep 10");
    const Ended e = job.script.end(kHangs);
    INFO(e.output);
    CHECK(mentions(e.output, {"first 2, second 2", "tapir-run: machine 1: ", "tapir-run: [tapir-run] ", error}));
  }
}

TEST_CASE("tapir-run: a machine that comes to another's place is refused, and the job goes on") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  if (!has_libcrypto()) SKIP_TEST("built without libcrypto");
  const TemporaryFolder folder;
  TwoMachines job("--max-restarts 1",
                  "[ $RANK = 1 ] && echo $MASTER_PORT > $FOLDER/port; until [ -e $FOLDER/go ]; do sleep 0.05; done");
  const std::string place = job.folder / "port";
  for (int i = 0; i < 1000 && slurp(place).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // Machine 1 has ranks, so it has said that it is there.
  const Ended stray =
      Process({build_folder() + "/tapir-run", "--nnodes", "2", "--nproc", "2", "--rdzv",
               "127.0.0.1:" + std::to_string(std::atoi(slurp(place).c_str())), "--node-rank", "1", "/bin/true"},
              {std::string("TAPIR_STORE_SECRET=") + kSecret}, folder / "out")
          .end(20);
  spit(job.folder / "go", "");
  const Ended e = job.script.end(kHangs);
  INFO(stray.output << "\n" << e.output);
  CHECK((stray.status == 2 && mentions(stray.output, {"expected --nproc 1, as on the first machine, got 2"})));
  CHECK(mentions(e.output, {"first 0, second 0"}));
}
