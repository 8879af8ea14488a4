#include "store.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "../core/error.h"
#include "../io/sha256.h"
#include "socket.h"

// On the wire, both ways: uint32 length of what follows, one byte, the rest. A request is an operation, uint32 length of the key, the key,
// the value; a reply is a status and a value. Numbers lie as in memory: all ranks of a job have the same kind of CPU.
namespace tapir::inline v0::distributed {

namespace {

enum class Request : uint8_t { Hello, Set, Get, Add, Has, Remove };
enum class Reply : uint8_t { Ok, TimedOut };
constexpr size_t kMaxStranger = 256, kMaxMessage = size_t(16) << 20;
constexpr double kHelloSeconds = 5;

template <class T> void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T> T take(const std::string& in, size_t at = 0) {
  T value{};
  if (in.size() >= at + sizeof value) std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}
std::string framed(uint8_t first, const std::string& rest) {
  std::string out;
  put(out, uint32_t(rest.size() + 1));
  put(out, first);
  return out + rest;
}
std::string answer_to(const std::string& challenge, const std::string& secret) {
  return io::sha256(io::sha256("tapir store " + secret) + challenge);
}

struct Connection {
  Socket socket;
  std::string challenge, in, out;
  double hello_until = 0;
  bool known = false, broken = false;
  std::string waits_for;  // a key that somebody will set
  double waits_until = 0;
};

}  // namespace

struct StoreServer::State {
  Socket listener;
  std::string secret;
  int wake = -1;
  std::list<Connection> connections;
  std::map<std::string, std::string> table;
  std::thread thread;

  void run() {
    for (;;) {
      std::vector<pollfd> polls{{wake, POLLIN, 0}, {listener.fd(), POLLIN, 0}};
      double next = now() + 60;
      for (const Connection& c : connections) {
        polls.push_back({c.socket.fd(), short(POLLIN | (c.out.empty() ? 0 : POLLOUT)), 0});
        if (!c.known) next = std::min(next, c.hello_until);
        if (!c.waits_for.empty()) next = std::min(next, c.waits_until);
      }
      poll(polls.data(), polls.size(), std::max(0, int((next - now()) * 1000) + 1));
      if (polls[0].revents) return;
      size_t i = 2;
      for (Connection& c : connections) serve(c, polls[i++].revents);
      std::erase_if(connections, [](const Connection& c) { return c.broken; });
      if (polls[1].revents) welcome();
    }
  }

  void welcome() {
    Socket s(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!s) return;
    Connection& c = connections.emplace_back();
    c.socket = std::move(s);
    c.challenge = c.out = random_token();
    c.hello_until = now() + kHelloSeconds;
    flush(c);
  }

  void serve(Connection& c, short events) {
    if (events & (POLLIN | POLLHUP | POLLERR)) read(c);
    const double t = now();
    if (!c.known && t >= c.hello_until) c.broken = true;
    if (!c.waits_for.empty() && t >= c.waits_until) {
      c.waits_for.clear();
      reply(c, Reply::TimedOut, "");
    }
    if (!c.broken) flush(c);
  }

  void read(Connection& c) {
    char buffer[65536];
    for (;;) {
      const ssize_t n = recv(c.socket.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) c.in.append(buffer, size_t(n));
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) c.broken = true;
      if (n < int64_t(sizeof buffer)) break;
      if (c.in.size() > 2 * kMaxMessage) break;
    }
    while (!c.broken && c.in.size() >= 4) {
      const uint32_t size = take<uint32_t>(c.in);
      if (size < 5 || size > (c.known ? kMaxMessage : kMaxStranger)) return void(c.broken = true);
      if (c.in.size() < 4 + size) return;
      const std::string message = c.in.substr(4, size);
      c.in.erase(0, 4 + size);
      const size_t key_size = take<uint32_t>(message, 1);
      if (key_size > message.size() - 5) return void(c.broken = true);
      handle(c, Request(message[0]), message.substr(5, key_size), message.substr(5 + key_size));
    }
  }

  void handle(Connection& c, Request request, const std::string& key, const std::string& value) {
    if (!c.known) {
      c.known = request == Request::Hello && key == answer_to(c.challenge, secret);
      c.broken = !c.known;
      if (c.known) reply(c, Reply::Ok, "");
      return;
    }
    const auto found = table.find(key);
    switch (request) {
      case Request::Set: store(key, value); return reply(c, Reply::Ok, "");
      case Request::Get:
        if (found != table.end()) return reply(c, Reply::Ok, found->second);
        c.waits_for = key;
        c.waits_until = now() + take<double>(value);
        return;
      case Request::Add: {
        std::string sum;
        put(sum, take<int64_t>(value) + (found == table.end() ? 0 : take<int64_t>(found->second)));
        store(key, sum);
        return reply(c, Reply::Ok, sum);
      }
      case Request::Has: return reply(c, Reply::Ok, found == table.end() ? "0" : "1");
      case Request::Remove: table.erase(key); return reply(c, Reply::Ok, "");
      default: c.broken = true;
    }
  }

