#include <tapir/distributed/elastic.h>

#include <cstdlib>
#include <random>

#include <tapir/distributed/plan.h>
#include <tapir/nn/linear.h>

#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;

namespace {

/// The training of worker/elastic.cpp under tapir-run with these options.
Ended train(const std::vector<std::string>& words, const std::string& faults, std::vector<std::string> more = {},
            const std::string& backend = "tcp") {
  const TemporaryFolder folder;
  more.push_back("TAPIR_TEST_FILE=" + (folder / "run")), more.push_back("TAPIR_TEST_FAULTS=" + faults);
  more.push_back("TAPIR_FLIGHT_DIR=" + (folder / "."));
  return launch(words, {worker(), "elastic", backend}, more);
}

/// "final loss ... weights ... of N ranks" of the one that printed it last.
std::string result(const Ended& e) {
  const size_t at = e.output.rfind("final loss");
  return at == std::string::npos ? "" : e.output.substr(at, e.output.find(',', at) - at);
}

const std::string& undisturbed() {
  static const std::string text = [] {
    const Ended e = train({"--nproc", "2", "--max-restarts", "1"}, "");
    INFO(e.output);
    CHECK((e.status == 0 && mentions(e.output, {"of 2 ranks, falls", "[0] left run", "[1] left run"})));
    CHECK(!mentions(e.output, {"restarts"}));
    return result(e);
  }();
  return text;
}

/// With those faults all ends as without. What it printed.
std::string same(const std::string& faults, int restarts, const std::vector<const char*>& said,
                 const std::vector<std::string>& more = {}, const std::string& backend = "tcp") {
  INFO(faults);
  CHECK(undisturbed().size() > 20);
  const Ended e = train({"--nproc", "2", "--max-restarts", std::to_string(restarts)}, faults, more, backend);
  INFO(e.output);
  CHECK(e.status == 0);
  CHECK(result(e) == undisturbed());
  for (const char* words : said) CHECK(mentions(e.output, {words}));
  return e.output;
}

/// A script of bash's; tapir-run is $RUN.
Ended run_script(const std::string& script) {
  const TemporaryFolder folder;
  return Process({"/bin/bash", "-c", script}, {"RUN=" + build_folder() + "/tapir-run"}, folder / "out").end(kHangs);
}

}  // namespace

TEST_CASE("elastic: a rank that dies is replaced, and the result is bitwise that of an undisturbed job") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  same("1 step 17 kill", 1, {"rank 1 is replaced", "[0] rank 0 of 2 from step 17", "[1] rank 1 of 2 from step 17"});
  same("0 step 17 kill", 1, {"rank 0 is replaced", "[1] rank 1 of 2 from step 17"});
  same("1 step 17 kill", 1, {"from step 15"}, {"TAPIR_TEST_EVERY=5"});  // committed every 5 steps
  same("1 step 0 kill", 1, {"rank 1 is replaced"});
  if (tapir::distributed::gloo_is_available()) same("1 step 17 kill", 1, {"rank 1 is replaced"}, {}, "gloo");
}

TEST_CASE("elastic: killed in a commit, in a recovery, before the first meeting, again and again") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  same("1 commit 20 kill", 1, {"rank 1 is replaced"});
  same("0 commit 20 kill", 1, {"rank 0 is replaced"});
  same("1 step 12 kill;2 restore 0 kill", 2, {"2 of 2 restarts"});  // the one that comes for it
  same("1 step 12 kill;2 begin 0 kill", 2, {"2 of 2 restarts"});
  same("0 step 12 kill;2 step 30 kill;3 step 44 kill", 3, {"3 of 3 restarts"});
  same("1 begin 0 kill", 1, {});
}

TEST_CASE("elastic: a survivor dies in the recovery") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const std::vector<std::string> three{"--nproc", "3", "--max-restarts", "2"};
  const Ended plain = train(three, ""), e = train(three, "1 step 12 kill;0 restore 1 kill");
  INFO(e.output);
  CHECK((plain.status == 0 && e.status == 0 && result(e) == result(plain) && result(e).size() > 20));
}

TEST_CASE("elastic: a rank dies when the training is over") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  same("1 last 0 kill", 1, {"rank 1 is replaced", "from step 60"});  // not on all yet
  same("0 end 0 kill", 1, {"[1] left run", "the training is over", "starting all ranks again (1 of 1)"});
  CHECK(train({"--nproc", "2", "--max-restarts", "1"}, "0 end 0 kill;2 end 0 kill").status == 137);
}

TEST_CASE("elastic: where nobody is left all begin at the last checkpoint") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  same("0 step 25 kill;1 step 25 kill", 1, {"starting all ranks again (1 of 1)", "rank 0 of 2 from step 20"});
}

