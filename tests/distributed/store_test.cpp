#include <tapir/distributed/store.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <limits>
#include <memory>
#include <thread>

#include <tapir/core/error.h>
#include <tapir/distributed/door.h>
#include <tapir/distributed/process_group.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;
using distributed::Store, distributed::StoreServer, distributed::Socket, distributed::now;

static std::string secret() { return distributed::has_libcrypto() ? "secret" : ""; }

/// A TCP connection, or none, to that port of this machine.
static Socket connection(int port, Socket s = Socket(socket(AF_INET, SOCK_STREAM, 0))) {
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(uint16_t(port)), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(s.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 ? std::move(s) : Socket();
}

/// A connection that says `bytes`; true when the server hangs up on it within the seconds.
static bool is_dropped(int port, const std::string& bytes, int seconds) {
  const Socket stranger = connection(port);
  const int fd = stranger.fd();
  timeval limit{seconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char buffer[256];
  bool dropped = bool(stranger);
  if (dropped && send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) dropped = false;
  ssize_t n = 1;
  while (dropped && n > 0) n = recv(fd, buffer, sizeof buffer, 0);
  return dropped && (n == 0 || errno == ECONNRESET);
}

TEST_CASE("store: set, get, add, wait") {
  const StoreServer server("127.0.0.1", 0, secret());
  Store a("127.0.0.1", server.port(), {.secret = secret(), .timeout = 5}),
      b("127.0.0.1", server.port(), {.secret = secret()});
  a.set("x", std::string("a\0b", 3));
  CHECK(b.get("x") == std::string("a\0b", 3));
  CHECK(a.add("n", 5) == 5);
  CHECK(b.add("n", -7) == -2);
  CHECK((a.has("n") && !a.has("m")));
  a.remove("n");
  CHECK(!b.has("n"));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    b.set("late", std::string(1 << 20, 'z'));
  });
  CHECK(a.get("late").size() == 1 << 20);
  later.join();
  CHECK(mentions(message_of<RuntimeError>([&] { a.get("never", 0.1); }), {"\"never\"", "0.1"}));
  CHECK(mentions(message_of<RuntimeError>([&] { a.wait({"x", "p", "q"}, 0.1); }), {"missing: p, q"}));
  CHECK(a.get("x").size() == 3);  // a timeout leaves the connection as it was
}

TEST_CASE("BI-333 addresses that are none") {
  CHECK_THROWS_AS(StoreServer("127.0.0.1", 70000), ValueError);
  const StoreServer server("127.0.0.1", 0);
  CHECK(mentions(message_of<RuntimeError>([&] { StoreServer again("127.0.0.1", server.port()); }),
                 {"127.0.0.1", "in use"}));
  CHECK_THROWS_AS(Store("127.0.0.1", 0, {.timeout = 0.1}), ValueError);
  CHECK(
      mentions(message_of<RuntimeError>([] { Store("127.0.0.1", 9, {.timeout = 0.1}); }), {"127.0.0.1:9", "refused"}));
  CHECK_THROWS_AS(Store("no such host.invalid", 29500, {.timeout = 0.1}), RuntimeError);
}

TEST_CASE("BI-335 strangers are dropped, and nobody waits for them") {
  StoreServer server("127.0.0.1", 0, secret());
  const std::string refused =
      message_of<RuntimeError>([&] { Store("127.0.0.1", server.port(), {.secret = "0ther", .timeout = 2}); });
  CHECK((mentions(refused, {"secret"}) && !mentions(refused, {"0ther"})));
  CHECK(is_dropped(server.port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 3));
  CHECK(is_dropped(server.port(), std::string("\xff\xff\xff\x3f", 4), 3));  // 1 GB to come
  CHECK(is_dropped(server.port(), std::string(1000, '\0'), 3));
  std::thread slow([&] { CHECK(is_dropped(server.port(), "a", 4)); });
  Store store("127.0.0.1", server.port(), {.secret = secret(), .timeout = 5});
  store.set("x", "y");
  CHECK(store.get("x") == "y");
  slow.join();
}

