// The one file of the kernels that is compiled for the baseline: it chooses among the others by what this CPU can run.
#include "isa.h"

#include <cstdlib>

#include "../core/cpu.h"
#include "../core/error.h"

namespace tapir::inline v0 {
namespace {

std::string missing(const CpuLevel& level) {
  std::string names;
  for (const CpuExtension& e : level.needs)
    if (!e.there) names += std::string(names.empty() ? "" : " ") + e.name;
  return names;
}
bool runs(const CpuLevel& level) { return missing(level).empty(); }
/// From the lowest to the best: "sse4, avx2".
std::string names_of(const std::vector<CpuLevel>& levels, bool all) {
  std::string names;
  for (auto level = levels.rbegin(); level != levels.rend(); ++level)
    if (all || runs(*level)) names += (names.empty() ? "" : ", ") + std::string(level->name);
  return names;
}
[[noreturn]] void fail_old_cpu(const CpuLevel& lowest, bool several) {
  std::string built_for, found, lacking;
  for (const CpuExtension& e : lowest.needs)
    built_for += ' ' + std::string(e.name), (e.there ? found : lacking) += ' ' + std::string(e.name);
  fail(ErrorKind::Runtime,
       "[cpu] this build of Tapir is for CPUs with{}; this CPU has{}, but lacks{}. Build it on this machine, or with "
       "-DTAPIR_ARCH={}",
       built_for, found.empty() ? " none of them" : found, lacking, several ? "x86-64" : "portable");
}

struct Choice {
  const char* wanted = std::getenv("TAPIR_ISA");
  bool by_name = wanted && *wanted;  // what is asked for later does not count
  const CpuLevel& level = choose_level(cpu_levels(), wanted);
};
const Choice& choice() {
  static const Choice chosen;
  return chosen;
}

}  // namespace

const CpuLevel& choose_level(const std::vector<CpuLevel>& levels, const char* wanted) {
  if (!runs(levels.back())) fail_old_cpu(levels.back(), levels.size() > 1);
  if (!wanted || !*wanted) {
    for (const CpuLevel& level : levels)
      if (runs(level)) return level;
  }
  for (const CpuLevel& level : levels)
    if (std::string_view(level.name) == wanted) {
      check(runs(level),
            "[cpu] expected TAPIR_ISA to be a level that this CPU runs ({}), got {}, for which it lacks {}",
            names_of(levels, false), wanted, missing(level));
      return level;
    }
  fail(ErrorKind::Value, "[cpu] expected TAPIR_ISA to be a level that is built in ({}), got {}", names_of(levels, true),
       wanted);
}

const CpuLevel& cpu_level() { return choice().level; }

namespace backends::cpu {

std::string get_cpu_capability() { return cpu_level().name; }
std::string capability_report() {
  const std::vector<CpuLevel>& levels = cpu_levels();
  const CpuLevel& level = cpu_level();
  std::string text = level.name;
  if (levels.size() == 1) return text + ": the one level that is built in";
  if (choice().by_name) text += ": what TAPIR_ISA says";
  else if (&level == &levels.front()) text += ": the best that is built in";
  else
    text +=
        ": the best that this CPU runs; for " + std::string((&level - 1)->name) + " it lacks " + missing(*(&level - 1));
  return text + "; built in: " + names_of(levels, true);
}

}  // namespace backends::cpu
}  // namespace tapir::inline v0
