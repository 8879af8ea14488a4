#include "checks.h"

#include <algorithm>
#include <cmath>

#include "../device/device_program.h"

namespace tapir::inline v0::ir {
namespace {

constexpr double kFirstGap = 32, kLeastGap = 256;                // calls, from the 64th on and in the long run
constexpr int64_t kSameGap = 512;                                // checks
constexpr double kRecorded = 4000, kReplayed = 60, kBytes = 20;  // a call's ns, recorded and replayed; bytes a ns

/// So many calls that checks take less than 1 % of the time of the replays between them.
double gap_of(const Program& p) {
  double replayed = 1, recorded = 0;
  for (const Call& call : p.calls) {
    double bytes = 0;
    for (const Operand& o : call.operands)
      for (const View& v : o.views)
        if (v.in_memory()) bytes += double(numel_of(v.shape) * size_of(v.dtype));
    replayed += kReplayed + bytes / kBytes, recorded += kRecorded;
  }
  const double least =
      device_of(p).is_cpu() ? kLeastGap : 2 * kLeastGap;  // where a graph is captured anew after a check
  return std::max(least, 100 * recorded / replayed);
}

/// The largest prime up to n, at least 1.
int64_t prime_below(int64_t n) {
  const auto is_prime = [](int64_t p) {
    for (int64_t d = 2; d * d <= p; ++d)
      if (p % d == 0) return false;
    return true;
  };
  while (n > 1 && !is_prime(n)) --n;
  return std::max<int64_t>(n, 1);
}

}  // namespace

Checks::Checks(double share, const Program& program)
    : steady_(share < 0    ? gap_of(program)
              : share == 0 ? 0
                           : 1 / share) {
  plan();
}

void Checks::plan() {
  const double n = double(calls_), level = std::exp2(std::floor(std::log2(std::max(n, 1.))));
  const double gap = n < 64 ? std::max(n, 2.) : std::max(kFirstGap, level / 16);
  const int64_t other = gap < steady_ ? 0 : planned_++ / kSameGap % 4;  // in the long run several primes in turn
  next_ = calls_ + prime_below(int64_t(std::min(gap, steady_)) - 8 * (steady_ > 64 ? other : 0));
}

bool Checks::due() {
  if (++calls_ < next_ || steady_ == 0) return false;
  plan();
  return true;
}

std::string Checks::text() const {
  if (steady_ == 0) return "never checked";
  const double time = std::chrono::duration<double>(Clock::now() - start_).count();
  return tapir::format("checked {} times, which took {}% of the time", count_,
                       double(int64_t(1e4 * seconds_ / std::max(time, 1e-9))) / 1e2);
}

}  // namespace tapir::inline v0::ir
