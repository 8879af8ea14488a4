#include "door.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "../core/error.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr double kIdle = 1;      // seconds for a stranger
constexpr double kGrace = 0.02;  // before one gives way to the next, and before another look for file descriptors
constexpr int kSilentMs = 800;
constexpr size_t kLeastSecret = 16;
constexpr int kAtOnce = 64;  // callers, before those who are in have their turn

Proof random_number() {
  const std::string token = random_token();
  Proof number;
  std::copy_n(token.data(), number.size(), number.data());
  return number;
}

Proof proof_of(const char* side, const Greeting& g, const Answer& a, const std::string& key) {
  std::string text = side;
  text.append(g.magic, sizeof g.magic).append(g.number.data(), g.number.size());
  text.append(a.number.data(), a.number.size()) += tapir::format("{} {}", a.from, a.to);
  return hmac_sha256(key, text);
}

Greeting greeting_of(Service service) {
  Greeting g;
  g.magic[7] = char(service);
  return g;
}

/// Why the listener is not believed; `final` where another try would end the same.
std::string introduce(const char* op, const Socket& s, Service service, const std::string& key, int from, int to,
                      double until, bool& final) try {
  Greeting g;
  recv_all(op, s, &g, sizeof g, until);
  final = std::memcmp(g.magic, greeting_of(service).magic, sizeof g.magic) != 0;
  if (final) return "other words than a Tapir of this version begins with";
  Answer a{.from = from, .to = to, .number = random_number()};
  a.proof = proof_of("caller", g, a, key);
  send_all(op, s, &a, sizeof a, until);
  Verdict v;
  recv_all(op, s, &v, sizeof v, until);
  final = true;
  if (!v.accepted) return "a refusal: its secret is another one, or one of both was built without libcrypto";
  return is_same(v.proof, proof_of("listener", g, a, key)) ? "" : "a wrong proof: it does not know the secret";
} catch (const RuntimeError& e) {
  return tapir::format("no proof in time ({})", e.what());
}

}  // namespace

void check_reach(const char* op, const std::string& host) {
  check_runtime(has_libcrypto() || is_loopback(op, host),
                "[{}] expected a Tapir built with libcrypto for {}, an address that other machines reach, got one "
                "without: install libssl-dev and configure again, or stay on 127.0.0.1",
                op, host);
}

void check_secret(const char* op, const std::string& host, const std::string& secret) {
  check_reach(op, host);
  check_runtime(has_libcrypto() || secret.empty(),
                "[{}] expected a Tapir built with libcrypto to prove a secret, got one without: install libssl-dev and "
                "configure again, or set none and stay on 127.0.0.1",
                op);
  check(secret.size() >= kLeastSecret || is_loopback(op, host),
        "[{}] expected a secret of at least {} characters for {}, an address that other machines reach, got {}: set "
        "TAPIR_STORE_SECRET to the same for all processes of the job (openssl rand -hex 32 makes one), or "
        "TAPIR_STORE_SECRET_FILE to a file of mode 0600 that holds it",
        op, kLeastSecret, host, secret.size());
}

Door::Door(Socket listener, Service service, std::string key, int me)
    : listener_(std::move(listener)), service_(service), key_(std::move(key)), me_(me) {
  set_blocking(listener_.fd(), false);
  rlimit files{256, 256};
  getrlimit(RLIMIT_NOFILE, &files);
  room_ = size_t(std::clamp<rlim_t>(files.rlim_cur / 4, 16, 1024));
}

void Door::watch(std::vector<pollfd>& polls) const {
  polls.push_back({now() < closed_until_ ? -1 : listener_.fd(), POLLIN, 0});
  for (const Stranger& s : strangers_) polls.push_back({s.socket.fd(), POLLIN, 0});
}

double Door::due() const {
  const double t = now();
  const double idle = strangers_.empty() ? t + 60 : strangers_.front().since + kIdle;
  return closed_until_ > t ? std::min(idle, closed_until_) : idle;
}

std::vector<Door::Guest> Door::admit(std::span<const pollfd> polls) {
  std::vector<Guest> guests;
  const double t = now();
  size_t i = 1;
  for (Stranger& s : strangers_) {
    if (polls[i++].revents) hear(s, guests);
    if (t >= s.since + kIdle) s.socket.close();
  }
  std::erase_if(strangers_, [](const Stranger& s) { return !s.socket; });
  if (polls[0].revents) welcome();
  return guests;
}

void Door::hear(Stranger& s, std::vector<Guest>& guests) try {
  char* to = reinterpret_cast<char*>(&s.answer) + s.have;
  const ssize_t n = recv(s.socket.fd(), to, sizeof s.answer - s.have, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return s.socket.close();
  s.have += size_t(n);
  if (s.have < sizeof s.answer) return;
  Verdict v;
  v.accepted = s.answer.to == me_ && is_same(s.answer.proof, proof_of("caller", s.greeting, s.answer, key_));
  if (v.accepted) v.proof = proof_of("listener", s.greeting, s.answer, key_);
  if (!v.accepted && !std::exchange(complained_, true))
    std::fprintf(stderr, "tapir: a caller that does not know this job's secret was turned away\n");
  const bool told = send(s.socket.fd(), &v, sizeof v, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof v;
  if (v.accepted && told) guests.push_back({std::move(s.socket), s.answer.from});
  s.socket.close();
} catch (const std::exception&) {  // no memory, no HMAC: nothing is proven
  s.socket.close();
}

void Door::welcome() try {
  for (int callers = 0; callers < kAtOnce; ++callers) {
    const double t = now();
    if (strangers_.size() >= room_) {
      closed_until_ = strangers_.front().since + kGrace;
      if (t < closed_until_) return;
      strangers_.pop_front();
    }
    Socket s(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!s && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!s) {
      if (errno != EAGAIN) closed_until_ = t + kGrace;  // no descriptors, no memory: poll() would come back at once
      return;
    }
    no_delay(s.fd());
    Greeting g = greeting_of(service_);
    g.number = random_number();
    if (send(s.fd(), &g, sizeof g, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof g) continue;
    strangers_.push_back({std::move(s), t, g});
  }
} catch (const std::exception&) {  // no memory, no random numbers
  closed_until_ = now() + kGrace;
}

Socket knock(const char* op, const std::string& host, int port, Service service, const std::string& key, int from,
             int to, double deadline, double patience) {
  bool told = service != Service::Store;
  const auto tell = [&](const char* what) {
    if (std::exchange(told, true)) return;
    std::fputs(tapir::format("tapir: [{}] {}:{} listens, but {}: perhaps it is a server of another kind\n", op, host,
                             port, what)
                   .c_str(),
               stderr);
  };
  for (double until = 0, first = 0;;) {
    const double called = now();
    Socket s = connect_to(op, host, port, deadline);
    const bool waited = now() - called > kGrace;  // for a listener: it has just come
    if (until == 0 || waited) first = now(), until = std::min(deadline, first + patience);
    pollfd greeting{s.fd(), POLLIN, 0};
    if (!told && poll(&greeting, 1, kSilentMs) == 0) tell("says nothing yet");
    bool final = false;
    const std::string why = introduce(op, s, service, key, from, to, until, final);
    if (why.empty()) return s;
    check_runtime(!final && now() < until, "[{}] expected a process of this job to listen at {}:{}, got {}", op, host,
                  port, why);
    if (now() - first > kSilentMs * 1e-3) tell("hangs up");
    usleep(20000);
  }
}

}  // namespace tapir::inline v0::distributed
