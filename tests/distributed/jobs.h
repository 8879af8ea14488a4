// Starts ranks of distributed_worker, waits for them with a deadline, and tells how each ended and what it printed.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <tapir/distributed/store.h>

#include "../io/temporary.h"

namespace tapir_tests {

constexpr double kHangs =
    150;  // seconds after which a job is given up: sanitized ones take 30 where they have a core to themselves

/// build/<preset>, from the place of this program.
inline std::string build_folder() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  std::string text(path, n > 0 ? size_t(n) : 0);
  for (int i = 0; i < 2; ++i) text.resize(text.rfind('/'));
  return text;
}
inline std::string worker() { return build_folder() + "/tests/distributed_worker"; }
inline bool can_run_jobs() {
  return access(worker().c_str(), X_OK) == 0 && access((build_folder() + "/tapir-run").c_str(), X_OK) == 0;
}

struct Ended {
  int status = -1;  // 128 + signal; 137 also where the deadline ended it
  std::string output;
};

class Process {
 public:
  Process(const std::vector<std::string>& words, const std::vector<std::string>& environment, const std::string& file)
      : file_(file) {
    std::vector<char*> argv, env;
    for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    for (char** e = environ; *e; ++e) env.push_back(*e);
    for (const auto& e : environment) env.push_back(const_cast<char*>(e.c_str()));
    argv.push_back(nullptr), env.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), env.data()) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Process() {
    if (pid_ > 0 && !ended_) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
  }
  Process(Process&& o) noexcept
      : pid_(std::exchange(o.pid_, -1)), ended_(o.ended_), status_(o.status_), file_(o.file_) {}

  /// True when it has ended, or does within these seconds.
  bool wait(double seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!ended_ && pid_ > 0) {
      ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
      if (ended_ || std::chrono::steady_clock::now() >= until) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ended_;
  }
  Ended end(double seconds) {
    if (!wait(seconds) && pid_ > 0) kill(pid_, SIGKILL), wait(5);
    return {!ended_ ? -1 : WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_), slurp(file_)};
  }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::string file_;
};

/// Ranks 0 to start - 1 of a job of `world`, without a launcher. A rank that is to end by a signal is not waited for. Their store is kept
/// here: no other job can take its port.
inline std::vector<Ended> run_ranks(const std::string& scenario, int start, int world,
                                    const std::string& backend = "tcp", int stops = -1) {
  const TemporaryFolder folder;
  const tapir::distributed::StoreServer store("127.0.0.1", 0);
  const std::string port = std::to_string(store.port());
  std::vector<Process> ranks;
  for (int r = 0; r < start; ++r)
    ranks.emplace_back(
        std::vector{worker(), scenario, backend},
        std::vector{"RANK=" + std::to_string(r), "WORLD_SIZE=" + std::to_string(world),
                    std::string("MASTER_ADDR=127.0.0.1"), "MASTER_PORT=" + port, std::string("TAPIR_STORE_HOSTED=1"),
                    "TAPIR_TEST_FILE=" + (folder / "file"), std::string("OMP_NUM_THREADS=1")},
        folder / std::to_string(r));
  std::vector<Ended> out(static_cast<size_t>(start));
  for (int r = 0; r < start; ++r)
    if (r != stops) out[size_t(r)] = ranks[size_t(r)].end(kHangs);
  if (stops >= 0) out[size_t(stops)] = ranks[size_t(stops)].end(0);
  return out;
}

/// tapir-run with these words before the worker's.
inline Ended launch(std::vector<std::string> options, const std::vector<std::string>& program,
                    const std::vector<std::string>& environment = {}) {
  const TemporaryFolder folder;
  options.insert(options.begin(), build_folder() + "/tapir-run");
  options.insert(options.end(), program.begin(), program.end());
  return Process(options, environment, folder / "out").end(kHangs);
}

/// "N started, N left": of how many processes a line says `child PID`, and how many of those have not ended within 2 s.
inline std::string children(const std::string& output) {
  int found = 0, left = 0;
  for (size_t at = 0; (at = output.find("child ", at)) != std::string::npos; at += 6, ++found) {
    const std::string status = "/proc/" + std::to_string(std::atoi(output.c_str() + at + 6)) + "/stat";
    const auto lives = [&] {
      const std::string text = slurp(status);
      return !text.empty() && text.find(") Z ") == std::string::npos;  // a zombie is init's
    };
    for (int i = 0; i < 200 && lives(); ++i) usleep(10000);
    left += lives();
  }
  return std::to_string(found) + " started, " + std::to_string(left) + " left";
}

}  // namespace tapir_tests
