// tapir-run: starts a program once per rank, on one machine or several, and stays with it. Output comes line by line with the rank before
// it; signals are passed on; when a rank fails the others are ended, its last words are shown, and all start again where restarts are
// left. The store of the job lives here, so it outlives every rank.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>

#include "../../core/cpu.h"
#include "../../core/error.h"
#include "../../core/version.h"
#include "../door.h"
#include "../launch_env.h"
#include "../store.h"

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
    "  --max-restarts K     start all ranks again, at most K times, after one failed (0)\n"
    "  --grace SECONDS      between SIGTERM and SIGKILL for ranks that are to end (5)\n"
    "On several machines TAPIR_STORE_SECRET, or a file that TAPIR_STORE_SECRET_FILE names, holds the same secret on "
    "all.\n"
    "tapir-run --version says what Tapir and which CPU kernels this is.\n";

constexpr int64_t kMostHere = 1024, kMostNodes = 16384;
constexpr double kLastWords = 0.5;  // seconds in which the others may say why they fail too

struct Options {
  int64_t nproc = 0, nnodes = 1, node_rank = -1, max_restarts = 0;
  double grace = 5;
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
  check(i < argc, "[tapir-run] expected a program, got none");
  o.program = argv + i;
  return o;
}

/// One end of a rank's output: whole lines go on with the rank before them.
struct Pipe {
  Socket end;
  std::FILE* to;
  std::string line;
};

struct Rank {
  int64_t rank;
  pid_t pid = -1;
  int status = 0;
  bool ended = false;
  Pipe out, err;
  std::deque<std::string> last;  // of its standard error

  void read(Pipe& p) {
    char buffer[4096];
    const ssize_t n = ::read(p.end.fd(), buffer, sizeof buffer);
    if (n > 0) p.line.append(buffer, size_t(n));
    for (size_t at; (at = p.line.find('\n')) != std::string::npos; p.line.erase(0, at + 1))
      print(p, p.line.substr(0, at));
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
    if (!p.line.empty()) print(p, std::exchange(p.line, {}));
    p.end.close();
  }
  void print(Pipe& p, const std::string& text) {
    std::fprintf(p.to, "[%d] %s\n", int(rank), text.c_str());
    std::fflush(p.to);
    if (&p != &err) return;
    last.push_back(text);
    if (last.size() > 20) last.pop_front();
  }
};

class Job {
 public:
  explicit Job(const Options& o) : o_(o) {
    for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&signals_, s);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
    signal_fd_ = Socket(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    meet();
  }

  int run() {
    for (int64_t attempt = 0;; ++attempt) {
      attempt_ = attempt;
      start();
      const int code = watch();
      if (code == 0 || interrupted_ || attempt == o_.max_restarts) {
        finish(code);
        return code;
      }
      std::fprintf(stderr, "tapir-run: starting all ranks again (%d of %d)\n", int(attempt + 1), int(o_.max_restarts));
    }
  }

