// A row of the scorecard (docs/reliability.md): it measures, and says whether the goal was met.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace reliability {

struct Figure {
  std::string text;
  bool good;
};
/// Thrown where this machine, or this build, cannot measure a row: why.
struct Skipped {
  std::string why;
};
struct Settings {
  /// Fewer rounds, and five times the goal for what is a time: beside other tests, in under a minute.
  bool brief = false;
  uint64_t seed = 1;
  int rounds(int all, int few) const { return brief ? few : all; }
  double seconds(double goal) const { return brief ? 5 * goal : goal; }
};
struct Row {
  const char* name;  // "R1"
  const char* what;
  Figure (*measure)(const Settings&);
};

using Random = std::mt19937_64;
inline int64_t below(Random& random, int64_t n) { return int64_t(random() % uint64_t(n)); }
inline std::string count(int64_t n) { return std::to_string(n); }
/// "0.123"
std::string seconds_text(double seconds);

Figure kills(const Settings&);
Figure bit_flips(const Settings&);
Figure io_faults(const Settings&);
Figure out_of_memory(const Settings&);
Figure dead_ranks(const Settings&);
Figure silent_strangers(const Settings&);
Figure wrong_peers(const Settings&);
Figure garbage(const Settings&);
Figure resumed(const Settings&);

/// What a process of a job does: `reliability rank SCENARIO ...`.
int rank_main(const std::vector<std::string>& words);

}  // namespace reliability