TEST_CASE("elastic: a rank is left out, and the others go on") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const Ended e = train({"--nproc", "3", "--min-ranks", "2"}, "1 step 17 kill");
  INFO(e.output);
  CHECK((e.status == 0 && mentions(e.output, {"rank 1 is left out", "going on with 2 ranks", "of 2 ranks, falls"})));
  CHECK(mentions(e.output, {"[0] rank 0 of 2 from step 17", "[1] rank 1 of 2 from step 17"}));
  // The one restart replaces rank 1; then its replacement is left out.
  const Ended both =
      train({"--nproc", "2", "--max-restarts", "1", "--min-ranks", "1"}, "1 step 17 kill;2 step 30 kill");
  INFO(both.output);
  CHECK((both.status == 0 &&
         mentions(both.output, {"rank 1 is replaced", "rank 1 is left out", "rank 0 of 1 from step 30", "falls"})));
}

TEST_CASE("elastic: below --min-ranks the job ends with the status of the rank that failed") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const Ended e = train({"--nproc", "3", "--min-ranks", "2"}, "1 step 17 kill;2 step 30 throw");
  INFO(e.output);
  CHECK((e.status == 1 && mentions(e.output, {"rank 1 is left out", "rank 1 failed first, with status 1",
                                              "FAILED elastic: a mistake of the program"})));
  CHECK(!mentions(e.output, {"final loss"}));
  CHECK(train({"--nproc", "3", "--min-ranks", "2"}, "1 step 17 kill;2 step 17 kill").status == 137);
}

TEST_CASE("elastic: errors of the program leave run()") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  same("1 step 17 throw", 1, {"[1] FAILED elastic: a mistake of the program", "rank 1 is replaced"});
  same("1 step 17 exit", 1, {"rank 1 is replaced"});  // it ends within run(), whatever its status
  const Ended e = train({"--nproc", "2"}, "");        // tapir-run is to replace nobody
  CHECK((e.status == 0 && result(e) == undisturbed()));
  tapir::nn::Linear net(2, 2);
  tapir::distributed::Elastic alone(net);
  int64_t calls = 0;
  CHECK(message_of<std::logic_error>([&] {
          alone.run(
              [&](const tapir::distributed::ProcessGroup& g, int64_t step) {
                calls += g.size() * step;
                throw std::logic_error("mine");
              },
              7);
        }) == "mine");
  CHECK(calls == 7);
  CHECK(!tapir::distributed::is_initialized());
  CHECK(mentions(message_of<tapir::ValueError>([&] { alone.commit(-1); }), {"[Elastic] expected a step from 0 on"}));
}

TEST_CASE("elastic: a rank that hangs is ended and replaced after the timeout") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const std::string output =
      same("1 step 10 child;1 step 17 stop", 1, {"rank 1 did not come when the others met", "rank 1 is replaced"},
           {"TAPIR_TEST_TIMEOUT=4"});
  CHECK(children(output) == "1 started, 0 left");
}

TEST_CASE("elastic: what a rank has started ends with it") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  CHECK(children(same("1 step 10 child;1 step 17 kill", 1, {"rank 1 is replaced"})) == "1 started, 0 left");
  CHECK(children(same("0 step 10 child;0 step 17 throw", 1, {"rank 0 is replaced"})) == "1 started, 0 left");
  // Of programs that know nothing of it: rank 1 fails, rank 0 is ended, then both once more.
  const std::string script = "sleep 1000 > /dev/null 2>&1 & echo child $!; [ $RANK = 0 ] && wait; sleep 0.5; exit 3";
  const Ended e = launch({"--nproc", "2", "--max-restarts", "1"}, {"/bin/sh", "-c", script});
  INFO(e.output);
  CHECK((e.status == 3 && children(e.output) == "4 started, 0 left"));
  // A job that has ended well leaves what its program has left.
  const Ended well = launch({"--nproc", "1"}, {"/bin/sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo child $!"});
  REQUIRE((well.status == 0 && children(well.output) == "1 started, 1 left"));
  const int child = std::atoi(well.output.c_str() + well.output.find("child ") + 6);
  REQUIRE(child > 1);
  ::kill(child, SIGKILL);
  // Where the launcher was asked to end, it ends what is left, also of a rank that then ends well.
  const Ended asked = run_script(R"(
    $RUN --nproc 1 /bin/bash -c 'trap "exit 0" TERM; sleep 1000 > /dev/null 2>&1 & echo child $!; while true; do sleep 0.05; done' &
    sleep 1; kill -TERM $!; wait $!)");
  INFO(asked.output);
  CHECK((asked.status == 0 && children(asked.output) == "1 started, 0 left"));
}