TEST_CASE("a thousand silent strangers do not delay a client") {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  if (before.rlim_max < 4096) SKIP_TEST("fewer than 4,096 file descriptors");
  const rlimit more{before.rlim_max, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &more);
  const StoreServer server("127.0.0.1", 0, secret());
  std::vector<Socket> strangers;
  for (int i = 0; i < 1000; ++i) strangers.push_back(connection(server.port()));
  const double begin = now();
  Store("127.0.0.1", server.port(), {.secret = secret(), .timeout = 30}).set("x", "y");
  CHECK(now() - begin < 5);
  CHECK(std::all_of(strangers.begin(), strangers.end(), [](const Socket& s) { return bool(s); }));
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("a client that has the patience waits for a server that is held up") {
  Socket listener = distributed::listen_on("test", "127.0.0.1", 0);  // the system accepts for it
  const int port = distributed::port_of(listener);
  distributed::Door door(std::move(listener), distributed::Service::Store, secret());
  std::atomic<bool> came = false;
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    std::vector<pollfd> polls;
    for (const double end = now() + 10; !came && now() < end;) {
      polls.clear();
      door.watch(polls);
      poll(polls.data(), polls.size(), 10);
      came = !door.admit(polls).empty();
    }
  });
  CHECK_NOTHROW(Store("127.0.0.1", port, {.secret = secret(), .timeout = 30, .patience = 30}));
  late.join();
  CHECK(came);
}

/// What f writes on stderr.
template <class F> static std::string stderr_of(F f) {
  const TemporaryFolder folder;
  std::fflush(stderr);
  const int before = dup(2), file = open((folder / "text").c_str(), O_WRONLY | O_CREAT, 0600);
  dup2(file, 2);
  f();
  std::fflush(stderr);
  dup2(before, 2), close(before), close(file);
  return slurp(folder / "text");
}

TEST_CASE("a server of another kind is told from a store") {
  const Socket silent = distributed::listen_on("test", "127.0.0.1", 0);  // the system accepts for it
  const auto refused = [](int port) {
    const double begin = now();
    const std::string text =
        message_of<RuntimeError>([&] { Store("127.0.0.1", port, {.timeout = 60, .patience = 2}); });
    CHECK(now() - begin < 10);
    return text;
  };
  std::string text;
  const std::string told = stderr_of([&] { text = refused(distributed::port_of(silent)); });
  CHECK(mentions(text, {"127.0.0.1:", "no proof in time"}));
  CHECK(mentions(told, {"tapir: [Store] 127.0.0.1:", "says nothing yet"}));
  const Socket rude = distributed::listen_on("test", "127.0.0.1", 0);
  std::atomic<bool> over = false;
  std::thread hangs_up([&] {
    distributed::set_blocking(rude.fd(), false);
    for (; !over; usleep(1000)) Socket(accept(rude.fd(), nullptr, nullptr));
  });
  CHECK(mentions(stderr_of([&] { text = refused(distributed::port_of(rude)); }), {"127.0.0.1:", "hangs up"}));
  CHECK(mentions(text, {"127.0.0.1:", "no proof in time"}));
  over = true;
  hangs_up.join();
  const Socket talks = distributed::listen_on("test", "127.0.0.1", 0);
  std::thread greets([&] {
    const Socket caller(accept(talks.fd(), nullptr, nullptr));
    const std::string words = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    send(caller.fd(), words.data(), words.size(), MSG_NOSIGNAL);
  });
  CHECK(mentions(refused(distributed::port_of(talks)), {"127.0.0.1:", "other words"}));
  greets.join();
}

