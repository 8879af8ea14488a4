// The rows of the scorecard that have no other program: `reliability [--brief] [--seed N] [ROW...]` measures them all, or those that are
// named, prints one line for each and ends with `N passed, N failed, N skipped`. docs/reliability.md says what a row means.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "row.h"

namespace reliability {

std::string seconds_text(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return text;
}

static const Row rows[] = {
    {"R1", "checkpoints lost in kills", kills},
    {"R2", "bit flips of files unnoticed", bit_flips},
    {"R3", "files lost or errors untyped after I/O faults", io_faults},
    {"R4", "recoveries after out of memory", out_of_memory},
    {"R9", "a dead rank is named", dead_ranks},
    {"R10", "1,000 silent strangers delay a join", silent_strangers},
    {"R11", "another WORLD_SIZE or a foreign server is said", wrong_peers},
    {"R12", "garbage connections that got in or did harm", garbage},
    {"R15", "resumed runs with other bits", resumed},
};

/// Prints its line: 1 where the goal was met, 0 where not, -1 where it could not be measured here.
static int measure(const Row& row, const Settings& settings) {
  const auto begin = std::chrono::steady_clock::now();
  Figure figure{"", false};
  const char* verdict = nullptr;
  try {
    figure = row.measure(settings);
  } catch (const Skipped& skipped) {
    figure.text = skipped.why, verdict = "skipped";
  } catch (const std::exception& e) {
    figure.text = std::string("could not be measured: ") + e.what();
  }
  if (!verdict) verdict = figure.good ? "ok" : "MISSED";
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%-3s  %s  %s  %s  %.1f s\n", row.name, row.what, figure.text.c_str(), verdict, took);
  std::fflush(stdout);
  return verdict[0] == 's' ? -1 : figure.good;
}

}  // namespace reliability

int main(int argc, char** argv) {
  using namespace reliability;
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words[0] == "rank") return rank_main(words);
  Settings settings;
  std::vector<std::string> wanted;
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == "--brief") settings.brief = true;
    else if (words[i] == "--seed" && i + 1 < words.size())
      settings.seed = std::strtoull(words[++i].c_str(), nullptr, 10);
    else wanted.push_back(words[i]);
  for (const std::string& name : wanted)
    if (std::none_of(std::begin(rows), std::end(rows), [&](const Row& row) { return row.name == name; }))
      return std::fprintf(stderr, "reliability: there is no row %s here\n", name.c_str()), 2;
  int passed = 0, failed = 0, skipped = 0;
  for (const Row& row : rows) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), row.name) == wanted.end()) continue;
    const int verdict = measure(row, settings);
    ++(verdict > 0 ? passed : verdict == 0 ? failed : skipped);
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed ? 1 : 0;
}
