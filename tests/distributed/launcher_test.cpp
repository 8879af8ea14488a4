#include <pty.h>

#include <tapir/distributed/door.h>

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
  CHECK(launch({"--nproc", "0"}, {"/bin/true"}).status == 2);
  CHECK(launch({"--nproc", "1000000"}, {"/bin/true"}).status == 2);
  CHECK(launch({"--nproc", "1"}, {"/no/such/program"}).status == 127);
  const std::vector<std::string> secrets{"/bin/sh", "-c", "echo ${#TAPIR_STORE_SECRET}"};
  if (tapir::distributed::has_libcrypto()) CHECK(mentions(launch({"--nproc", "1"}, secrets).output, {"[0] 32\n"}));
  const Ended open = launch({"--nproc", "1", "--nnodes", "2", "--rdzv", "0.0.0.0:29400"}, {"/bin/true"});
  CHECK((open.status == 2 &&
         mentions(open.output, {tapir::distributed::has_libcrypto() ? "TAPIR_STORE_SECRET" : "libssl-dev"})));
}

TEST_CASE("tapir-run: signals end it while it waits for the first machine") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  if (!tapir::distributed::has_libcrypto()) SKIP_TEST("built without libcrypto");
  const TemporaryFolder folder;
  const std::string port = std::to_string(tapir::distributed::StoreServer("127.0.0.1", 0).port());
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    const Ended e = Process({"/usr/bin/env", "timeout", "--preserve-status", "-s", std::to_string(number), "-k", "5",
                             "0.5", build_folder() + "/tapir-run", "--nproc", "1", "--nnodes", "2", "--node-rank", "1",
                             "--rdzv", "127.0.0.1:" + port, "/bin/true"},
                            {"TAPIR_STORE_SECRET=0123456789abcdef"}, folder / "out")
                        .end(20);
    INFO(e.output);
    CHECK(e.status == 128 + number);
  }
}

TEST_CASE("tapir-run: a signal ends ranks that are stopped, and a terminal stops none that reads") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const TemporaryFolder folder;
  const std::string script =
      "$RUN --nproc 2 /bin/sh -c 'touch $FOLDER/$RANK; kill -STOP $$; sleep 100' & "
      "until [ -e $FOLDER/0 ] && [ -e $FOLDER/1 ]; do sleep 0.05; done; sleep 0.2; kill -TERM $!; wait $!; echo status "
      "$?";
  const Ended stopped = Process({"/bin/bash", "-c", script},
                                {"RUN=" + build_folder() + "/tapir-run", "FOLDER=" + folder.path}, folder / "out")
                            .end(20);
  INFO(stopped.output);
  CHECK(mentions(stopped.output, {"status 143", "failed first, by signal 15"}));
  int terminal = -1;
  const std::string run = build_folder() + "/tapir-run";
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    alarm(20);
    execl(run.c_str(), run.c_str(), "--nproc", "1", "/bin/sh", "-c", "read x; echo read $?", nullptr);
    _exit(9);
  }
  REQUIRE(child > 0);
  std::string output;
  char buffer[256];
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;) output.append(buffer, size_t(n));
  int status = -1;
  waitpid(child, &status, 0);
  close(terminal);
  INFO(output);
  CHECK((status == 0 && mentions(output, {"[0] read 1"})));
}

TEST_CASE("tapir-run: without standard input, output or errors it is as with /dev/null") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const TemporaryFolder folder;
  const std::string script = "ls -l /proc/$PPID/fd > $FOLDER/open; echo out; echo err >&2";
  const Ended e = Process({"/bin/bash", "-c", "$RUN --nproc 1 /bin/sh -c '" + script + "' <&- >&- 2>&-"},
                          {"RUN=" + build_folder() + "/tapir-run", "FOLDER=" + folder.path}, folder / "out")
                      .end(20);
  const std::string open = slurp(folder / "open");
  INFO(e.output << open);
  CHECK((e.status == 0 && mentions(open, {" 0 -> /dev/null", " 1 -> /dev/null", " 2 -> /dev/null"})));
}

