// tapir-run: starts a program once per rank, on one machine or several, and stays with it. Output comes line by line with the rank before
// it; signals are passed on; when a rank fails its last words are shown, and what then becomes of the others is a plan of the coordinator
// beside this file. The store of the job lives here, so it outlives every rank.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <sstream>
#include <thread>

#include "../../core/cpu.h"
#include "../../core/error.h"
#include "../../core/version.h"
#include "../door.h"
#include "../launch_env.h"
#include "../store.h"
#include "coordinator.h"

using namespace tapir;
using namespace tapir::distributed;

namespace {

constexpr const char* kUsage =
    "usage: tapir-run --nproc N [options] PROGRAM [arguments]\n"
    "  --nproc N            processes on this machine\n"
    "  --nnodes M           machines (1); each runs tapir-run with the same --rdzv\n"
    "  --rdzv HOST:PORT     where they meet: the first machine's address\n"
    "  --node-rank R        this machine's number; without it the one that can listen at HOST:PORT is 0, others count "
    "up\n"
    "  --max-restarts K     after a rank failed start all again, or, of a program that runs Elastic::run, that rank "
    "alone; at "
    "most K times (0)\n"
    "  --min-ranks M        without restarts left go on without the rank, while M are left (all)\n"
    "  --silence SECONDS    with either of the two, a machine that says nothing for so long is lost with its ranks "
    "(20). "
    "The first machine's loss ends the job\n"
    "  --grace SECONDS      between SIGTERM and SIGKILL for ranks that are to end (5)\n"
    "On several machines TAPIR_STORE_SECRET, or a file that TAPIR_STORE_SECRET_FILE names, holds the same secret on "
    "all.\n"
    "tapir-run --version says what Tapir and which CPU kernels this is.\n";

constexpr int64_t kMostHere = 1024, kMostNodes = 16384;
constexpr size_t kLongest = 65536;  // bytes of a rank's line, which then goes on in the next one
constexpr double kWait = 300;       // seconds for the first machine
struct Options {
  int64_t nproc = 0, nnodes = 1, node_rank = -1, max_restarts = 0, min_ranks = 0;
  double grace = 5, silence = 20;
  std::string host = "127.0.0.1";
  int port = 0;
  char** program = nullptr;
};

int64_t whole(const std::string& name, const char* text, int64_t low, int64_t high) {
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  check(*text && !*end && value >= low && value <= high,
        "[tapir-run] expected {} to be a whole number in [{}, {}], got \"{}\"", name, low, high, text);
  return value;
}

Options parse(int argc, char** argv) {
  Options o;
  int i = 1;
  for (; i < argc && argv[i][0] == '-'; ++i) {
    std::string name = argv[i], value;
    if (name == "--") {
      ++i;
      break;
    }
    if (name == "-h" || name == "--help") std::fputs(kUsage, stdout), std::exit(0);
    if (name == "--version") {
      std::printf("tapir-run %s\nCPU kernels %s\n", version().c_str(), backends::cpu::capability_report().c_str());
      std::exit(0);
    }
    if (const size_t equal = name.find('='); equal != std::string::npos)
      value = name.substr(equal + 1), name.resize(equal);
    else {
      check(i + 1 < argc, "[tapir-run] expected a value after {}", name);
      value = argv[++i];
    }
    if (name == "--nproc") o.nproc = whole(name, value.c_str(), 1, kMostHere);
    else if (name == "--nnodes") o.nnodes = whole(name, value.c_str(), 1, kMostNodes);
    else if (name == "--node-rank") o.node_rank = whole(name, value.c_str(), 0, kMostNodes - 1);
    else if (name == "--max-restarts") o.max_restarts = whole(name, value.c_str(), 0, 1000000);
    else if (name == "--min-ranks") o.min_ranks = whole(name, value.c_str(), 1, kMostHere * kMostNodes);
    else if (name == "--silence") o.silence = double(whole(name, value.c_str(), 1, 1000000));
    else if (name == "--grace") o.grace = double(whole(name, value.c_str(), 0, 1000000));
    else if (name == "--rdzv") {
      const size_t colon = value.rfind(':');
      check(colon != std::string::npos && colon > 0, "[tapir-run] expected --rdzv HOST:PORT, got \"{}\"", value);
      o.host = value.substr(0, colon), o.port = int(whole("--rdzv's port", value.c_str() + colon + 1, 1, 65535));
    } else fail(ErrorKind::Value, "[tapir-run] expected one of its options (--help), got {}", name);
  }
  check(o.nproc > 0, "[tapir-run] expected --nproc N, got none");
  check(o.nnodes == 1 || o.port > 0, "[tapir-run] expected --rdzv HOST:PORT with --nnodes {}, got none", o.nnodes);
  check(o.node_rank < o.nnodes, "[tapir-run] expected --node-rank below {}, got {}", o.nnodes, o.node_rank);
  check(o.min_ranks <= o.nproc * o.nnodes, "[tapir-run] expected --min-ranks of at most {}, got {}", o.nproc * o.nnodes,
        o.min_ranks);
  if (o.min_ranks == 0) o.min_ranks = o.nproc * o.nnodes;
  check(i < argc, "[tapir-run] expected a program, got none");
  o.program = argv + i;
  return o;
}

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : signals) sigaddset(&set, s);
  return set;
}

