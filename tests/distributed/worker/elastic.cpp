// Training that goes on when ranks are gone. TAPIR_TEST_FAULTS says what happens to which process: "ID WHERE STEP HOW;..." with the number that
// tapir-run gave the process, where (begin, step, commit, restore, or time: then milliseconds stand for the step) and how (kill, stop, throw, exit;
// orphan: its launcher is killed; halt: that is stopped; child: it starts a process that would outlive it, and says `child PID`).
#include <csignal>
#include <sstream>
#include <thread>

#include <tapir/distributed/ddp.h>
#include <tapir/distributed/elastic.h>
#include <tapir/distributed/once.h>

#include "worker.h"

namespace worker {

namespace {

constexpr int64_t kSteps = 60;

struct Fault {
  int64_t id = -1, step = 0;
  std::string where, how;
};

std::vector<Fault> faults_of_this_process() {
  const int64_t me = number_from("TAPIR_ELASTIC", -1);
  std::vector<Fault> mine;
  const char* text = std::getenv("TAPIR_TEST_FAULTS");
  std::istringstream all(text ? text : "");
  for (std::string one; std::getline(all, one, ';');) {
    Fault f;
    std::istringstream(one) >> f.id >> f.where >> f.step >> f.how;
    if (f.id == me) mine.push_back(f);
  }
  return mine;
}

void happen(const std::string& how) {
  if (how == "kill") raise(SIGKILL);
  if (how == "stop") raise(SIGSTOP);
  if (how == "throw") throw std::runtime_error("a mistake of the program");
  if (how == "exit") std::exit(0);
  if (how == "orphan") kill(getppid(), SIGKILL), sleep(10);
  if (how == "halt") kill(getppid(), SIGSTOP);
  if (how == "child") {
    const pid_t child = fork();
    if (child == 0) execlp("sleep", "sleep", "1000", nullptr), _exit(127);
    std::printf("child %d\n", int(child));
    std::fflush(stdout);
  }
}

void reach(const char* where, int64_t step) {
  static std::vector<Fault> mine = faults_of_this_process();
  for (Fault& f : mine)
    if (f.where == where && f.step == step) happen(std::exchange(f.how, ""));
}

void begin_time() {
  for (const Fault& f : faults_of_this_process())
    if (f.where == "time")
      std::thread([f] {
        usleep(useconds_t(f.step * 1000));
        happen(f.how);
      }).detach();
}

/// A checkpoint in which things may happen.
struct Watched {
  train::Checkpoint& checkpoint;
  int64_t& step;
  StateDict state_dict() const {
    reach("commit", step);
    return checkpoint.state_dict();
  }
  void load_state_dict(const StateDict& state) {
    static int64_t times = 0;
    reach("restore", times++);
    checkpoint.load_state_dict(state);
  }
};

void elastic() {
  const int64_t every = number_from("TAPIR_TEST_EVERY", 1), pace = number_from("TAPIR_TEST_PACE", 3000);
  options.timeout = number_from("TAPIR_TEST_TIMEOUT", 20);
  manual_seed(3);
  nn::Sequential net(nn::Linear(6, 16), nn::ReLU(), nn::Dropout(0.1), nn::Linear(16, 2));
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  optim::StepLR schedule(opt, 20, {.gamma = 0.5});
  const auto loss_now = [&] {
    InferenceMode guard;
    const Tensor x = sin(arange(60).to(kFloat32)).view({10, 6});
    net.eval();
    const double loss = mse_loss(net(x), x.narrow(1, 0, 2) * 3).item();
    net.train();
    return loss;
  };
  const double first = loss_now();
  train::Checkpoint checkpoint(std::getenv("TAPIR_TEST_FILE"));
  checkpoint.add("model", net).add("optimizer", opt).add("schedule", schedule);
  const int64_t begin = checkpoint.resume().value_or(0);
  default_generator().set_state(uint64_t(100 + my_rank()), default_generator().offset());  // each rank its own numbers
  int64_t now = -1;
  Watched watched{checkpoint, now};
  distributed::Elastic elastic(watched, options);
  reach("begin", 0);
  begin_time();
  elastic.run(
      [&](const ProcessGroup& g, int64_t step) {
        std::printf("rank %d of %d from step %d\n", int(g.rank()), int(g.size()), int(step));
        std::fflush(stdout);
        distributed::DistributedDataParallel ddp(net, {}, g);
        while (step < kSteps) {
          reach("step", step);
          opt.zero_grad();
          const Tensor x = randn({8, 6}), loss = mse_loss(ddp(x), x.narrow(1, 0, 2) * 3);
          loss.backward();
          opt.step(), schedule.step();
          Tensor mean = loss.detach().clone();
          g.all_reduce(mean, Op::Mean);
          now = ++step;
          if (step % every == 0) elastic.commit(step);
          if (step % 10 == 0) distributed::once(g, [&] { checkpoint.save(step); });
          usleep(useconds_t(pace));
        }
        EXPECT(ddp.differing_parameters().empty());
        EXPECT(default_generator().seed() >= 100 && default_generator().seed() < 104);
        double sum = 0;
        for (const Tensor& p : net.parameters()) sum += p.detach().to(kFloat64).abs().sum().item();
        if (g.rank() == 0)
          std::printf("final loss %a weights %a of %d ranks, %s\n", loss_now(), sum, int(g.size()),
                      loss_now() < 0.5 * first ? "falls" : "");
        std::fflush(stdout);
        reach("last", 0);
      },
      begin);
  EXPECT(!distributed::is_initialized());
  reach("end", 0);
  std::printf("left run\n");
}

/// An error of a peer has its type, also in later calls.
void peer_error() {
  const ProcessGroup g = distributed::init_process_group(options);
  if (second()) raise(SIGKILL);
  for (int i = 0; i < 2; ++i) {
    bool late = true;
    try {
      g.barrier();
      EXPECT(false);
    } catch (const distributed::PeerError& e) {
      late = e.late;
    }
    EXPECT(!late);
  }
}

void peer_late() {
  options.timeout = 2;
  const ProcessGroup g = distributed::init_process_group(options);
  if (second()) sleep(6);
  bool late = false;
  try {
    g.barrier();
  } catch (const distributed::PeerError& e) {
    late = e.late;
  }
  EXPECT(late || second());
}

}  // namespace

std::vector<Scenario> elastic_scenarios() {
  return {{"elastic", elastic}, {"peer_error", peer_error}, {"peer_late", peer_late}};
}

}  // namespace worker