TEST_CASE("both sides prove the secret, and neither sends it") {
  using namespace distributed;
  if (!has_libcrypto()) SKIP_TEST("built without libcrypto");
  const Proof rfc = hmac_sha256("Jefe", "what do ya want for nothing?");  // RFC 4231, test case 2
  CHECK(std::string(rfc.begin(), rfc.begin() + 8) == "\x5b\xdc\xc1\x46\xbf\x60\x75\x4e");
  // A server that takes anybody and does not know the secret.
  const Socket listener = listen_on("test", "127.0.0.1", 0);
  std::string heard;
  std::thread fake([&] {
    const Socket caller(accept(listener.fd(), nullptr, nullptr));
    Greeting g;
    g.magic[7] = char(Service::Store);
    send_all("test", caller, &g, sizeof g, now() + 5);
    Answer a;
    recv_all("test", caller, &a, sizeof a, now() + 5);
    heard.assign(reinterpret_cast<const char*>(&a), sizeof a);
    Verdict v{.accepted = 1, .proof = a.proof};  // the caller's own, reflected
    send_all("test", caller, &v, sizeof v, now() + 5);
  });
  const std::string text =
      message_of<RuntimeError>([&] { Store("127.0.0.1", port_of(listener), {.secret = "ssh!", .timeout = 5}); });
  fake.join();
  CHECK((mentions(text, {"does not know the secret"}) && text.find("ssh!") == std::string::npos));
  CHECK((heard.size() == sizeof(Answer) && heard.find("ssh!") == std::string::npos));
}

/// An address of this machine that others reach; empty where there is none.
static std::string far_address() {
  ifaddrs* list = nullptr;
  std::string found;
  if (getifaddrs(&list) != 0) return found;
  for (const ifaddrs* a = list; a; a = a->ifa_next) {
    char text[NI_MAXHOST] = "";
    if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET) continue;
    getnameinfo(a->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    if (!distributed::is_loopback("test", text)) found = text;
  }
  freeifaddrs(list);
  return found;
}

TEST_CASE("a store listens at the address that was named, and off this machine with a secret alone") {
  const StoreServer here("127.0.0.2", 0);
  CHECK(!connection(here.port()));
  for (const std::string& host : {std::string("0.0.0.0"), far_address()}) {
    if (host.empty()) continue;
    if (!distributed::has_libcrypto()) {
      CHECK(mentions(message_of<RuntimeError>([&] { StoreServer(host, 0, "0123456789abcdef"); }), {"libssl-dev"}));
      continue;
    }
    for (const char* secret : {"", "0123456789abcde"}) {
      CHECK(mentions(message_of<ValueError>([&] { StoreServer(host, 0, secret); }), {"TAPIR_STORE_SECRET", "16"}));
      CHECK(mentions(message_of<ValueError>([&] { Store(host, 1, {.secret = secret, .timeout = 0}); }), {"[Store]"}));
    }
    const StoreServer far(host, 0, "0123456789abcdef");
    CHECK(bool(connection(far.port())) == (host == "0.0.0.0"));
  }
  CHECK_THROWS_AS(StoreServer("", 0), ValueError);
  distributed::check_far("test", "127.0.0.2");
  CHECK_THROWS_AS(distributed::check_far("test", "0x7f.1"), ValueError);  // a name of 127.0.0.1, as of some /etc/hosts
}

TEST_CASE("a store that is full says so, and goes on") {
  const StoreServer server("127.0.0.1", 0);
  Store store("127.0.0.1", server.port(), {.timeout = 20});
  CHECK(mentions(message_of<ValueError>([&] { store.set(std::string(1025, 'k'), ""); }), {"1024", "1025"}));
  CHECK(mentions(message_of<ValueError>([&] { store.set("k", std::string((1 << 20) + 1, 'v')); }), {"1048577"}));
  int stored = 0;
  const std::string text = message_of<RuntimeError>([&] {
    for (; stored < 600; ++stored) store.set(std::to_string(stored), std::string(1 << 20, 'v'));
  });
  CHECK((stored == 255 && mentions(text, {"\"255\"", "full"})));  // the keys take their bytes of 256 MiB
  store.remove("0");
  store.set("255", std::string(1 << 20, 'v'));
  CHECK(store.add("n", 2) == 2);
}

