// Peers: dead ones, silent ones, others' servers, and garbage. Times are those of the processes' common clock.
#include <arpa/inet.h>
#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>

#include <tapir/distributed/door.h>
#include <tapir/distributed/process_group.h>
#include <tapir/tapir.h>

#include "processes.h"
#include "row.h"

namespace reliability {
using namespace tapir;
using distributed::now, distributed::Socket, distributed::Store, distributed::StoreServer;

namespace {

std::string secret() { return distributed::has_libcrypto() ? "a secret of a test" : ""; }
std::vector<std::string> backends() {
  return distributed::gloo_is_available() ? std::vector<std::string>{"tcp", "gloo"} : std::vector<std::string>{"tcp"};
}
Socket connection(int port) { return distributed::connect_to("reliability", "127.0.0.1", port, now() + 10); }
void allow_descriptors() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < 4096) throw Skipped{"fewer than 4,096 file descriptors"};
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}
void tell(const char* what, const std::string& text = "") {
  std::printf("%s %.6f %s\n", what, now(), text.c_str());
  std::fflush(stdout);
}
/// A NaN is not below: an event that never came misses its goal.
double later(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }

}  // namespace

Figure dead_ranks(const Settings& settings) {
  Random random(settings.seed);
  double most = 0, sum = 0;
  int jobs = 0, unnamed = 0;
  for (const std::string& backend : backends())
    for (int i = 0; i < settings.rounds(12, 3); ++i, ++jobs) {
      const char* const kinds[] = {"small", "large", "waits"};
      const auto ended = run_job({"dies", backend, kinds[i % 3], std::to_string(20 + below(random, 300))}, {3, 3, 3});
      const double death = told(ended[1], "death");
      const double took = later(told(ended[0], "error"), told(ended[2], "error")) - death;
      for (const int rank : {0, 2}) unnamed += !says(ended[size_t(rank)], "rank 1 is gone");
      most = later(most, took), sum += took;
    }
  return {"within " + seconds_text(most) + " s (mean " + seconds_text(sum / jobs) + " s) in " + count(jobs) +
              " jobs of 3; " + count(unnamed) + " did not name it",
          unnamed == 0 && most <= settings.seconds(0.3)};
}

/// Rank 1 dies in the middle of what the ranks do, by the signal that nobody can catch.
static void dies(const std::vector<std::string>& words) {
  const auto g = distributed::init_process_group({.backend = words[2], .timeout = 20, .init_timeout = 20});
  g.barrier();
  const double end = now() + std::atof(words[4].c_str()) / 1000;
  const Tensor x = ones({words[3] == "large" ? 1000000 : 100});
  try {
    while (g.rank() != 1 || now() < end)
      if (words[3] != "waits") g.all_reduce(x);
      else if (g.rank() == 1) usleep(1000);
      else g.barrier();
  } catch (const RuntimeError& e) {
    return tell("error", e.what());
  }
  tell("death");
  raise(SIGKILL);
}

Figure silent_strangers(const Settings& settings) {
  allow_descriptors();
  const StoreServer server("127.0.0.1", 0, secret());
  const auto join = [&] {
    const double begin = now();
    Store("127.0.0.1", server.port(), {.secret = secret(), .timeout = 60}).set("x", "y");
    return now() - begin;
  };
  const double alone = join();
  std::vector<Socket> strangers;
  for (int i = 0; i < 1000; ++i) strangers.push_back(connection(server.port()));
  const double store = join() - alone;
  strangers.clear();
  double of_rank[2] = {};
  for (const int n : {0, 1000}) {
    const auto ended = run_job({"joins", std::to_string(n)}, {2, 2});
    of_rank[n > 0] = told(ended[0], "joined") - told(ended[1], "comes");
  }
  const double rank = of_rank[1] - of_rank[0];
  return {"by " + seconds_text(std::max(store, 0.0)) + " s at the store, by " + seconds_text(rank) + " s at a rank",
          store < settings.seconds(2) && rank < settings.seconds(2)};  // a NaN is not below
}

