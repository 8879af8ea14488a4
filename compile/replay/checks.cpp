#include "checks.h"

#include <algorithm>

#include "../device/device_program.h"

namespace tapir::inline v0::ir {
namespace {

constexpr double kFirstGap = 32, kLeastGap = 256;  // from the 64th call on, and in the long run
constexpr double kRecorded = 8000, kReplayed = 60, kBytes = 20;  // a call's ns, recorded and replayed; bytes a ns

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
  const double least = device_of(p).is_cpu() ? kLeastGap : 2 * kLeastGap;  // where a graph is captured anew after a check
  return std::max(least, 100 * recorded / replayed);
}

/// The n-th of a fixed sequence of numbers in [0, 1). Steele et al. 2014, Fast splittable pseudorandom number generators.
double random_at(uint64_t n) {
  uint64_t z = (n + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return double((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

Checks::Checks(double share, const Program& program)
    : steady_(share < 0    ? gap_of(program)
              : share == 0 ? 0
                           : 1 / share) {
  draw();
}

void Checks::draw() {
  const double n = double(calls_), gap = std::min(n < 2 * kFirstGap ? std::max(n, 2.) : std::max(kFirstGap, n / 16), steady_);
  next_ = calls_ + std::max<int64_t>(1, int64_t(gap * (0.5 + random_at(uint64_t(calls_)))));
}

bool Checks::due() {
  if (++calls_ < next_ || steady_ == 0) return false;
  draw();
  return true;
}

std::string Checks::text() const {
  if (steady_ == 0) return "never checked";
  const double time = std::chrono::duration<double>(Clock::now() - start_).count();
  return tapir::format("checked {} times, which took {}% of the time", count_,
                       double(int64_t(1e4 * seconds_ / std::max(time, 1e-9))) / 1e2);
}

}  // namespace tapir::inline v0::ir
