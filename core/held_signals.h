#pragma once
#include <signal.h>

#include "no_copy.h"

namespace tapir::inline v0 {

/// While it lives, a write of the calling thread fails with EPIPE or EFBIG where it would else end the process by SIGPIPE (nobody reads) or
/// SIGXFSZ (the limit on the size of files). Both signals go to the thread that writes: they are blocked in it, and those that came are taken
/// at the end. Other threads and the program's handlers see nothing; who has blocked a signal before keeps it.
class HeldSignals : NoCopy {
 public:
  HeldSignals();
  ~HeldSignals();

 private:
  sigset_t before_;
};

}  // namespace tapir::inline v0
