#include "store.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "../core/error.h"
#include "door.h"

// On the wire, both ways: uint32 length of what follows, one byte, the rest. A request is an operation, uint32 length of the key, the key,
// the value; a reply is a status and a value. Numbers lie as in memory: all ranks of a job have the same kind of CPU.
namespace tapir::inline v0::distributed {

namespace {

enum class Request : uint8_t { Set, Get, Add, Has, Remove };
enum class Reply : uint8_t { Ok, TimedOut, Full, NoNumber, Overflow };
constexpr size_t kMaxKey = 1024, kMaxValue = size_t(1) << 20, kMaxMessage = kMaxKey + kMaxValue + 5;
constexpr size_t kMaxBytes = size_t(256) << 20, kMaxKeys = size_t(1) << 20, kMaxClients = 16384;

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

struct Connection {
  Socket socket;
  std::string in, out;
  bool broken = false;
  std::optional<std::string> waits_for;  // a key that somebody will set
  double waits_until = 0;
};
struct Value {
  std::string bytes;
  bool is_number = false;  // add() made it
};

}  // namespace

struct StoreServer::State {
  explicit State(Door d) : door(std::move(d)) {}
  Door door;
  const int process = getpid();
  Socket wake = event_of("StoreServer");
  std::list<Connection> connections;
  std::map<std::string, Value> table;
  size_t bytes = 0;  // of the table
  std::thread thread;

  void run() {
    for (std::vector<pollfd> polls;;) {
      polls.assign(1, {wake.fd(), POLLIN, 0});
      double next = door.due();
      for (const Connection& c : connections) {
        polls.push_back({c.socket.fd(), short(POLLIN | (c.out.empty() ? 0 : POLLOUT)), 0});
        if (c.waits_for) next = std::min(next, c.waits_until);
      }
      door.watch(polls);
      poll(polls.data(), polls.size(), std::max(0, int((next - now()) * 1000) + 1));
      if (polls[0].revents) return;
      size_t i = 1;
      for (Connection& c : connections) serve(c, polls[i++].revents);
      for (Door::Guest& guest : door.admit(std::span(polls).subspan(i)))
        if (connections.size() < kMaxClients) connections.emplace_back().socket = std::move(guest.socket);
      std::erase_if(connections, [](const Connection& c) { return c.broken; });
    }
  }

  void serve(Connection& c, short events) {
    if (events & (POLLIN | POLLHUP | POLLERR)) read(c);
    if (c.waits_for && !(now() < c.waits_until)) {
      c.waits_for.reset();
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
      if (size < 5 || size > kMaxMessage) return void(c.broken = true);
      if (c.in.size() < 4 + size) return;
      const std::string message = c.in.substr(4, size);
      c.in.erase(0, 4 + size);
      const size_t key_size = take<uint32_t>(message, 1);
      if (key_size == 0 || key_size > std::min(kMaxKey, message.size() - 5)) return void(c.broken = true);
      handle(c, Request(message[0]), message.substr(5, key_size), message.substr(5 + key_size));
    }
  }

  void handle(Connection& c, Request request, const std::string& key, const std::string& value) {
    const auto found = table.find(key);
    switch (request) {
      case Request::Set: return reply(c, store(key, {value}), "");
      case Request::Get:
        if (found != table.end()) return reply(c, Reply::Ok, found->second.bytes);
        c.waits_for = key;
        c.waits_until = now() + take<double>(value);
        return;
      case Request::Add: {
        int64_t sum = take<int64_t>(value);
        if (found != table.end() && !found->second.is_number) return reply(c, Reply::NoNumber, "");
        if (found != table.end() && __builtin_add_overflow(sum, take<int64_t>(found->second.bytes), &sum))
          return reply(c, Reply::Overflow, "");
        std::string bytes;
        put(bytes, sum);
        return reply(c, store(key, {bytes, true}), bytes);
      }
      case Request::Has: return reply(c, Reply::Ok, found == table.end() ? "0" : "1");
      case Request::Remove:
        if (found != table.end()) bytes -= key.size() + found->second.bytes.size(), table.erase(found);
        return reply(c, Reply::Ok, "");
      default: c.broken = true;
    }
  }