/// All of it, whatever bytes it has. Where that fails for the first time, standard error hears of it.
void write(std::FILE* to, const std::string& text) {
  const bool fails = std::ferror(to);
  if ((std::fwrite(text.data(), 1, text.size(), to) != text.size() || std::fflush(to) != 0) && !fails)
    std::fprintf(stderr, "tapir-run: cannot write the output of the ranks: %s\n", std::strerror(errno));
}

/// One end of a rank's output: whole lines go on with the rank before them.
struct Pipe {
  Socket end;
  std::FILE* to;
  std::string line;
};

struct Rank {
  int64_t id = 0, rank = 0;
  pid_t pid = -1;
  int status = 0;
  bool ended = false, killed = false;
  double stopped = 0;  // when it was told to end
  Pipe out, err;
  std::deque<std::string> last;  // of its standard error

  /// False where nothing is there.
  bool read(Pipe& p) {
    char buffer[4096];
    const ssize_t n = ::read(p.end.fd(), buffer, sizeof buffer);
    size_t begin = 0, at = p.line.size();  // what was there before has no end of a line
    if (n > 0) p.line.append(buffer, size_t(n));
    for (; (at = p.line.find('\n', at)) != std::string::npos; begin = ++at) print(p, p.line.substr(begin, at - begin));
    p.line.erase(0, begin);
    if (p.line.size() >= kLongest) print(p, std::exchange(p.line, {}));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return n > 0;
    if (!p.line.empty()) print(p, std::exchange(p.line, {}));
    p.end.close();
    return false;
  }
  void print(Pipe& p, const std::string& text) {
    write(p.to, tapir::format("[{}] {}\n", rank, text));
    if (&p != &err) return;
    last.push_back(text);
    if (last.size() > 20) last.pop_front();
  }
};

