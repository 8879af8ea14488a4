#include <tapir/distributed/process_group.h>

#include <tapir/ops/create.h>

#include "../catch.h"
#include "jobs.h"

using namespace tapir_tests;

static std::vector<std::string> backends() {
  std::vector<std::string> names{"tcp"};
  if (tapir::distributed::gloo_is_available()) names.push_back("gloo");
  else
    CHECK(mentions(message_of<tapir::RuntimeError>([] { tapir::distributed::init_process_group({.backend = "gloo"}); }),
                   {"libgloo-dev"}));
  return names;
}

static void all_well(const std::string& scenario, int ranks, const std::string& backend = "tcp") {
  INFO(scenario << " " << ranks << " " << backend);
  for (const Ended& e : run_ranks(scenario, ranks, ranks, backend)) {
    INFO(e.output);
    CHECK(e.status == 0);
  }
}

TEST_CASE("collectives of every kind, dtype and size; messages; groups of some") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends())
    for (const int ranks : {2, 3, 4}) all_well("collectives", ranks, backend);
}

TEST_CASE("BI-338 BI-339 ranks that do different things: an error on each") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends()) {
    all_well("wrong_shape", 2, backend);
    all_well("wrong_dtype", 2, backend);
    all_well("wrong_order", 3, backend);
    all_well("wrong_call", 2, backend);
    all_well("wrong_root", 2, backend);
  }
}

TEST_CASE("each rank says how the ranks differ before the job ends") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends())
    for (int i = 0; i < 3; ++i) {
      const Ended e = launch({"--nproc", "2"}, {worker(), "uncaught", backend});
      INFO(backend << "\n" << e.output);
      CHECK((e.status == 1 && mentions(e.output, {"[0] FAILED uncaught: [all_reduce]",
                                                  "[1] FAILED uncaught: [all_reduce]", "x float32", "x float64"})));
    }
}

TEST_CASE("BI-336 a rank is killed") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends()) {
    const auto ended = run_ranks("killed", 3, 3, backend);
    INFO(ended[0].output << ended[2].output);
    CHECK((ended[0].status == 0 && ended[1].status == 137 && ended[2].status == 0));
  }
}

TEST_CASE("BI-337 a rank is stopped") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends()) {
    const auto ended = run_ranks("stopped", 3, 3, backend, 1);
    INFO(ended[0].output << ended[2].output);
    CHECK((ended[0].status == 0 && ended[1].status == 137 && ended[2].status == 0));
  }
}

TEST_CASE("BI-334 a rank that never comes, one that comes late") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const Ended& e : run_ranks("absent", 2, 3)) {
    INFO(e.output);
    CHECK(e.status == 0);
  }
  all_well("late", 3);
  for (const auto& backend : backends()) all_well("too_late", 3, backend);
}

TEST_CASE("a link is cut in the middle of a collective") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends()) all_well("closed_link", 3, backend);
}

TEST_CASE("a disk that is full at the checkpoint") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  all_well("disk_full", 3);
}

TEST_CASE("BI-342 a rank with fewer batches") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  all_well("uneven", 3);
  all_well("uneven_and_gone", 3);
}

TEST_CASE("groups of one process after one another, at a store that stays") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  all_well("again", 2);
}

TEST_CASE("a group of more ranks than a tensor has dimensions") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  all_well("many", 18);
}

TEST_CASE("a process that was forked from a rank") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends()) all_well("forked", 2, backend);
  all_well("forked_elastic", 2);
}

TEST_CASE("a thousand silent strangers at a rank's door") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  all_well("strangers", 2);
}

TEST_CASE("ranks that disagree on their number") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const char* scenario : {"world_sizes", "world_sizes_apart"}) all_well(scenario, 2);
}

TEST_CASE("ranks that disagree on the backend, on debug or on the ranks of a group") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  all_well("disagree", 2);
}

TEST_CASE("timeouts: a rank that is late is no rank that is gone; as long as you like") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends())
    for (const char* scenario : {"late_to_collective", "for_ever"}) all_well(scenario, 2, backend);
}

TEST_CASE("messages: who asks whether one is there does not wait, errors name send and recv") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  for (const auto& backend : backends()) all_well("message_calls", 2, backend);
}

TEST_CASE("no thread for the messages of a collective") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  if (!tapir::distributed::gloo_is_available()) SKIP_TEST("built without gloo, which alone needs one");
  all_well("no_thread", 2, "gloo");
}

TEST_CASE("broadcast_state_dict: what src cannot send is an error on all ranks") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  all_well("line_break", 2);
}

TEST_CASE("an address that other machines reach needs a secret") {
  const std::string text = message_of<std::exception>([] {
    tapir::distributed::init_process_group(
        {.launch = {.rank = 0, .world_size = 2, .address = "0.0.0.0", .port = 29511}, .init_timeout = 1});
  });
  CHECK((mentions(text, {"TAPIR_STORE_SECRET"}) || mentions(text, {"libssl-dev"})));
}

TEST_CASE("a group of one needs nobody") {
  const auto group = tapir::distributed::init_process_group({.launch = {.rank = 0, .world_size = 1}});
  const tapir::Tensor x = tapir::ones({3});
  group.all_reduce(x, tapir::distributed::ReduceOp::Mean);
  group.barrier();
  CHECK(x.sum().item() == 3);
  CHECK(group.new_group({0}).size() == 1);
  tapir::distributed::destroy_process_group();
  CHECK_THROWS_AS(tapir::distributed::default_group(), tapir::ValueError);
}
