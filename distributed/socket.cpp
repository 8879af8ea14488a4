#include "socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "../core/error.h"

namespace tapir::inline v0::distributed {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

namespace {

/// Milliseconds left for poll(), at most a minute at a time.
int left(double deadline) { return int(std::ceil(std::fmin(std::fmax(deadline - now(), 0), 60) * 1000)); }

/// Waits for an event; false at the deadline.
bool wait_for(int fd, short events, double deadline) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, left(deadline));
    if (n > 0) return true;
    if (!(now() < deadline)) return false;
  }
}

struct Resolved {
  addrinfo* list = nullptr;
  Resolved(const char* op, const std::string& host, int port) {
    check(!host.empty(), "[{}] expected an address, got \"\"", op);
    check(port >= 0 && port <= 65535, "[{}] expected a port in [0, 65535], got {}", op, port);
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    const std::string service = std::to_string(port);
    int code = getaddrinfo(host.c_str(), service.c_str(), &hints, &list);
    if (code != 0 && host == "localhost")  // this machine, also where no /etc/hosts says so: RFC 6761, section 6.3
      code = getaddrinfo(nullptr, service.c_str(), &hints, &list);
    check_runtime(code == 0, "[{}] expected an address that resolves, got \"{}\" (port {}): {}", op, host, port,
                  gai_strerror(code));
  }
  ~Resolved() {
    if (list) freeaddrinfo(list);
  }
  Resolved(const Resolved&) = delete;
};

}  // namespace

bool is_loopback(const char* op, const std::string& host) {
  const Resolved resolved(op, host, 0);
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(a->ai_addr);
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(a->ai_addr);
    if (a->ai_family == AF_INET6 ? !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) : ntohl(v4->sin_addr.s_addr) >> 24 != 127)
      return false;
  }
  return true;
}

void check_far(const char* op, const std::string& host) {
  const bool literal =
      host.starts_with("127.") || host == "::1" || host == "localhost";  // meant so: one machine plays several
  check(literal || !is_loopback(op, host),
        "[{}] expected an address that other machines reach, got {}, a name of 127.0.0.0/8 here (/etc/hosts): name the "
        "address itself",
        op, host);
}

Socket listen_on(const char* op, const std::string& host, int port) {
  const Resolved resolved(op, host, port);
  int reason = EADDRNOTAVAIL;
  for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
    Socket s(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    const int on = 1;
    if (s) setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (s && bind(s.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(s.fd(), SOMAXCONN) == 0) return s;
    reason = errno;
  }
  fail(ErrorKind::Runtime, "[{}] expected an address to listen on, got {}:{}: {}", op, host, port,
       std::strerror(reason));
}

int port_of(const Socket& s) {
  sockaddr_storage a{};
  socklen_t n = sizeof a;
  if (getsockname(s.fd(), reinterpret_cast<sockaddr*>(&a), &n) != 0) return 0;
  return ntohs(a.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(a).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(a).sin_port);
}

static std::string numeric(const sockaddr* a, socklen_t n) {
  char text[NI_MAXHOST] = "";
  getnameinfo(a, n, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string local_address(const Socket& s) {
  sockaddr_storage a{};
  socklen_t n = sizeof a;
  if (getsockname(s.fd(), reinterpret_cast<sockaddr*>(&a), &n) != 0) return "127.0.0.1";
  return numeric(reinterpret_cast<sockaddr*>(&a), n);
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  std::string found, names;
  if (getifaddrs(&list) == 0) {
    for (const ifaddrs* a = list; a; a = a->ifa_next) {
      if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET) continue;
      names += (names.empty() ? "" : ", ") + std::string(a->ifa_name);
      if (found.empty() && name == a->ifa_name) found = numeric(a->ifa_addr, sizeof(sockaddr_in));
    }
    freeifaddrs(list);
  }
  check(!found.empty(), "[init_process_group] expected a network interface with an IPv4 address ({}), got \"{}\"",
        names, name);
  return found;
}

Socket connect_to(const char* op, const std::string& host, int port, double deadline) {
  check(port > 0 && port <= 65535, "[{}] expected a port in [1, 65535], got {}", op, port);
  const Resolved resolved(op, host, port);
  for (int reason = ETIMEDOUT;;) {
    for (const addrinfo* a = resolved.list; a; a = a->ai_next) {
      Socket s(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      if (const int code = errno; !s) {
        check_runtime(code != EMFILE && code != ENFILE, "[{}] expected a socket to {}:{}, got: {}", op, host, port,
                      std::strerror(code));
        continue;
      }
      set_blocking(s.fd(), false);
      int code = connect(s.fd(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
      if (code == EINPROGRESS) {
        socklen_t n = sizeof code;
        if (!wait_for(s.fd(), POLLOUT, deadline)) code = ETIMEDOUT;
        else getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &code, &n);
      }
      if (code == 0) {
        no_delay(s.fd());
        return s;
      }
      reason = code;
    }
    if (!(now() < deadline))
      fail(ErrorKind::Runtime, "[{}] expected a listener at {}:{}, got: {}", op, host, port, std::strerror(reason));
    usleep(20000);
  }
}

void give_up_after(int fd, double seconds) {
  constexpr int kProbes = 3;
  const int on = 1, every = std::max(1, int(seconds / (kProbes + 1))), limit = int(seconds * 1000);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof every);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);  // of what was sent and not answered
}

void send_all(const char* op, const Socket& s, const void* data, size_t bytes, double deadline) {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(s.fd(), p, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) p += n, bytes -= size_t(n);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      check_runtime(wait_for(s.fd(), POLLOUT, deadline), "[{}] expected to send {} bytes more, timed out", op, bytes);
    else check_runtime(errno == EINTR, "[{}] expected to send {} bytes more, got: {}", op, bytes, std::strerror(errno));
  }
}

void recv_all(const char* op, const Socket& s, void* data, size_t bytes, double deadline) {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(s.fd(), p, bytes, MSG_DONTWAIT);
    check_runtime(n != 0, "[{}] expected {} bytes more, got: closed by the peer", op, bytes);
    if (n > 0) p += n, bytes -= size_t(n);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      check_runtime(wait_for(s.fd(), POLLIN, deadline), "[{}] expected {} bytes more, timed out", op, bytes);
    else check_runtime(errno == EINTR, "[{}] expected {} bytes more, got: {}", op, bytes, std::strerror(errno));
  }
}

void no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void set_blocking(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, on ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

Socket event_of(const char* op) {
  Socket event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  check_runtime(bool(event), "[{}] expected a free file descriptor, got: {}", op, std::strerror(errno));
  return event;
}

void check_process(const char* op, int process) {
  check_runtime(process == getpid(),
                "[{}] expected the process that made it, {}, got {}, which was forked from it: threads and connections "
                "do not come along",
                op, process, getpid());
}

std::string random_token() {
  unsigned char bytes[16] = {};
  for (size_t have = 0; have < sizeof bytes;) {
    const ssize_t n = getrandom(bytes + have, sizeof bytes - have, 0);
    if (n > 0) have += size_t(n);
  }
  std::string out;
  for (const unsigned char b : bytes) out += "0123456789abcdef"[b >> 4], out += "0123456789abcdef"[b & 15];
  return out;
}

}  // namespace tapir::inline v0::distributed