class Job {
 public:
  explicit Job(const Options& o) : o_(o) {
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
    signal_fd_ = Socket(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    meet();
  }
  ~Job() {  // without a plan: the first machine is gone
    for (const Rank& r : ranks_) kill(r, SIGKILL);
  }

  /// Until the plan is an end, and all ranks here have ended.
  int run() {
    while (!follow()) {
      if (!watch() && now() < next_look_) continue;
      if (coordinator_) coordinator_->tick();
      if (plan_.status < 0) look();
    }
    finish();
    return int(plan_.status);
  }

 private:
  /// Is it an address of this machine? Only that can be listened on.
  static bool is_here(const std::string& host) try {
    return bool(listen_on("tapir-run", host, 0));
  } catch (const RuntimeError&) {
    return false;
  }

  /// The first machine keeps the store, the others come to it.
  void meet() {
    secret_ = secret_of_environment();
    if (o_.nnodes > 1) check_far("tapir-run", o_.host), check_secret("tapir-run", o_.host, secret_);
    else if (secret_.empty() && has_libcrypto()) secret_ = random_token();
    if (o_.node_rank == 0 || (o_.node_rank < 0 && is_here(o_.host))) try {
        server_ = std::make_unique<StoreServer>(o_.host, o_.port, secret_);
        node_ = 0;
      } catch (const RuntimeError&) {
        if (o_.node_rank == 0 || o_.nnodes == 1) throw;
      }
    const sigset_t ending = set_of({SIGINT, SIGTERM, SIGHUP});
    // While it waits for others nobody reads them. In the thread of the store they stay blocked.
    sigprocmask(SIG_UNBLOCK, &ending, nullptr);
    if (server_) o_.port = server_->port();
    store_ = std::make_unique<Store>(o_.host, o_.port, StoreOptions{.secret = secret_, .timeout = kWait});
    if (o_.node_rank >= 0) node_ = o_.node_rank;
    else if (!server_) node_ = store_->add("nodes", 1);
    compare();
    check(node_ < o_.nnodes, "[tapir-run] expected {} machines, this is one more", o_.nnodes);
    const double silence = is_elastic() ? o_.silence : 0;
    if (server_)
      coordinator_ = std::make_unique<Coordinator>(
          *store_, o_.nnodes, o_.nproc,
          JobLimits{.restarts = o_.max_restarts, .least = o_.min_ranks, .silence = o_.nnodes > 1 ? silence : 0});
    else if (is_elastic()) store_->set_timeout(o_.silence);
    plan_ = newest_plan(*store_, 0, kWait);
    sigprocmask(SIG_BLOCK, &ending, nullptr);
  }
  /// The job has one size: who was started otherwise than the first machine ends, and the job with it.
  void compare() {
    const std::string mine = tapir::format("--nproc {} --nnodes {} --max-restarts {} --min-ranks {} --silence {}",
                                           o_.nproc, o_.nnodes, o_.max_restarts, o_.min_ranks, o_.silence);
    if (server_) return store_->set("options", mine);
    std::istringstream first(store_->get("options")), here(mine);
    for (std::string name, expected, got; first >> name >> expected && here >> name >> got;) {
      if (got == expected) continue;
      const std::string why = tapir::format("expected {} {}, as on the first machine, got {}", name, expected, got);
      tell(*store_, tapir::format("differs {}: {}", node_, why));
      fail(ErrorKind::Value, "[tapir-run] {}", why);
    }
    tell(*store_, tapir::format("beat {}", node_));  // it takes part: nobody else is this machine from now on
  }
  bool is_elastic() const { return o_.max_restarts > 0 || o_.min_ranks < o_.nproc * o_.nnodes; }

  /// Tells that this machine is there, and looks for a plan.
  void look() try {
    next_look_ = now() + 0.1;
    if (!server_ && now() >= next_beat_) {
      next_beat_ = now() + o_.silence / 8;
      tell(*store_, tapir::format("beat {}", node_));
    }
    if (store_->has(plan_key(plan_.generation + 1))) plan_ = newest_plan(*store_, plan_.generation + 1, kWait);
  } catch (const RuntimeError& e) {
    fail(ErrorKind::Runtime, "[tapir-run] expected the first machine to answer, got: {}", e.what());
  }

  /// Ends who is no member any more, then starts who is a new one. True when the job is over here.
  bool follow() {
    if (plan_.generation == followed_) return false;
    bool waits = false;
    for (Rank& r : ranks_)
      if (plan_.rank_of(r.id) < 0) waits |= !end(r);
    if (waits) return false;
    for (Rank& r : ranks_)
      if (plan_.rank_of(r.id) < 0) report(r), dismiss(r);
    if (coordinator_) std::fputs(coordinator_->news().c_str(), stderr);
    std::erase_if(ranks_, [this](const Rank& r) { return plan_.rank_of(r.id) < 0; });
    if (plan_.status >= 0) return true;
    bool any = bool(server_);  // the store stays
    for (size_t rank = 0; rank < plan_.members.size(); ++rank) {
      const Plan::Member& m = plan_.members[rank];
      if (m.node != node_) continue;
      any = true;
      const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&m](const Rank& r) { return r.id == m.id; });
      if (found != ranks_.end()) found->rank = int64_t(rank);
      else start_rank(m.id, int64_t(rank), m.local);
    }
    followed_ = plan_.generation;
    if (any) return false;
    store_->add("byes", 1);
    fail(ErrorKind::Runtime, "[tapir-run] expected a place for this machine, got a job that goes on without it");
  }

  /// True when it has, and all its words are there.
  bool end(Rank& r) {
    if (r.stopped == 0) {
      r.stopped = now();
      if (plan_.goes_on) kill(r, SIGKILL);  // it is believed dead
      else if (plan_.status != 0) kill(r, SIGTERM), kill(r, SIGCONT);
    }
    if (plan_.status != 0 && now() >= r.stopped + (plan_.goes_on ? 0 : o_.grace)) r.killed = true, kill(r, SIGKILL);
    for (Pipe* p : {&r.out, &r.err})
      while (r.ended && r.killed && p->end && r.read(*p)) {}
    return r.ended && (r.killed || (!r.out.end && !r.err.end));
  }
  /// What the rank has started dies with it, also where it has ended by itself: it may hold the device.
  static void kill(const Rank& r, int number) {
    if (r.pid <= 0) return;  // as a number of a process these are all processes of the user
    if (number == SIGKILL) ::kill(-r.pid, number);
    if (!r.ended) ::kill(r.pid, number);
  }
  /// Until waitpid() no other process can get its number, or that of its group.
  void dismiss(Rank& r) const {
    if (plan_.status != 0 || interrupted_) kill(r, SIGKILL);
    waitpid(r.pid, nullptr, 0);
    r.pid = -1;
  }

  void start_rank(int64_t id, int64_t rank, int64_t local) {
    Rank& r = ranks_.emplace_back();
    r.id = id, r.rank = rank;
    int out[2], err[2];
    const bool made = pipe(out) == 0 && pipe(err) == 0;
    check_runtime(made, "[tapir-run] expected pipes for rank {}, got: {}", r.rank, std::strerror(errno));
    r.out.to = stdout, r.err.to = stderr;
    const pid_t parent = getpid();
    r.pid = fork();
    check_runtime(r.pid >= 0, "[tapir-run] expected to fork, got: {}", std::strerror(errno));
    setpgid(r.pid, 0);  // Ctrl-C comes through us, once. Both do it: then it is done for both
    if (r.pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      sigprocmask(SIG_UNBLOCK, &signals_, nullptr), std::signal(SIGXFSZ, at_limit_);
      // In a group of its own a rank that reads from the terminal would stand still.
      if (const int nothing = isatty(0) ? open("/dev/null", O_RDONLY) : -1; nothing >= 0)
        dup2(nothing, 0), close(nothing);
      dup2(out[1], 1), dup2(err[1], 2);
      for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
      for (const Rank& other : ranks_) close(other.out.end.fd()), close(other.err.end.fd());
      try {
        set_environment(r, local);
        execvp(o_.program[0], o_.program);
        std::fprintf(stderr, "tapir-run: %s: %s\n", o_.program[0], std::strerror(errno));
      } catch (const std::exception& e) {  // nothing of the launcher's ends here
        std::fprintf(stderr, "tapir-run: %s: %s\n", o_.program[0], e.what());
      }
      _exit(127);
    }
    close(out[1]), close(err[1]);
    r.out.end = Socket(out[0]), r.err.end = Socket(err[0]);
    for (const int fd : {out[0], err[0]}) set_blocking(fd, false);
  }

  void set_environment(const Rank& r, int64_t local) const {
    const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(r.rank)), set("WORLD_SIZE", std::to_string(plan_.members.size()));
    set("LOCAL_RANK", std::to_string(local)), set("LOCAL_WORLD_SIZE", std::to_string(o_.nproc));
    set("GROUP_RANK", std::to_string(node_));
    set("MASTER_ADDR", o_.host), set("MASTER_PORT", std::to_string(o_.port));
    set("TORCHELASTIC_RESTART_COUNT", std::to_string(plan_.generation));
    set("TORCHELASTIC_MAX_RESTARTS", std::to_string(o_.max_restarts));
    set("TAPIR_STORE_SECRET", secret_), set("TAPIR_STORE_HOSTED", "1");
    if (is_elastic()) set("TAPIR_ELASTIC", tapir::format("{} {} {}", r.id, plan_.generation, o_.silence));
    else unsetenv("TAPIR_ELASTIC");  // of a job that this one was started in
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    const int64_t cpus = std::max(1u, std::thread::hardware_concurrency());
    setenv("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, cpus / o_.nproc)).c_str(), 0);
  }

  /// Until something happens, or it is time for the next look. True when a rank has ended.
  bool watch() {
    constexpr int kEvery = 100;  // milliseconds
    std::vector<pollfd> polls{{signal_fd_.fd(), POLLIN, 0}};
    for (const Rank& r : ranks_)
      for (const Pipe* p : {&r.out, &r.err}) polls.push_back({p->end.fd(), POLLIN, 0});
    poll(polls.data(), polls.size(), kEvery);
    size_t i = 1;
    for (Rank& r : ranks_)
      for (Pipe* p : {&r.out, &r.err})
        if (polls[i++].revents) r.read(*p);
    if (polls[0].revents) take_signals();
    bool any = false;
    for (Rank& r : ranks_) {
      siginfo_t info{};
      if (r.ended || waitid(P_PID, id_t(r.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
      r.status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;  // as waitpid() says it
      any = r.ended = true;
      say(tapir::format("ended {} {}", r.id, code_of(r)));
    }
    return any;
  }
  /// Nobody asks any more when the job ends, and the store may be gone.
  void say(const std::string& event) {
    if (plan_.status < 0) tell(*store_, event);
  }
  static int code_of(const Rank& r) { return WIFEXITED(r.status) ? WEXITSTATUS(r.status) : 128 + WTERMSIG(r.status); }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signal_fd_.fd(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      const bool ends = info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2;
      for (const Rank& r : ranks_) {
        kill(r, int(info.ssi_signo));
        if (ends) kill(r, SIGCONT);  // who stands still would not hear it
      }
      if (ends) interrupted_ = true, say("interrupted");
    }
  }

  /// How a rank failed: the first of all, and each that the job goes on without.
  void report(const Rank& r) const {
    if (r.id != plan_.first && !(plan_.goes_on && r.status != 0)) return;
    const char* first = plan_.goes_on ? "" : " first";
    if (WIFEXITED(r.status))
      std::fprintf(stderr, "tapir-run: rank %d failed%s, with status %d", int(r.rank), first, WEXITSTATUS(r.status));
    else
      std::fprintf(stderr, "tapir-run: rank %d failed%s, by signal %d (%s)", int(r.rank), first, WTERMSIG(r.status),
                   strsignal(WTERMSIG(r.status)));
    std::fprintf(stderr, r.last.empty() ? "; it wrote no errors\n" : ". The end of its errors:\n");
    for (const std::string& line : r.last) write(stderr, tapir::format("    {}\n", line));
  }

  /// The store stays until the other machines have seen how it ended.
  void finish() try {
    if (o_.nnodes == 1) return;
    store_->add("byes", 1);
    for (const double until = now() + o_.grace + std::min(10., o_.silence);
         coordinator_ && now() < until && store_->add("byes", 0) < coordinator_->nodes();)
      usleep(100000);
    if (server_) usleep(300000);
  } catch (const RuntimeError&) {  // it is gone
  }

  Options o_;
  // Ours where output meets the limit on the size of files: an error of write(). The ranks have what we were started with.
  const sighandler_t at_limit_ = std::signal(SIGXFSZ, SIG_IGN);
  const sigset_t signals_ = set_of({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2});
  Socket signal_fd_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Coordinator> coordinator_;  // with the store
  std::string secret_;
  int64_t node_ = 0, followed_ = -1;  // the generation that is carried out
  bool interrupted_ = false;          // by a signal to this launcher
  double next_look_ = 0, next_beat_ = 0;
  Plan plan_;
  std::deque<Rank> ranks_;
};

}  // namespace

int main(int argc, char** argv) try {
  while (true)  // a message must not go into a socket
    if (const int fd = open("/dev/null", O_RDWR); fd < 0 || fd > 2) {
      close(fd);
      break;
    }
  return Job(parse(argc, argv)).run();
} catch (const std::exception& e) {
  std::fprintf(stderr, "tapir-run: %s\n", e.what());
  return 2;
}
