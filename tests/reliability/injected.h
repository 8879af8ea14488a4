// Failing calls to the system. This program defines open, read, write, ... itself, before libc's: what they are asked for they do, but for
// the one call that is to fail. So no code under test knows of it.
#pragma once
#include <string>
#include <vector>

namespace reliability {

enum class Call { Open, Read, Write, ShortWrite, Truncate, Sync, Rename, Close, Last = Close };

struct Injected {
  Call call;
  int error;       // errno
  bool for_ever;   // all calls from that one on
  int number = 1;  // which of the calls of this kind
  std::string text() const;
};
/// Each kind of call with the errors that systems give, once and for ever.
std::vector<Injected> every_fault();

/// While it lives, the calls of this thread.
class Injection {
 public:
  explicit Injection(const Injected& fault);
  ~Injection();
  Injection(const Injection&) = delete;
  Injection& operator=(const Injection&) = delete;
  /// Has it failed?
  bool reached() const;
};

}  // namespace reliability
