// What goes wrong: each rank gets a typed error, in time.
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <numeric>
#include <thread>

#include <tapir/distributed/ddp.h>
#include <tapir/distributed/elastic.h>
#include <tapir/distributed/once.h>
#include <tapir/distributed/socket.h>
#include <tapir/distributed/store.h>

#include "worker.h"

namespace worker {

/// f fails on every rank but those that die in it; the words must be in what they say.
template <class F>
static void expect_failure(F&& f, double least, double most, std::initializer_list<const char*> words) {
  ProcessGroup g = distributed::init_process_group(options);
  g.barrier();
  const double begin = seconds();
  const std::string text = error_of<RuntimeError>([&] { f(g); });
  const double took = seconds() - begin;
  for (const char* word : words) check(has(text, word), "expected \"{}\" in \"{}\"", word, text);
  check(took >= least && took <= most, "expected the error within {} to {} s, got {}", least, most, took);
  EXPECT(has(error_of<RuntimeError>([&] { g.barrier(); }), "has failed before"));
  g = ProcessGroup();
  const double end = seconds();
  distributed::destroy_process_group();
  EXPECT(seconds() - end < 1);
}

static void wrong_shape() {
  expect_failure([](const ProcessGroup& g) { g.all_reduce(ones({second() ? 2000 : 1000})); }, 0, 5,
                 {"[all_reduce]", "#2", "1000 x float32", "2000 x float32", "rank 1"});
}
static void wrong_dtype() {
  expect_failure([](const ProcessGroup& g) { g.all_reduce(ones({1000}, {.dtype = second() ? kFloat64 : kFloat32})); },
                 0, 10, {"1000 x float32", "1000 x float64"});
}
static void wrong_order() {
  options.debug = true;
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string text = error_of<RuntimeError>([&] {
    if (second()) g.broadcast(ones({10}));
    else g.all_reduce(ones({10}));
  });
  for (const char* word : {"rank 0: all_reduce(sum) #1", "rank 1: broadcast(root 0) #1"}) EXPECT(has(text, word));
  g.all_reduce(ones({10}));  // nothing was changed: the group goes on
}
/// The same place in the order, without the debug mode: a collective of another kind, or with another root.
static void wrong_call() {
  expect_failure([](const ProcessGroup& g) { second() ? g.broadcast(ones({1000}), 1) : g.all_reduce(ones({1000})); }, 0,
                 10, {"ranks do different things", "all_reduce(sum) #2", "broadcast(root 1) #2"});
}
static void wrong_root() {
  const auto once = [](bool to_root, int64_t one, int64_t other) {
    expect_failure(
        [&](const ProcessGroup& g) {
          const int64_t root = second() ? one : other;
          to_root ? g.reduce(ones({1000}), root) : g.broadcast(ones({1000}), root);
        },
        0, 10, {"ranks do different things", "(root 0) #2", "(root 1) #2"});
  };
  for (const bool to_root : {false, true}) once(to_root, 0, 1), once(to_root, 1, 0);
}
/// Nothing is caught: the first rank that ends has its launcher end the other.
static void uncaught() {
  const ProcessGroup g = distributed::init_process_group(options);
  for (int i = 0; i < 100; ++i) g.all_reduce(ones({1000}, {.dtype = second() && i == 99 ? kFloat64 : kFloat32}));
}
static void killed() {
  expect_failure(
      [](const ProcessGroup& g) {
        if (second()) raise(SIGKILL);
        for (;;) g.all_reduce(ones({300000}));
      },
      0, 10, {"all_reduce(sum) #", "rank 1 is gone"});
}
static void stopped() {
  options.timeout = 2;
  expect_failure(
      [](const ProcessGroup& g) {
        if (second()) raise(SIGSTOP);
        g.all_reduce(ones({1000}));
      },
      1.9, 15,
      {"all_reduce(sum) #2", "timed out after 2", options.backend == "tcp" ? "missing ranks: 1" : "missing ranks:"});
}
static void absent() {  // of three ranks two are started
  options.init_timeout = 2;
  const std::string text = error_of<RuntimeError>([] { distributed::init_process_group(options); });
  for (const char* word : {"expected 3 ranks", "missing: 2", "came: 0, 1"}) EXPECT(has(text, word));
}
static void late() {
  if (second()) usleep(700000);
  const ProcessGroup g = distributed::init_process_group(options);
  g.barrier();
}

/// Comes when the others have given up.
static void too_late() {
  options.init_timeout = second() ? 20 : 1;
  if (second()) usleep(1800000);
  const std::string text = error_of<RuntimeError>([] { distributed::init_process_group(options); });
  EXPECT(has(text, second() ? "the others have given up" : "missing: 1"));
}

/// A child has the group's memory and none of its threads.
static void forked() {
  ProcessGroup g = distributed::init_process_group(options);
  g.barrier();
  Tensor x = ones({3});
  const Work work = g.recv(x, 1 - my_rank(), 7, true);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool well = true;
    const auto refuses = [&](const char* op, auto&& f) {
      const std::string text = error_of<RuntimeError>(f);
      well &= has(text, op) && has(text, "forked");
    };
    refuses("[all_reduce]", [&] { g.all_reduce(x); });
    refuses("[barrier]", [&] { g.barrier(true); });
    refuses("[send]", [&] { g.send(x, 1 - my_rank()); });
    refuses("[new_group]", [&] { g.new_group({0, 1}); });
    refuses("[wait]", [&] { work.wait(); });
    refuses("[is_completed]", [&] { (void)work.is_completed(); });
    well &= g.rank() == my_rank();
    distributed::destroy_process_group();
    g = ProcessGroup();
    std::fflush(stdout);
    _exit(well ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT(status == 0);
  g.send(x, 1 - my_rank(), 7);  // here the group goes on
  work.wait();
  g.barrier();
}

/// Rank 1 comes when 1,000 connections that say nothing stand before it at rank 0.
static void strangers() {
  const double begin = seconds();
  std::vector<distributed::Socket> silent;
  if (second()) {
    distributed::Store store("127.0.0.1", number_from("MASTER_PORT", 0));
    const int port = std::stoi(store.get("run0/0/at/0"));
    for (int i = 0; i < 1000; ++i) silent.push_back(distributed::connect_to("test", "127.0.0.1", port, begin + 60));
  }
  const double came = seconds();
  distributed::init_process_group(options).barrier();
  std::printf("1,000 connections %.2f s, joined %.2f s later\n", came - begin, seconds() - came);
  EXPECT(seconds() - came < 5);
}

/// Rank 0 has been told of two ranks, another one of three.
static void disagree_with(int64_t other) {
  options.launch = {.rank = second() ? other : 0, .world_size = second() ? 3 : 2};
  options.init_timeout = 100;
  const double begin = seconds();
  const std::string text = error_of<RuntimeError>([] { distributed::init_process_group(options); });
  for (const char* word : {"WORLD_SIZE", "2", "3"}) EXPECT(has(text, word));
  std::printf("after %.2f s\n", seconds() - begin);
  EXPECT(seconds() - begin < 20);
}
static void world_sizes() { disagree_with(1); }
static void world_sizes_apart() { disagree_with(2); }

/// This process's connections to peers break; the one to the store stays.
static void cut_links() {
  const int store = number_from("MASTER_PORT", 0);
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_in ends[2] = {};
    socklen_t n = sizeof ends[0], m = n;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&ends[0]), &n) != 0 || ends[0].sin_family != AF_INET) continue;
    getsockname(fd, reinterpret_cast<sockaddr*>(&ends[1]), &m);
    if (ntohs(ends[0].sin_port) != store && ntohs(ends[1].sin_port) != store) shutdown(fd, SHUT_RDWR);
  }
}
static void closed_link() {
  options.timeout = 5;  // all learn it within that; with gloo the rank that was cut off sometimes not before
  expect_failure(
      [](const ProcessGroup& g) {
        std::thread cutter;
        if (second())
          cutter = std::thread([] {
            usleep(100000);
            cut_links();
          });
        const auto join = [&] { return cutter.joinable() ? cutter.join() : void(); };
        try {
          for (;;) g.all_reduce(ones({300000}));
        } catch (...) {
          join();
          throw;
        }
      },
      0, 10, {"all_reduce(sum) #", " is gone"});
}