 private:
  std::string key(const char* what) const { return tapir::format("launch{}/{}", attempt_, what); }

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
    if (server_) o_.port = server_->port();
    if (o_.nnodes == 1) return;
    store_ = std::make_unique<Store>(o_.host, o_.port, StoreOptions{.secret = secret_});
    if (o_.node_rank >= 0) node_ = o_.node_rank;
    else if (!server_) node_ = store_->add("nodes", 1);
    check(node_ < o_.nnodes, "[tapir-run] expected {} machines, this is one more", o_.nnodes);
  }

  void start() {
    ranks_.clear();
    first_failed_ = -1, stopping_ = false, killed_ = false;
    for (int64_t local = 0; local < o_.nproc; ++local) start_rank(ranks_.emplace_back(), local);
  }

  void start_rank(Rank& r, int64_t local) {
    r.rank = node_ * o_.nproc + local;
    int out[2], err[2];
    const bool made = pipe(out) == 0 && pipe(err) == 0;
    check_runtime(made, "[tapir-run] expected pipes for rank {}, got: {}", r.rank, std::strerror(errno));
    r.out.to = stdout, r.err.to = stderr;
    const pid_t parent = getpid();
    r.pid = fork();
    check_runtime(r.pid >= 0, "[tapir-run] expected to fork, got: {}", std::strerror(errno));
    if (r.pid == 0) {
      setpgid(0, 0);  // Ctrl-C comes through us, once
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      sigprocmask(SIG_UNBLOCK, &signals_, nullptr);
      dup2(out[1], 1), dup2(err[1], 2);
      for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
      for (const Rank& other : ranks_) close(other.out.end.fd()), close(other.err.end.fd());
      set_environment(r.rank, local);
      execvp(o_.program[0], o_.program);
      std::fprintf(stderr, "tapir-run: %s: %s\n", o_.program[0], std::strerror(errno));
      _exit(127);
    }
    close(out[1]), close(err[1]);
    r.out.end = Socket(out[0]), r.err.end = Socket(err[0]);
    for (const int fd : {out[0], err[0]}) set_blocking(fd, false);
  }

  void set_environment(int64_t rank, int64_t local) const {
    const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(rank)), set("WORLD_SIZE", std::to_string(o_.nnodes * o_.nproc));
    set("LOCAL_RANK", std::to_string(local)), set("LOCAL_WORLD_SIZE", std::to_string(o_.nproc));
    set("GROUP_RANK", std::to_string(node_));
    set("MASTER_ADDR", o_.host), set("MASTER_PORT", std::to_string(o_.port));
    set("TORCHELASTIC_RESTART_COUNT", std::to_string(attempt_));
    set("TORCHELASTIC_MAX_RESTARTS", std::to_string(o_.max_restarts));
    set("TAPIR_STORE_SECRET", secret_), set("TAPIR_STORE_HOSTED", "1");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    const int64_t cpus = std::max(1u, std::thread::hardware_concurrency());
    setenv("OMP_NUM_THREADS", std::to_string(std::max<int64_t>(1, cpus / o_.nproc)).c_str(), 0);
  }

  /// Until all ranks here have ended, and, of several machines, those of the others too; the first failing one's status.
  int watch() {
    double next_look = now() + 0.5, stop_at = 0, kill_at = 0;
    int code = 0;
    for (bool told = false;;) {
      std::vector<pollfd> polls{{signal_fd_.fd(), POLLIN, 0}};
      for (const Rank& r : ranks_)
        for (const Pipe* p : {&r.out, &r.err}) polls.push_back({p->end.fd(), POLLIN, 0});
      poll(polls.data(), polls.size(), store_ || stopping_ || stop_at > 0 ? 100 : -1);
      size_t i = 1;
      for (Rank& r : ranks_)
        for (Pipe* p : {&r.out, &r.err})
          if (polls[i++].revents) r.read(*p);
      if (polls[0].revents) take_signals();
      const int failed = reap();
      if (failed != 0 && code == 0) code = failed;
      if (first_failed_ >= 0 && stop_at == 0) {
        stop_at = now() + kLastWords;
        if (store_) store_->set(key("failed"), std::to_string(first_failed_));
      }
      if (stop_at > 0 && now() >= stop_at && !stopping_) stop();
      if (stopping_ && kill_at == 0) kill_at = now() + o_.grace;
      if (stopping_ && !killed_ && now() >= kill_at) killed_ = true, signal_all(SIGKILL);
      bool all_ended = true;
      for (const Rank& r : ranks_) all_ended &= r.ended && (killed_ || !r.out.end) && (killed_ || !r.err.end);
      if (store_ && now() >= next_look) {
        next_look = now() + 0.5;
        if (stop_at == 0 && store_->has(key("failed"))) stop_at = now() + kLastWords, code = code ? code : 1;
      }
      if (!all_ended) continue;
      report();
      if (code != 0 || !store_) return code;
      if (!std::exchange(told, true)) store_->add(key("done"), 1);
      if (store_->add(key("done"), 0) >= o_.nnodes) return 0;
      usleep(100000);
    }
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signal_fd_.fd(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      signal_all(int(info.ssi_signo));
      if (info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2) interrupted_ = true;
    }
  }

  /// Status of a rank that failed just now, else 0.
  int reap() {
    int code = 0;
    for (Rank& r : ranks_) {
      if (r.ended || waitpid(r.pid, &r.status, WNOHANG) != r.pid) continue;
      r.ended = true;
      const int status = WIFEXITED(r.status) ? WEXITSTATUS(r.status) : 128 + WTERMSIG(r.status);
      if (status == 0 || stopping_ || code != 0) continue;
      code = status;
      if (first_failed_ < 0) first_failed_ = r.rank;
    }
    return code;
  }

  void stop() {
    stopping_ = true;
    signal_all(SIGTERM);
    signal_all(SIGCONT);
  }
  void signal_all(int number) {
    for (const Rank& r : ranks_)
      if (!r.ended) kill(r.pid, number);
  }

  void report() {
    for (Rank& r : ranks_) {
      if (r.rank != first_failed_) continue;
      if (WIFEXITED(r.status))
        std::fprintf(stderr, "tapir-run: rank %d failed first, with status %d", int(r.rank), WEXITSTATUS(r.status));
      else
        std::fprintf(stderr, "tapir-run: rank %d failed first, by signal %d (%s)", int(r.rank), WTERMSIG(r.status),
                     strsignal(WTERMSIG(r.status)));
      std::fprintf(stderr, r.last.empty() ? "; it wrote no errors\n" : ". The end of its errors:\n");
      for (const std::string& line : r.last) std::fprintf(stderr, "    %s\n", line.c_str());
      first_failed_ = -1;
    }
  }

  /// The store stays until the other machines have seen how it ended.
  void finish(int code) {
    if (!store_) return;
    if (code != 0) store_->add(key("done"), 1);
    for (const double until = now() + 10; server_ && now() < until && store_->add(key("done"), 0) < o_.nnodes;)
      usleep(100000);
    if (server_) usleep(300000);
  }

  Options o_;
  sigset_t signals_{};
  Socket signal_fd_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
  std::string secret_;
  int64_t node_ = 0, attempt_ = 0, first_failed_ = -1;
  std::deque<Rank> ranks_;
  bool stopping_ = false, killed_ = false, interrupted_ = false;
};

}  // namespace

int main(int argc, char** argv) try { return Job(parse(argc, argv)).run(); } catch (const std::exception& e) {
  std::fprintf(stderr, "tapir-run: %s\n", e.what());
  return 2;
}