TEST_CASE("tapir-run: a rank that cannot be started ends the job, and nobody else") {
#ifdef __SANITIZE_ADDRESS__
  SKIP_TEST("the address sanitizer needs more descriptors");
#endif
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const std::string alone =
      "exec unshare -Urpf --mount-proc /bin/bash -c ";  // a namespace, whose processes a kill of all of them would meet
  if (run_script(alone + "true").status != 0) SKIP_TEST("no namespace of processes is to be had here");
  const Ended e = run_script(alone + R"('sleep 1000 & other=$!
    (ulimit -n 12; $RUN --nproc 8 /bin/sh -c "sleep 3"); echo "status $?"; kill -0 $other && echo "the other one lives"')");
  INFO(e.output);
  CHECK((e.output.find("Too many open files") != std::string::npos && e.output.find("status 0") == std::string::npos));
  CHECK(e.output.find("the other one lives") != std::string::npos);
}

TEST_CASE("elastic: the launcher of a machine dies, or is held up: the others go on") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* fault : {"1 step 17 orphan", "1 step 17 halt"}) {
    const TemporaryFolder folder;
    const std::string other = folder / "other", port = std::to_string(20000 + getpid() % 20000);
    const std::string machine = build_folder() +
                                "/tapir-run --nnodes 2 --nproc 1 --min-ranks 1 --silence 3 --rdzv 127.0.0.1:" + port +
                                " --node-rank ",
                      program = " " + worker() + " elastic ";
    const std::string script = machine + "1" + program + "> " + other + " 2>&1 & second=$!\n" + machine + "0" +
                               program + "\ncode=$?; kill -CONT $second; wait $second; echo second $?; exit $code";
    const Ended e = Process({"/bin/bash", "-c", script},
                            {"TAPIR_TEST_FILE=" + (folder / "run"), std::string("TAPIR_TEST_FAULTS=") + fault,
                             "TAPIR_STORE_SECRET=0123456789abcdef", "OMP_NUM_THREADS=1", "TAPIR_TEST_PACE=120000"},
                            folder / "out")
                        .end(kHangs);
    INFO(fault << "\n" << e.output << "\n" << slurp(other));
    if (mentions(e.output, {"Tapir built with libcrypto"})) SKIP_TEST("built without libcrypto");
    CHECK((e.status == 0 &&
           mentions(e.output, {"machine 1 has said nothing for 3 s", "rank 1 is left out", "of 1 ranks, falls"})));
    const bool halted = std::string(fault).ends_with("halt");
    CHECK(mentions(e.output, {halted ? "second 2" : "second 137"}));
  }
}

TEST_CASE("elastic: kills at random moments end in the same weights") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const char* wanted = std::getenv("TAPIR_ELASTIC_TRIALS");
  const int trials = wanted ? std::atoi(wanted) : 2;
  const char* given = std::getenv("TAPIR_ELASTIC_SEED");
  const unsigned seed = given ? unsigned(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  const char* chosen = std::getenv("TAPIR_ELASTIC_BACKEND");
  const std::string backend = chosen ? chosen : "tcp";
  INFO("TAPIR_ELASTIC_SEED=" << seed << " TAPIR_ELASTIC_BACKEND=" << backend);
  std::mt19937 random(seed);
  int well = 0, kills = 0;
  for (int i = 0; i < trials; ++i) {
    const auto below = [&](int n) { return std::to_string(random() % unsigned(n)); };
    const std::string faults = below(2) + " time " + below(400) + " kill;2 time " + below(300) + " kill";
    const Ended e = train({"--nproc", "2", "--max-restarts", "2"}, faults, {"TAPIR_TEST_PACE=5000"}, backend);
    const bool same = e.status == 0 && result(e) == undisturbed();
    well += same, kills += mentions(e.output, {"(1 of 2"}) + mentions(e.output, {"(2 of 2"});
    INFO(faults << "\n" << e.output);
    CHECK(same);
  }
  if (wanted) std::printf("%d of %d trials, with %d kills, ended in the weights of no kill\n", well, trials, kills);
}

TEST_CASE("tapir-run: --min-ranks for a program that knows nothing of it") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const std::string script =
      "test $RANK.$TORCHELASTIC_RESTART_COUNT = 1.0 && exit 3; sleep 1; echo $RANK $LOCAL_RANK of $WORLD_SIZE";
  const Ended e = launch({"--nproc", "3", "--min-ranks", "2"}, {"/bin/sh", "-c", script});
  INFO(e.output);
  CHECK((e.status == 0 && mentions(e.output, {"rank 1 failed first, with status 3", "starting the other 2 ranks again",
                                              "[0] 0 0 of 2", "[1] 1 2 of 2"})));
  CHECK(launch({"--nproc", "2", "--min-ranks", "2"}, {"/bin/sh", "-c", script}).status == 3);
  CHECK(launch({"--nproc", "2", "--min-ranks", "3"}, {"/bin/true"}).status == 2);
}

TEST_CASE("plans survive the store, what is none is refused") {
  using namespace tapir::distributed;
  const Plan plan{
      .generation = 3, .status = -1, .first = 7, .goes_on = true, .finished = false, .members = {{1, 0, 1}, {9, 2, 0}}};
  const Plan back = plan_of(text_of(plan));
  CHECK((text_of(back) == text_of(plan) && back.rank_of(9) == 1 && back.rank_of(7) == -1 && back.goes_on));
  for (const char* text : {"", "1 -1 -1 0 0 2\n1 0 0\n", "x", "1 -1 -1 7 0 0"})
    CHECK(mentions(message_of<tapir::RuntimeError>([&] { plan_of(text); }), {"expected a plan"}));
}

TEST_CASE("a peer's end is a PeerError, on the first call and on later ones") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* name : {"peer_error", "peer_late"}) {
    const auto ended = run_ranks(name, 2, 2);
    INFO(ended[0].output);
    CHECK(ended[0].status == 0);
  }
}