/// The checkpoint of rank 0 does not fit: all ranks learn it, the file of before is whole, and training could go on.
static void disk_full() {
  const ProcessGroup g = distributed::init_process_group(options);
  const std::string path = std::getenv("TAPIR_TEST_FILE");
  const StateDict good = {{"x", full({1000}, 1.0)}}, more = {{"x", full({1000000}, 2.0)}};
  distributed::once(g, [&] { io::save_safetensors(path, good); });
  EXPECT(equal(io::load_safetensors(path).at("x"), good.at("x")));
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{65536, RLIM_INFINITY};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string text =
      error_of<RuntimeError>([&] { distributed::once(g, [&] { io::save_safetensors(path, more); }); });
  EXPECT(has(text, path) && has(text, "[once] rank 0 failed") == (g.rank() != 0));
  EXPECT(equal(io::load_safetensors(path).at("x"), good.at("x")));
  Tensor x = ones({3});
  g.all_reduce(x);
  EXPECT(x.sum().item() == 3.0 * double(g.size()));
  // Where only rank 0 sees the disk, the others have the file from it.
  const StateDict all = distributed::broadcast_state_dict(g.rank() ? StateDict() : io::load_safetensors(path), g);
  EXPECT(all.size() == 1 && equal(all.at("x"), good.at("x")));
}