TEST_CASE(
    "tapir-run: the secret that it makes is another one each time, and on no command line; a job within a job is its "
    "own") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const std::string run = build_folder() + "/tapir-run";
  if (tapir::distributed::has_libcrypto()) {
    const std::vector<std::string> script{
        "/bin/sh", "-c",
        "echo $TAPIR_STORE_SECRET; tr '\\0' ' ' < /proc/$PPID/cmdline; tr '\\0' ' ' < /proc/$$/cmdline"};
    const Ended first = launch({"--nproc", "1"}, script), second = launch({"--nproc", "1"}, script);
    INFO(first.output << second.output);
    const std::string secret = first.output.substr(4, 32);
    REQUIRE((first.output.starts_with("[0] ") && secret.find_first_not_of("0123456789abcdef") == std::string::npos));
    CHECK(second.output.find(secret) == std::string::npos);
    CHECK((mentions(first.output, {"tapir-run --nproc 1"}) && first.output.rfind(secret) == 4));
  }
  const Ended inner =
      launch({"--nproc", "1", "--max-restarts", "1"},
             {"/bin/sh", "-c",
              "echo outer $TAPIR_ELASTIC; exec " + run + " --nproc 1 /bin/sh -c 'echo inner $TAPIR_ELASTIC.'"});
  INFO(inner.output);
  CHECK(mentions(inner.output, {"outer 0 0 20\n", "inner .\n"}));
}

TEST_CASE("tapir-run: lines with any bytes, and of any length") {
  using namespace std::string_literals;
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const Ended nul = launch(
      {"--nproc", "1"}, {"/bin/sh", "-c", "printf 'before\\000behind\\nnext\\n\\nlast'; printf 'x\\000y' >&2; exit 3"});
  // A line without an end comes when the pipe closes: the other pipe's may come before it.
  for (const std::string& lines :
       {"[0] before\0behind\n[0] next\n[0] \n"s, "[0] last\n"s, "[0] x\0y\n"s, "    x\0y\n"s})
    CHECK(nul.output.find(lines) != std::string::npos);
  // 3 MB without an end of a line.
  const Ended endless = launch({"--nproc", "1"}, {"/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"});
  size_t longest = 0, count = 0;
  for (size_t begin = 0, end; (end = endless.output.find('\n', begin)) != std::string::npos; begin = end + 1)
    longest = std::max(longest, end - begin), count += end - begin - 4;
  CHECK((endless.status == 0 && count == 3000000 && longest <= 4 + 65536 + 4096));
}

TEST_CASE("tapir-run: where its output can be written no more the ranks go on") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const TemporaryFolder folder;
  const std::string program =
      "head -c 50000 /dev/zero | tr '\\0' '\\n'; grep SigIgn /proc/$$/status > $FOLDER/ignored; touch $FOLDER/done";
  const Ended e =
      Process(
          {"/bin/bash", "-c", "(ulimit -f 100; $RUN --nproc 1 /bin/sh -c \"$PROGRAM\" > $FOLDER/log); echo status $?"},
          {"RUN=" + build_folder() + "/tapir-run", "FOLDER=" + folder.path, "PROGRAM=" + program}, folder / "out")
          .end(kHangs);
  INFO(e.output);
  CHECK(mentions(e.output, {"tapir-run: cannot write the output of the ranks: File too large\n", "status 0"}));
  CHECK(access((folder / "done").c_str(), F_OK) == 0);
  // The ranks themselves have the signal as it was: it is no. 25.
  CHECK((std::strtoull(slurp(folder / "ignored").c_str() + 8, nullptr, 16) >> (SIGXFSZ - 1) & 1) == 0);
}

/// "final loss 0x1.8p-3" of a run that is killed that often.
static std::string final_loss(int kills) {
  const TemporaryFolder folder;
  const Ended e = launch({"--nproc", "2", "--max-restarts", std::to_string(kills)}, {worker(), "resume"},
                         {"TAPIR_TEST_FILE=" + (folder / "run"), "TAPIR_TEST_KILLS=" + std::to_string(kills)});
  const size_t at = e.output.find("final loss"), end = e.output.find(" after", at);
  INFO(e.output);
  CHECK((e.status == 0 && mentions(e.output, {("after " + std::to_string(kills) + " restarts").c_str()})));
  return at == std::string::npos ? "" : e.output.substr(at, end - at);
}

TEST_CASE("BI-348 twenty kills at random moments end in the same loss as none") {
  if (!can_run_jobs()) SKIP_TEST("no tapir-run or distributed_worker beside this program");
  const std::string undisturbed = final_loss(0);
  CHECK(undisturbed.size() > 12);
  CHECK(final_loss(20) == undisturbed);
}