  void store(const std::string& key, const std::string& value) {
    table[key] = value;
    for (Connection& c : connections)
      if (c.waits_for == key) {
        c.waits_for.clear();
        reply(c, Reply::Ok, value);
        flush(c);
      }
  }

  void reply(Connection& c, Reply status, const std::string& value) { c.out += framed(uint8_t(status), value); }
  void flush(Connection& c) {
    while (!c.out.empty()) {
      const ssize_t n = send(c.socket.fd(), c.out.data(), c.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) c.out.erase(0, size_t(n));
      else if (errno == EINTR) continue;
      else return void(c.broken |= errno != EAGAIN);
    }
  }
};

StoreServer::StoreServer(const std::string& host, int port, const std::string& secret) : state_(new State) {
  try {
    state_->listener = listen_on("StoreServer", host, port);
    set_blocking(state_->listener.fd(), false);
    state_->secret = secret;
    state_->wake = eventfd(0, EFD_CLOEXEC);
    state_->thread = std::thread([s = state_] { s->run(); });
  } catch (...) {
    delete state_;
    throw;
  }
}

StoreServer::~StoreServer() {
  const uint64_t one = 1;
  if (write(state_->wake, &one, sizeof one) == sizeof one) state_->thread.join();
  close(state_->wake);
  delete state_;
}

int StoreServer::port() const { return port_of(state_->listener); }

struct Store::State {
  Socket socket;
  std::atomic<double> timeout = 0;
  std::mutex mutex;

  std::pair<Reply, std::string> ask(Request request, const std::string& key, const std::string& value, double seconds) {
    std::lock_guard lock(mutex);
    check_runtime(bool(socket), "[Store] expected a connection, got one that has failed before");
    std::string rest;
    put(rest, uint32_t(key.size()));
    const std::string message = framed(uint8_t(request), rest + key + value);
    check(message.size() <= kMaxMessage, "[Store] expected a key and value of at most {} bytes, got {}", kMaxMessage,
          message.size());
    const double deadline = now() + seconds;
    try {
      send_all("Store", socket, message.data(), message.size(), deadline);
      uint32_t size = 0;
      recv_all("Store", socket, &size, sizeof size, deadline);
      check_runtime(size >= 1 && size <= kMaxMessage, "[Store] expected a reply of up to {} bytes, got {}", kMaxMessage,
                    size);
      std::string reply(size, '\0');
      recv_all("Store", socket, reply.data(), size, deadline);
      return {Reply(reply[0]), reply.substr(1)};
    } catch (...) {
      socket.close();  // what comes later would answer another question
      throw;
    }
  }
};

Store::Store(const std::string& host, int port, const StoreOptions& options) : state_(new State) {
  try {
    const double deadline = now() + options.timeout;
    state_->timeout = options.timeout;
    state_->socket = connect_to("Store", host, port, deadline);
    std::string challenge(32, '\0');
    recv_all("Store", state_->socket, challenge.data(), challenge.size(), deadline);
    try {
      state_->ask(Request::Hello, answer_to(challenge, options.secret), "", std::max(deadline - now(), 1.0));
    } catch (const RuntimeError& e) {
      fail(ErrorKind::Runtime, "[Store] expected the server at {}:{} to accept this job's secret, got: {}", host, port,
           e.what());
    }
  } catch (...) {
    delete state_;
    throw;
  }
}

Store::~Store() { delete state_; }

void Store::set(const std::string& key, const std::string& value) {
  state_->ask(Request::Set, key, value, state_->timeout);
}

std::string Store::get(const std::string& key, double timeout) {
  if (timeout < 0) timeout = state_->timeout;
  std::string seconds;
  put(seconds, timeout);
  auto [status, value] = state_->ask(Request::Get, key, seconds, timeout + 2);
  check_runtime(status == Reply::Ok, "[Store] expected the key \"{}\" within {} s, got nothing", key, timeout);
  return value;
}

int64_t Store::add(const std::string& key, int64_t amount) {
  std::string value;
  put(value, amount);
  return take<int64_t>(state_->ask(Request::Add, key, value, state_->timeout).second);
}

bool Store::has(const std::string& key) { return state_->ask(Request::Has, key, "", state_->timeout).second == "1"; }

void Store::remove(const std::string& key) { state_->ask(Request::Remove, key, "", state_->timeout); }

void Store::wait(const std::vector<std::string>& keys, double timeout) {
  if (timeout < 0) timeout = state_->timeout;
  const double deadline = now() + timeout;
  std::string missing;
  for (const std::string& key : keys) {
    std::string seconds;
    put(seconds, std::max(deadline - now(), 0.0));
    const auto status = state_->ask(Request::Get, key, seconds, std::max(deadline - now(), 0.0) + 2).first;
    if (status != Reply::Ok) missing += (missing.empty() ? "" : ", ") + key;
  }
  check_runtime(missing.empty(), "[Store] expected every key within {} s, missing: {}", timeout, missing);
}

void Store::set_timeout(double seconds) { state_->timeout = seconds; }

std::string Store::local_address() const { return distributed::local_address(state_->socket); }

}  // namespace tapir::inline v0::distributed