/// Rank 1 has one batch less than the others, and goes on to count its results, or leaves.
static void uneven() {
  const ProcessGroup g = distributed::init_process_group(options);
  nn::Linear net(4, 2);
  distributed::DistributedDataParallel ddp(net);
  const std::string text = error_of<RuntimeError>([&] {
    for (int step = 0; step < (second() ? 4 : 5); ++step) ddp(ones({2, 4})).sum().backward();
    g.all_reduce(zeros({2}, {.dtype = kInt64}));
  });
  EXPECT(has(text, "ranks do different things") || has(text, "is gone"));
}
static void uneven_and_gone() {
  ProcessGroup g = distributed::init_process_group(options);
  nn::Linear net(4, 2);
  const std::string text = error_of<RuntimeError>([&] {
    distributed::DistributedDataParallel ddp(net);
    for (int step = 0; step < (second() ? 4 : 5); ++step) ddp(ones({2, 4})).sum().backward();
  });
  EXPECT(second() || has(text, "is gone"));
}

/// destroy and init again, with a store that stays.
static void again() {
  for (int i = 0; i < 3; ++i) {
    const ProcessGroup g = distributed::init_process_group(options);
    g.barrier();
    distributed::destroy_process_group();
  }
}

static void forked_elastic() {
  nn::Linear net(2, 2);
  distributed::Elastic elastic(net, options);
  elastic.run([&](const ProcessGroup& g, int64_t) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const std::string text = error_of<RuntimeError>([&] { elastic.commit(1); });
      std::fflush(stdout);
      _exit(has(text, "[Elastic]") && has(text, "forked") ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT(status == 0);
    elastic.commit(1);
    g.barrier();
  });
}

/// Both ranks say at once what differs.
static void disagree() {
  const auto differ = [](const char* what, auto&& f) {
    const double begin = seconds();
    EXPECT(has(error_of<RuntimeError>(f), what));
    EXPECT(seconds() - begin < 10);
  };
  options.debug = second();
  differ("debug", [] { distributed::init_process_group(options); });
  options.debug = false;
  if (distributed::gloo_is_available()) {
    options.backend = second() ? "gloo" : "tcp";
    differ("gloo", [] { distributed::init_process_group(options); });
    options.backend = "tcp";
  }
  const ProcessGroup g = distributed::init_process_group(options);
  differ("(1, 0)", [&] { second() ? g.new_group({1, 0}) : g.new_group({0, 1}); });
  g.barrier();
}

/// Later than gloo waits for a connection: a fifth of init_timeout.
static void late_to_collective() {
  options.init_timeout = 10;  // of which gloo makes 2
  const ProcessGroup g = distributed::init_process_group(options);
  g.barrier();
  if (second()) usleep(2500000);
  Tensor x = ones({3});
  g.all_reduce(x);
  EXPECT(x.sum().item() == 6);
}