/// Rank 1 opens n connections to rank 0 that say nothing, and comes then.
static void joins(const std::vector<std::string>& words) {
  std::vector<Socket> strangers;
  if (std::atoi(std::getenv("RANK")) == 1) {
    allow_descriptors();
    Store store("127.0.0.1", std::atoi(std::getenv("MASTER_PORT")));
    const int port = std::stoi(store.get("run0/0/at/0"));
    for (int i = 0; i < std::atoi(words[2].c_str()); ++i) strangers.push_back(connection(port));
  }
  tell("comes");
  const auto g = distributed::init_process_group({.timeout = 60, .init_timeout = 60});
  g.barrier();
  tell("joined");
}

static void begins(const std::vector<std::string>&) {
  tell("begin");
  try {
    distributed::init_process_group({.timeout = 20, .init_timeout = 30}).barrier();
  } catch (const RuntimeError& e) {
    tell("error", e.what());
  }
}

namespace {

/// Ranks that were told 2 and 3: seconds until both have said so, from when the second one came.
double disagreement(const std::vector<int>& ranks) {
  const auto ended = run_job({"begins"}, {2, 3}, ranks);
  for (const Ended& e : ended)
    if (!says(e, "WORLD_SIZE")) return std::nan("");
  return later(told(ended[0], "error"), told(ended[1], "error")) -
         later(told(ended[0], "begin"), told(ended[1], "begin"));
}

/// Seconds until a rank says that what listens at its MASTER_ADDR is no store, in words that a user reads while it waits.
double foreign(const std::function<void(const Socket&)>& answer, const char* words) {
  const TemporaryFolder folder;
  const Socket listener = distributed::listen_on("reliability", "127.0.0.1", 0);
  Process rank = started({"begins"},
                         {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "TAPIR_STORE_HOSTED=1",
                          "MASTER_PORT=" + std::to_string(distributed::port_of(listener))},
                         folder / "out");
  Ended seen;
  std::vector<Socket> callers;
  for (const double end = now() + 10; now() < end;) {
    pollfd door{listener.fd(), POLLIN, 0};
    if (poll(&door, 1, 5) > 0) {
      callers.emplace_back(accept(listener.fd(), nullptr, nullptr));
      answer(callers.back());
    }
    seen.output = tapir_tests::slurp(folder / "out");
    if (says(seen, words)) return now() - told(seen, "begin");
  }
  return std::nan("");
}

}  // namespace

Figure wrong_peers(const Settings& settings) {
  const double apart = later(disagreement({0, 1}), disagreement({0, 2}));
  const double silent = foreign([](const Socket&) {}, "says nothing yet");
  const double talks = foreign(
      [](const Socket& s) {
        const std::string text = "SSH-2.0-OpenSSH_9.2p1 Debian-2 and more words than a greeting has\r\n";
        send(s.fd(), text.data(), text.size(), MSG_NOSIGNAL);
      },
      "other words");
  const double hangs_up = foreign([](const Socket& s) { shutdown(s.fd(), SHUT_RDWR); }, "hangs up");
  return {"WORLD_SIZE " + seconds_text(apart) + " s; a server that is silent " + seconds_text(silent) + " s, talks " +
              seconds_text(talks) + " s, hangs up " + seconds_text(hangs_up) + " s",
          later(later(apart, silent), later(talks, hangs_up)) <= settings.seconds(1)};
}

