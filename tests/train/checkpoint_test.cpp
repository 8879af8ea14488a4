#include <tapir/train/checkpoint.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <tapir/core/generator.h>
#include <tapir/nn/linear.h>
#include <tapir/ops/ops.h>
#include <tapir/optim/adam.h>
#include <tapir/optim/lr_scheduler.h>
#include <tapir/train/early_stopping.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

struct Run {
  nn::Linear net{4, 3};
  optim::AdamW opt{net.parameters(), {.lr = 0.1}};
  optim::StepLR schedule{opt, 2};
  train::EarlyStopping stopping;
  train::Checkpoint checkpoint;
  explicit Run(const std::string& folder, const train::CheckpointOptions& options = {}) : checkpoint(folder, options) {
    checkpoint.add("model", net).add("optimizer", opt).add("schedule", schedule).add("stopping", stopping);
  }
  double epoch() {
    opt.zero_grad();
    const Tensor loss = sum(square(net(randn({8, 4}))));
    loss.backward();
    opt.step();
    schedule.step();
    stopping.step(loss.item());
    return loss.item();
  }
  std::vector<float> weights() { return net.weight.to_vector<float>(); }
};
std::vector<std::string> names(const std::string& folder) {
  auto out = names_in(folder);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("Checkpoint: a resumed run is bitwise the uninterrupted one") {
  TemporaryFolder folder;
  manual_seed(3);
  Run whole(folder / "a/b");
  CHECK(!whole.checkpoint.resume());
  for (int i = 0; i < 3; ++i) whole.epoch();
  whole.checkpoint.save(2);
  for (int i = 0; i < 3; ++i) whole.epoch();
  manual_seed(99);
  Run resumed(folder / "a/b");
  REQUIRE(resumed.checkpoint.resume() == std::optional<int64_t>(2));
  for (int i = 0; i < 3; ++i) resumed.epoch();
  CHECK(resumed.weights() == whole.weights());
  CHECK(resumed.opt.lr() == whole.opt.lr());
  CHECK(resumed.stopping.best() == whole.stopping.best());
}

TEST_CASE("Checkpoint: its state goes through memory as through a file") {
  const TemporaryFolder folder;
  manual_seed(5);
  Run run(folder / "a"), other(folder / "b");
  run.epoch(), run.epoch(), other.epoch();
  StateDict copy;
  for (const auto& [name, t] : run.checkpoint.state_dict())
    if (t.defined()) copy.append(name, t.detach().clone());
  const double third = run.epoch();
  other.checkpoint.load_state_dict(copy);
  CHECK((other.epoch() == third && other.weights() == run.weights()));
  const auto before = run.weights();
  copy.set("optimizer.param_groups.0.lr", full({}, -1.0));
  CHECK(mentions(message_of<ValueError>([&] { run.checkpoint.load_state_dict(copy); }), {"learning rate"}));
  CHECK(run.weights() == before);
  CHECK(mentions(message_of<ValueError>([&] { run.checkpoint.load_state_dict({}); }), {"random"}));
}

TEST_CASE("Checkpoint: the last ones and the best stay") {
  TemporaryFolder folder;
  Run run(folder / "c", {.keep_last = 2});
  const double metrics[] = {3, 1, 2, std::nan(""), 5, 4};
  for (int i = 0; i < 6; ++i) {
    run.net.bias.detach().fill_(i);
    run.checkpoint.save(i, metrics[i]);
  }
  CHECK(names(folder / "c") ==
        std::vector<std::string>{"checkpoint-1.safetensors", "checkpoint-4.safetensors", "checkpoint-5.safetensors"});
  CHECK(run.checkpoint.load_best() == std::optional<int64_t>(1));
  CHECK(run.net.bias.to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(run.checkpoint.resume() == std::optional<int64_t>(5));
  CHECK(run.checkpoint.files().size() == 3);
  Run highest(folder / "c", {.keep_last = 1, .higher_is_better = true});
  highest.checkpoint.save(10);
  CHECK(names(folder / "c") == std::vector<std::string>{"checkpoint-10.safetensors", "checkpoint-4.safetensors"});
  CHECK(highest.checkpoint.load_best() == std::optional<int64_t>(4));
  Run every(folder / "d", {.keep_last = 0});
  for (int i = 0; i < 5; ++i) every.checkpoint.save(i);
  CHECK(names(folder / "d").size() == 5);
  CHECK(!every.checkpoint.load_best());
}

TEST_CASE("Checkpoint: a file that was just saved stays, also where all newer ones are damaged") {
  TemporaryFolder folder;
  Run run(folder / "c", {.keep_last = 2});
  for (const int step : {10, 20, 30}) run.checkpoint.save(step, step == 10 ? 0.0 : 1.0);
  for (const char* name : {"20", "30"}) spit(folder / "c/checkpoint-" + name + ".safetensors", "damaged");
  Run next(folder / "c", {.keep_last = 2});
  CHECK(next.checkpoint.resume() == std::optional<int64_t>(10));  // the best one
  for (const int step : {11, 12}) {
    next.checkpoint.save(step, 1.0);
    CHECK(Run(folder / "c").checkpoint.resume() == std::optional<int64_t>(step));
  }
}

TEST_CASE("BI-312 BI-316 Checkpoint: damaged files are passed over, what does not fit changes nothing") {
  TemporaryFolder folder;
  Run run(folder / "c");
  run.net.bias.detach().fill_(7);
  run.checkpoint.save(1);
  run.checkpoint.save(2);
  const std::string newest = folder / "c/checkpoint-2.safetensors";
  const std::string bytes = slurp(newest);
  spit(newest, bytes.substr(0, bytes.size() / 2));
  spit(folder / "c/checkpoint-3.safetensors.tmp", "left by a dead run");
  spit(folder / "c/checkpoint-x.safetensors", "not ours");
  Run next(folder / "c");
  CHECK(next.checkpoint.resume() == std::optional<int64_t>(1));
  CHECK(next.checkpoint.refused().size() == 1);
  CHECK(mentions(next.checkpoint.refused()[0], {"checkpoint-2"}));
  CHECK(next.net.bias.to_vector<float>() == std::vector<float>{7, 7, 7});
  spit(folder / "c/checkpoint-1.safetensors", "x");
  CHECK(mentions(message_of<RuntimeError>([&] { next.checkpoint.resume(); }),
                 {"checkpoint-2"}));  // all damaged: no fresh start
  spit(newest, bytes);

  nn::Linear same{4, 3}, other{5, 3};
  const auto before = same.bias.to_vector<float>();
  const uint64_t seed = default_generator().seed(), offset = default_generator().offset();
  train::Checkpoint wrong(folder / "c");
  nn::Linear& first = same;
  wrong.add("model", first).add("optimizer", other);
  CHECK(mentions(message_of<ValueError>([&] { wrong.load(newest); }), {"[Checkpoint] \"optimizer\": ["}));
  CHECK(same.bias.to_vector<float>() == before);
  CHECK(default_generator().seed() == seed);
  CHECK(default_generator().offset() == offset);
  CHECK_THROWS_AS(wrong.add("model", other), ValueError);
  CHECK_THROWS_AS(wrong.add("a.b", other), ValueError);
  CHECK_THROWS_AS(wrong.add("random", other), ValueError);
  CHECK_THROWS_AS(wrong.add("", other), ValueError);
  CHECK_THROWS_AS(wrong.save(-1), ValueError);
  CHECK_THROWS_AS(train::Checkpoint(""), ValueError);
  CHECK_THROWS_AS(wrong.load(folder / "none"), RuntimeError);
}

TEST_CASE("BI-313 Checkpoint: a full disk leaves the older files as they were") {
  TemporaryFolder folder;
  Run run(folder / "c");
  run.checkpoint.save(1, 0.5);
  const std::string before = slurp(folder / "c/checkpoint-1.safetensors");
  for (const bool sticky : {false, true})
    for (int k = 1; k < 30; ++k) {
      const std::string path = folder / "c/checkpoint-1.safetensors";
      bool failed = false, reached = false;
      {
        FailingCalls calls(k, ENOSPC, sticky);
        try {
          run.checkpoint.save(1, 0.25);
        } catch (const RuntimeError& e) {
          failed = true;
          CHECK(mentions(e.what(), {"checkpoint-1.safetensors"}));
        }
        reached = calls.reached();
      }
      if (failed && slurp(path) != before) CHECK(run.checkpoint.load(path) == 1);  // failed behind the rename
      CHECK(names(folder / "c").size() == 1);
      spit(path, before);
      if (!reached) break;
    }
  const pid_t child = fork();  // a limit on the size of files: the system itself says no
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {200, 200};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string text = message_of<RuntimeError>([&] { run.checkpoint.save(2); });
    _exit(mentions(text, {"checkpoint-2", "File too large"}) ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(names(folder / "c") == std::vector<std::string>{"checkpoint-1.safetensors"});
  spit(folder / "file", "x");
  CHECK(mentions(message_of<RuntimeError>([&] { Run(folder / "file/c"); }), {"file/c", "folder"}));
}

TEST_CASE("Checkpoint: what dead runs left goes with the next one, what a living process writes stays") {
  TemporaryFolder folder;
  Run(folder / "c").checkpoint.save(1);
  int ready[2], done[2];
  REQUIRE((pipe(ready) == 0 && pipe(done) == 0));
  const pid_t child = fork();
  if (child == 0) {  // in the middle of a save
    io::OutputFile file("op", folder / "c/checkpoint-7.safetensors");
    file.write("half");
    char c = 0;
    if (write(ready[1], &c, 1) != 1 || read(done[0], &c, 1) != 1) _exit(1);
    _exit(0);  // dies there: no destructor
  }
  char c = 0;
  REQUIRE(read(ready[0], &c, 1) == 1);
  spit(folder / "c/checkpoint-3.safetensors.tmp", "left by a dead run");
  spit(folder / "c/notes.tmp", "not ours");
  Run second(folder / "c");
  CHECK(names(folder / "c") ==
        std::vector<std::string>{"checkpoint-1.safetensors", "checkpoint-7.safetensors.tmp", "notes.tmp"});
  REQUIRE(write(done[1], &c, 1) == 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(second.checkpoint.resume() == std::optional<int64_t>(1));
  Run third(folder / "c");
  CHECK(names(folder / "c") == std::vector<std::string>{"checkpoint-1.safetensors", "notes.tmp"});
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
}

TEST_CASE("Checkpoint: a folder that cannot be read is not an empty one") {
  TemporaryFolder folder;
  spit(folder / "file", "x");
  CHECK(mentions(message_of<RuntimeError>([&] { train::Checkpoint(folder / "file").resume(); }),
                 {"Checkpoint", "file", "Not a directory"}));
  Run(folder / "c").checkpoint.save(1);
  rlimit before, few;
  getrlimit(RLIMIT_NOFILE, &before);
  Run run(folder / "c");
  few = before, few.rlim_cur = 0;  // opendir fails
  setrlimit(RLIMIT_NOFILE, &few);
  const std::string message = message_of<RuntimeError>([&] { run.checkpoint.resume(); });
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(mentions(message, {"Checkpoint", "Too many open files"}));
}
