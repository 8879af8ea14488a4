#include "held_signals.h"

#include <time.h>

#include <cerrno>

namespace tapir::inline v0 {

constexpr int kSignals[] = {SIGPIPE, SIGXFSZ};

HeldSignals::HeldSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int s : kSignals) sigaddset(&held, s);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

HeldSignals::~HeldSignals() {
  const int error = errno;
  sigset_t ours;
  sigemptyset(&ours);
  for (const int s : kSignals)
    if (sigismember(&before_, s) == 0) sigaddset(&ours, s);
  const timespec none{};
  while (sigtimedwait(&ours, nullptr, &none) > 0 || errno == EINTR) {}
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace tapir::inline v0