static void for_ever() {
  for (const double timeout : {double(INFINITY), 1e10}) {
    options.timeout = options.init_timeout = timeout;
    const ProcessGroup g = distributed::init_process_group(options);
    if (second()) usleep(200000);
    Tensor x = ones({3}), y = ones({3});
    g.all_reduce(x);
    if (second()) usleep(200000), g.send(x, 0);
    else g.recv(y, 1);
    EXPECT(x.sum().item() == 6 && (second() || y.sum().item() == 6));
    distributed::destroy_process_group();
  }
}

static void message_calls() {
  options.timeout = 5;
  const ProcessGroup g = distributed::init_process_group(options);
  Tensor x = ones({3});
  if (second()) usleep(2500000), g.send(x, 0);
  else {
    const Work work = g.recv(x, 1, 0, true);
    std::thread waits([&] { work.wait(); });
    usleep(100000);
    const double begin = seconds();
    const bool there = work.is_completed();
    const double took = seconds() - begin;
    waits.join();
    std::printf("is_completed took %.2f s\n", took);
    EXPECT(!there && took < 1.5 && work.is_completed());
  }
  g.barrier();
  if (second()) return void(usleep(6000000));
  EXPECT(has(error_of<RuntimeError>([&] { g.recv(x, 1, 5); }), "[recv] recv of 3 x float32"));
  EXPECT(has(error_of<RuntimeError>([&] { g.send(x, 1, 5); }), "[send] send of 3 x float32: the group has failed"));
}

/// More ranks than a tensor has dimensions.
static void many() {
  const ProcessGroup g = distributed::init_process_group(options);
  std::vector<int64_t> ranks(size_t(g.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const ProcessGroup all = g.new_group(ranks);
  all.barrier();
  ranks.back() = 0;
  EXPECT(has(error_of<ValueError>([&] { g.new_group(ranks); }), "15, 16, 0)"));
}

static void no_thread() {
  const ProcessGroup g = distributed::init_process_group(options);
  g.barrier();
  pthread_attr_t before, huge;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, size_t(1) << 46);  // more than there are addresses
  if (second() && pthread_setattr_default_np(&huge) != 0) std::printf("a stack of any size\n");
  const std::string text = error_of<RuntimeError>([&] { g.all_reduce(ones({3})); });
  pthread_setattr_default_np(&before);
  EXPECT(has(text, second() ? "expected a thread" : "rank 1 is gone"));
}

static void line_break() {
  const ProcessGroup g = distributed::init_process_group(options);
  for (const int64_t src : {0, 1}) {
    const StateDict bad = {{"a", ones({2})}, {"b\nc", ones({2})}};
    const std::string text = error_of<std::exception>([&] { distributed::broadcast_state_dict(bad, g, src); });
    EXPECT(has(text, "[broadcast_state_dict]") && has(text, "names of one line"));
    EXPECT(has(text, "failed: ") == (g.rank() != src));
    g.barrier();
  }
}

std::vector<Scenario> fault_scenarios() {
  return {{"wrong_shape", wrong_shape},
          {"wrong_dtype", wrong_dtype},
          {"wrong_order", wrong_order},
          {"wrong_call", wrong_call},
          {"wrong_root", wrong_root},
          {"uncaught", uncaught},
          {"killed", killed},
          {"stopped", stopped},
          {"absent", absent},
          {"late", late},
          {"too_late", too_late},
          {"closed_link", closed_link},
          {"disk_full", disk_full},
          {"uneven", uneven},
          {"uneven_and_gone", uneven_and_gone},
          {"again", again},
          {"forked", forked},
          {"forked_elastic", forked_elastic},
          {"disagree", disagree},
          {"late_to_collective", late_to_collective},
          {"for_ever", for_ever},
          {"message_calls", message_calls},
          {"many", many},
          {"no_thread", no_thread},
          {"line_break", line_break},
          {"strangers", strangers},
          {"world_sizes", world_sizes},
          {"world_sizes_apart", world_sizes_apart}};
}

}  // namespace worker