  Reply store(const std::string& key, const Value& value) {
    const auto found = table.find(key);
    const bool is_new = found == table.end();
    const size_t after =
        bytes + value.bytes.size() + (is_new ? key.size() : 0) - (is_new ? 0 : found->second.bytes.size());
    if (after > kMaxBytes || (is_new && table.size() >= kMaxKeys)) return Reply::Full;
    bytes = after;
    table[key] = value;
    for (Connection& c : connections)
      if (c.waits_for == key) {
        c.waits_for.reset();
        reply(c, Reply::Ok, value.bytes);
        flush(c);
      }
    return Reply::Ok;
  }

  void reply(Connection& c, Reply status, const std::string& value) {
    c.out += framed(uint8_t(status), value);
    c.broken |= c.out.size() > 4 * kMaxMessage;  // it asks and does not read
  }
  void flush(Connection& c) {
    while (!c.out.empty()) {
      const ssize_t n = send(c.socket.fd(), c.out.data(), c.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) c.out.erase(0, size_t(n));
      else if (errno == EINTR) continue;
      else return void(c.broken |= errno != EAGAIN);
    }
  }
};

static Door door_at(const std::string& host, int port, const std::string& secret) {
  check_secret("StoreServer", host, secret);
  return Door(listen_on("StoreServer", host, port), Service::Store, secret);
}

StoreServer::StoreServer(const std::string& host, int port, const std::string& secret)
    : state_(new State(door_at(host, port, secret))) {
  try {
    state_->thread = start_thread("StoreServer", [s = state_] { s->run(); });
  } catch (...) {
    delete state_;
    throw;
  }
}

StoreServer::~StoreServer() {
  const uint64_t one = 1;
  if (state_->process != getpid()) return;  // the other process's thread may have been changing it at the fork
  if (write(state_->wake.fd(), &one, sizeof one) == sizeof one) state_->thread.join();
  delete state_;
}

int StoreServer::port() const { return state_->door.port(); }

struct Store::State {
  Socket socket;
  const int process = getpid();
  std::atomic<double> timeout = 0;
  std::mutex mutex;

  std::pair<Reply, std::string> ask(Request request, const std::string& key, const std::string& value, double seconds) {
    check_process("Store", process);
    std::lock_guard lock(mutex);
    check_runtime(bool(socket), "[Store] expected a connection, got one that has failed before");
    std::string rest;
    put(rest, uint32_t(key.size()));
    const std::string message = framed(uint8_t(request), rest + key + value);
    check(!key.empty() && key.size() <= kMaxKey && value.size() <= kMaxValue,
          "[Store] expected a key of 1 to {} bytes and a value of at most {}, got {} and {}", kMaxKey, kMaxValue,
          key.size(), value.size());
    const double deadline = now() + seconds;
    std::string reply;
    try {
      send_all("Store", socket, message.data(), message.size(), deadline);
      uint32_t size = 0;
      recv_all("Store", socket, &size, sizeof size, deadline);
      check_runtime(size >= 1 && size <= kMaxMessage, "[Store] expected a reply of up to {} bytes, got {}", kMaxMessage,
                    size);
      reply.resize(size);
      recv_all("Store", socket, reply.data(), size, deadline);
    } catch (...) {
      socket.close();  // what comes later would answer another question
      throw;
    }
    check_runtime(Reply(reply[0]) != Reply::Full,
                  "[Store] expected room for \"{}\" and {} bytes, got a store that is full ({} bytes, {} keys)", key,
                  value.size(), kMaxBytes, kMaxKeys);
    check(Reply(reply[0]) != Reply::NoNumber,
          "[Store] expected a number under \"{}\", got bytes that set() has written", key);
    check(Reply(reply[0]) != Reply::Overflow, "[Store] expected a sum that int64 holds under \"{}\", got an overflow",
          key);
    return {Reply(reply[0]), reply.substr(1)};
  }
};

static double seconds_of(double timeout) {
  check(!std::isnan(timeout), "[Store] expected a number of seconds, got {}", timeout);
  return timeout;
}

Store::Store(const std::string& host, int port, const StoreOptions& options) : state_(new State) {
  try {
    check_secret("Store", host, options.secret);
    state_->timeout = seconds_of(options.timeout);
    state_->socket = knock("Store", host, port, Service::Store, options.secret, 0, 0, now() + options.timeout,
                           seconds_of(options.patience));
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
  if (seconds_of(timeout) < 0) timeout = state_->timeout;
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
  if (seconds_of(timeout) < 0) timeout = state_->timeout;
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

void Store::set_timeout(double seconds) { state_->timeout = seconds_of(seconds); }

std::string Store::local_address() const { return distributed::local_address(state_->socket); }

}  // namespace tapir::inline v0::distributed
