#include <tapir/distributed/store.h>

#include <arpa/inet.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include <tapir/core/error.h>

#include "../catch.h"
#include "../io/temporary.h"

using namespace tapir;
using namespace tapir_tests;
using distributed::Store, distributed::StoreServer;

/// A connection that says `bytes`; true when the server hangs up on it within the seconds.
static bool is_dropped(int port, const std::string& bytes, int seconds) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(uint16_t(port)), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  timeval limit{seconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char buffer[256];
  bool dropped = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  if (dropped && send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) dropped = false;
  ssize_t n = 1;
  while (dropped && n > 0) n = recv(fd, buffer, sizeof buffer, 0);
  dropped &= n == 0 || errno == ECONNRESET;
  close(fd);
  return dropped;
}

TEST_CASE("store: set, get, add, wait") {
  const StoreServer server("127.0.0.1", 0, "secret");
  Store a("127.0.0.1", server.port(), {.secret = "secret", .timeout = 5}),
      b("127.0.0.1", server.port(), {.secret = "secret"});
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
  StoreServer server("127.0.0.1", 0, "secret");
  CHECK(
      mentions(message_of<RuntimeError>([&] { Store("127.0.0.1", server.port(), {.secret = "other", .timeout = 2}); }),
               {"secret"}));
  CHECK(is_dropped(server.port(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 3));
  CHECK(is_dropped(server.port(), std::string("\xff\xff\xff\x3f", 4), 3));  // 1 GB to come
  CHECK(is_dropped(server.port(), std::string(1000, '\0'), 3));
  std::thread slow([&] { CHECK(is_dropped(server.port(), "a", 8)); });
  Store store("127.0.0.1", server.port(), {.secret = "secret", .timeout = 5});
  store.set("x", "y");
  CHECK(store.get("x") == "y");
  slow.join();
}
