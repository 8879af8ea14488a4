#pragma once
// Note [Checks]
// Recordings in a row that did the same are evidence, no proof: a counter on the host, a captured number, a handle may change in any
// later call, and a replay does not run the code that would show it. So some calls of a program are checked: such a call runs as it is, is
// recorded, and is compared with what the program was made of. Its results are right in any case.
// - About the 2nd, 4th, 7th, 14th, 27th, 50th call is checked, then 1 in 31, from the 1024th call n on 1 in about n / 16, in the long run 1 in
//   `steady`. Gaps are primes that stay for a while: after p checks each phase of a period of p calls has been met. They follow from the count
//   of calls, so that two runs of a program check the same ones.
// - A recorded call costs some microseconds a kernel call more than a replay. Where kernels take less than that, `steady` is larger: in the
//   long run checks take less than 1 % of the time.
// - Where a check finds a difference, the function is recorded anew. It is replayed again only after twice as many recordings of the same in
//   a row as its program had calls (at most kMostProof): whatever has a period shows it meanwhile. The second time that a check finds one,
//   its calls run as they are.
#include <chrono>
#include <cstdint>

#include "../program/program.h"

namespace tapir::inline v0::ir {

class Checks {
 public:
  static constexpr int64_t kMostProof = 1024;
  /// `share` of the calls, as CompileOptions::verify.
  Checks(double share, const Program& program);
  /// Is this call one to be checked?
  bool due();
  void made(double seconds) { ++count_, seconds_ += seconds; }
  /// Recordings of the same that a program must show after it was found wrong.
  int64_t proof() const { return calls_ < kMostProof / 2 ? 2 * calls_ : kMostProof; }
  /// "checked 3 times, which took 0.2 % of the time".
  std::string text() const;

 private:
  void plan();
  using Clock = std::chrono::steady_clock;
  double steady_;  // calls from one check to the next, in the long run; 0: none is checked
  int64_t calls_ = 0, next_ = 0, count_ = 0, planned_ = 0;
  double seconds_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace tapir::inline v0::ir