namespace {

/// What a stranger may say to a door, by kind: noise, another protocol, a request of the store without a proof, a false proof.
std::string garbage_of(Random& random, distributed::Service service) {
  std::string bytes;
  const auto noise = [&](int64_t n) {
    while (n-- > 0) bytes += char(random());
  };
  const auto set = [&] {  // a well-formed request: "stranger" becomes "was here"
    const std::string request = std::string(1, 0) + std::string("\x08\0\0\0", 4) + "strangerwas here";
    const uint32_t size = uint32_t(request.size());
    bytes.append(reinterpret_cast<const char*>(&size), 4).append(request);
  };
  distributed::Answer answer{.from = 1, .to = 0};
  switch (below(random, 7)) {
    case 0: noise(1 + below(random, 300)); break;
    case 1:
      bytes = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\nAccept: text/html,application/xml\r\n\r\n";
      break;
    case 2: set(); break;
    case 3:  // a proof by another secret, and the request behind it
      answer.number[0] = char(random());
      answer.proof = distributed::hmac_sha256("guess " + count(below(random, 1000)), std::string(1, char(service)));
      bytes.assign(reinterpret_cast<const char*>(&answer), sizeof answer);
      set();
      break;
    case 4: noise(sizeof answer - 1); break;  // one byte is missing
    case 5: noise(100000); break;
    case 6: break;  // nothing at all
  }
  return bytes;
}

/// One connection after another; every other one is cut off hard. Most are closed by this side.
void pour_garbage(int port, int n, Random& random, distributed::Service service) {
  for (int i = 0; i < n; ++i) {
    const Socket s = connection(port);
    const std::string bytes = garbage_of(random, service);
    send(s.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    const linger hard{1, 0};
    if (i % 2) setsockopt(s.fd(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    char reply[256];
    if (i % 5 == 0) shutdown(s.fd(), SHUT_WR), recv(s.fd(), reply, sizeof reply, 0);
  }
}
int descriptors() {
  int n = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (folder && readdir(folder)) ++n;
  if (folder) closedir(folder);
  return n;
}
int64_t resident_megabytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long all = 0, resident = 0;
  if (!file || std::fscanf(file, "%ld %ld", &all, &resident) != 2) resident = 0;
  if (file) std::fclose(file);
  return int64_t(resident) * sysconf(_SC_PAGESIZE) >> 20;
}

}  // namespace

Figure garbage(const Settings& settings) {
  if (!distributed::has_libcrypto()) throw Skipped{"built without libcrypto, which proves the secret"};
  allow_descriptors();
  Random random(settings.seed);
  const StoreServer server("127.0.0.1", 0, secret());
  Store store("127.0.0.1", server.port(), {.secret = secret(), .timeout = 20});
  store.set("ours", "1");
  const int before = descriptors(), to_store = settings.rounds(8000, 600), to_rank = settings.rounds(2000, 200);
  const int64_t memory = resident_megabytes();
  pour_garbage(server.port(), to_store, random, distributed::Service::Store);
  int harm = store.get("ours") != "1";
  harm += store.has("stranger");
  Store("127.0.0.1", server.port(), {.secret = secret(), .timeout = 20}).set("still", "open");
  for (const char* guess : {"", "a secret", "another secret of a test"}) {
    try {
      Store("127.0.0.1", server.port(), {.secret = guess, .timeout = 5, .patience = 2}).set("stranger", "in");
      ++harm;
    } catch (const RuntimeError&) {}
  }
  harm += store.has("stranger");
  for (int i = 0; i < 300 && descriptors() > before; ++i) usleep(10000);  // strangers have a second
  const bool clean = descriptors() <= before && resident_megabytes() - memory < 32;
  const auto ended = run_job({"survives", std::to_string(to_rank)}, {2, 2}, {}, 120);
  for (const Ended& e : ended) harm += e.status != 0;
  return {count(harm) + " of " + count(to_store) + " at the store and " + count(to_rank) + " at a rank" +
              (clean ? "" : "; descriptors or memory were kept"),
          harm == 0 && clean};
}

/// Rank 1 pours garbage at rank 0's door, then comes; the group works.
static void survives(const std::vector<std::string>& words) {
  if (std::atoi(std::getenv("RANK")) == 1) {
    Random random(3);
    Store store("127.0.0.1", std::atoi(std::getenv("MASTER_PORT")));
    pour_garbage(std::stoi(store.get("run0/0/at/0")), std::atoi(words[2].c_str()), random, distributed::Service::Peers);
  }
  const auto g = distributed::init_process_group({.timeout = 60, .init_timeout = 100});
  const Tensor x = full({1000}, double(g.rank() + 1));
  g.all_reduce(x);
  check(equal(x, full({1000}, 3.0)), "another sum");
}

void out_of_memory_again(const std::vector<std::string>& words);

int rank_main(const std::vector<std::string>& words) try {
  const rlimit no_cores{0, 0};
  setrlimit(RLIMIT_CORE, &no_cores);
  alarm(300);  // nobody hangs for ever
  const std::string& name = words.at(1);
  if (name == "dies") dies(words);
  else if (name == "joins") joins(words);
  else if (name == "begins") begins(words);
  else if (name == "survives") survives(words);
  else if (name == "memory") out_of_memory_again(words);
  else throw std::runtime_error("no scenario " + name);
  return 0;
} catch (const std::exception& e) {
  std::printf("FAILED %s\n", e.what());
  return 1;
}

}  // namespace reliability
