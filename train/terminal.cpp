#include "terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace tapir::inline v0::train {

bool write_text(int fd, std::string_view text) {
  // The signal of a closed pipe goes to the writing thread: held back, and taken off if it is ours.
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const int error = errno;
  std::fflush(stdout);  // what the program printed before comes before
  bool good = true;
  for (int interrupts = 0; good && !text.empty();) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n > 0) text.remove_prefix(size_t(n));
    else good = errno == EINTR && ++interrupts < 1000;
  }
  if (!good && errno == EPIPE && !was_pending) {
    const timespec none{};
    while (sigtimedwait(&pipe, nullptr, &none) < 0 && errno == EINTR) {}
  }
  errno = error;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return good;
}

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && term && *term && std::string_view(term) != "dumb";
}

int columns_of(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace tapir::inline v0::train
