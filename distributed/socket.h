#pragma once
// TCP sockets with deadlines, for what stands in this folder; not public.
#include <cstdint>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "../core/error.h"

namespace tapir::inline v0::distributed {

/// Seconds of a clock that only goes forward.
double now();

/// A file descriptor with an owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Socket& operator=(Socket&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Socket() { close(); }
  void close();
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Is it this machine alone that reaches the address? RuntimeError for one that does not resolve.
bool is_loopback(const char* op, const std::string& host);
/// ValueError for a name that means this machine alone, as some /etc/hosts say of a machine's own name: others would wait in vain.
void check_far(const char* op, const std::string& host);
/// A listening socket at that address alone; port 0 asks the system for one. RuntimeError with address, port and reason.
Socket listen_on(const char* op, const std::string& host, int port);
int port_of(const Socket& s);
/// The address by which a connected socket is known on this side: one that peers of the other side reach too.
std::string local_address(const Socket& s);
/// The first IPv4 address of that network interface; ValueError when there is none.
std::string address_of_interface(const std::string& name);
/// Tries again until the deadline while nobody listens. RuntimeError with address, port and reason.
Socket connect_to(const char* op, const std::string& host, int port, double deadline);
void no_delay(int fd);
/// The system asks after the other end, and gives it up when nothing has come from it for so many seconds.
void give_up_after(int fd, double seconds);

/// The whole of it, or RuntimeError: "closed by the peer", "timed out", errno's text.
void send_all(const char* op, const Socket& s, const void* data, size_t bytes, double deadline);
void recv_all(const char* op, const Socket& s, void* data, size_t bytes, double deadline);
void set_blocking(int fd, bool on);
/// What another thread writes to, so that a poll() ends: an eventfd. RuntimeError where there is no file descriptor for it.
Socket event_of(const char* op);
/// Threads and connections stay with the process that made them: RuntimeError in one that was forked from it.
void check_process(const char* op, int process);
/// A thread that runs f; RuntimeError where the system has none.
template <class F> std::thread start_thread(const char* op, F&& f) try {
  return std::thread(std::forward<F>(f));
} catch (const std::system_error& e) {
  fail(ErrorKind::Runtime, "[{}] expected a thread, got: {}", op, e.what());
}
/// 32 hexadecimal digits that nobody can guess.
std::string random_token();

}  // namespace tapir::inline v0::distributed