TEST_CASE("a server without file descriptors waits for some") {
  const StoreServer server("127.0.0.1", 0);
  Socket caller(socket(AF_INET, SOCK_STREAM, 0));
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int lowest = dup(0);
  close(lowest);
  const rlimit none{rlim_t(lowest), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  caller = connection(server.port(), std::move(caller));
  const auto cpu = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
  };
  const double begin = cpu();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  CHECK(cpu() - begin < 0.4);  // a loop that asks again and again takes all of it
  setrlimit(RLIMIT_NOFILE, &before);
  distributed::Greeting g;
  distributed::recv_all("test", caller, &g, sizeof g, now() + 5);
  CHECK(g.magic[0] == 't');
}

/// Does f() give true in a process that is forked from this one, within 20 s?
template <class F> static bool holds_in_child(F f) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(f() ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

/// Until its end this process gets n file descriptors more.
static void leave_descriptors(int n) {
  const int lowest = dup(0);
  close(lowest);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = rlim_t(lowest + n);
  setrlimit(RLIMIT_NOFILE, &files);
}

/// A connection that has proven the secret, without the checks of Store.
static Socket bare_client(const StoreServer& server) {
  return distributed::knock("test", "127.0.0.1", server.port(), distributed::Service::Store, secret(), 0, 0, now() + 5,
                            5);
}

TEST_CASE("a store refuses an empty key") {
  const StoreServer server("127.0.0.1", 0, secret());
  Store a("127.0.0.1", server.port(), {.secret = secret(), .timeout = 5}),
      b("127.0.0.1", server.port(), {.secret = secret(), .timeout = 5});
  a.set("x", "1"), a.set("y", "2");
  CHECK(mentions(message_of<ValueError>([&] { a.set("", "stray"); }), {"[Store]", "key"}));
  CHECK_THROWS_AS(a.get("", 0.1), ValueError);
  CHECK_THROWS_AS(a.add("", 1), ValueError);
  CHECK_THROWS_AS(a.has(""), ValueError);
  CHECK_THROWS_AS(a.remove(""), ValueError);
  CHECK((a.get("x") == "1" && b.get("x") == "1" && a.get("y") == "2" && b.get("y") == "2"));
  const Socket bare = bare_client(server);
  const char set[] = {5, 0, 0, 0, 0, 0, 0, 0, 0};  // Set, a key of no bytes
  distributed::send_all("test", bare, set, sizeof set, now() + 5);
  char reply = 0;
  CHECK(mentions(message_of<RuntimeError>([&] { distributed::recv_all("test", bare, &reply, 1, now() + 2); }),
                 {"closed by the peer"}));
}

TEST_CASE("a store, and its server, stay with the process that made them") {
  auto server = std::make_unique<StoreServer>("127.0.0.1", 0, secret());
  Store store("127.0.0.1", server->port(), {.secret = secret(), .timeout = 3});
  store.set("x", "1");
  CHECK(holds_in_child([&] {
    return mentions(message_of<RuntimeError>([&] { store.get("x"); }), {"[Store]", "forked"});
  }));
  CHECK(holds_in_child([&] {
    server.reset();
    return true;
  }));
  CHECK(store.get("x") == "1");
}

TEST_CASE("a store adds to numbers alone") {
  const StoreServer server("127.0.0.1", 0);
  Store store("127.0.0.1", server.port(), {.timeout = 5});
  for (const char* text : {"5", "12345678"}) {
    store.set("text", text);
    CHECK(mentions(message_of<ValueError>([&] { store.add("text", 1); }), {"[Store]", "\"text\""}));
    CHECK(store.get("text") == text);
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  CHECK((store.add("most", kMost) == kMost && store.add("least", kLeast) == kLeast));
  CHECK(mentions(message_of<ValueError>([&] { store.add("most", 1); }), {"\"most\"", "int64"}));
  CHECK(mentions(message_of<ValueError>([&] { store.add("least", -1); }), {"\"least\"", "int64"}));
  CHECK((store.add("most", 0) == kMost && store.add("least", 1) == kLeast + 1));
}

TEST_CASE("NaN is no number of seconds, and infinity is one") {
  const StoreServer server("127.0.0.1", 0, secret());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto open = [&](double timeout, double patience) {
    return std::make_unique<Store>("127.0.0.1", server.port(), distributed::StoreOptions{secret(), timeout, patience});
  };
  const auto refuses = [&](auto f) {
    return holds_in_child([&] {
      const auto store = open(5, 5);
      return mentions(message_of<ValueError>([&] { f(*store); }), {"[Store]", "nan"});
    });
  };
  CHECK(refuses([&](Store&) { open(nan, 5); }));
  CHECK(refuses([&](Store&) { open(5, nan); }));
  CHECK(refuses([&](Store& s) { s.get("never", nan); }));
  CHECK(refuses([&](Store& s) { s.wait({"never"}, nan); }));
  CHECK(refuses([&](Store& s) { s.set_timeout(nan); }));
  CHECK(holds_in_child([&] {
    open(INFINITY, INFINITY)->set("x", "1");
    return open(INFINITY, INFINITY)->get("x", INFINITY) == "1";
  }));
  // Where one comes by the wire, or as a deadline, it is over.
  const Socket bare = bare_client(server);
  char get[18] = {14, 0, 0, 0, 1, 1, 0, 0, 0, 'k'}, reply[5] = {};
  std::memcpy(get + 10, &nan, sizeof nan);
  distributed::send_all("test", bare, get, sizeof get, now() + 5);
  CHECK_NOTHROW(distributed::recv_all("test", bare, reply, sizeof reply, now() + 2));
  CHECK(holds_in_child([&] {
    return mentions(message_of<RuntimeError>([&] { distributed::recv_all("test", bare, reply, 1, nan); }),
                    {"timed out"});
  }));
  CHECK(holds_in_child([&] {
    return mentions(message_of<RuntimeError>([&] { distributed::connect_to("test", "127.0.0.1", 9, nan); }), {":9"});
  }));
}

TEST_CASE("the last file descriptors: an error that says so, at once") {
  const StoreServer server("127.0.0.1", 0, secret());
  for (const int left : {0, 1})
    CHECK(holds_in_child([&] {
      leave_descriptors(left);
      const std::string text = message_of<RuntimeError>([] { StoreServer("127.0.0.1", 0); });
      return mentions(text, {"[StoreServer]", "Too many open files"});
    }));
  CHECK(holds_in_child([&] {
    leave_descriptors(0);
    return mentions(
        message_of<RuntimeError>([&] { distributed::connect_to("test", "127.0.0.1", server.port(), now() + 60); }),
        {"127.0.0.1:", "Too many open files"});
  }));
}

TEST_CASE("no thread to be had: an error of the call that wanted one") {
  pthread_attr_t before, huge;
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, size_t(1) << 46);  // more than there are addresses
  pthread_getattr_default_np(&before);
  if (pthread_setattr_default_np(&huge) != 0) SKIP_TEST("the size of a thread's stack cannot be set here");
  const auto said = [](auto f) {
    try {
      f();
    } catch (const RuntimeError& e) {
      return std::string(e.what());
    } catch (const std::exception& e) {
      return std::string("of another type: ") + e.what();
    }
    return std::string();
  };
  const std::string server = said([] { StoreServer("127.0.0.1", 0); });
  const std::string group = said([] { distributed::init_process_group({.launch = {.rank = 0, .world_size = 1}}); });
  pthread_setattr_default_np(&before);
  CHECK(mentions(server, {"[StoreServer] expected a thread"}));
  CHECK(mentions(group, {"[init_process_group] expected a thread"}));
  CHECK(!distributed::is_initialized());
}
