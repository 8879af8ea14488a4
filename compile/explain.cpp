#include "explain.h"

#include <algorithm>
#include <map>

#include "../core/allocator.h"
#include "program/uses.h"

namespace tapir::inline v0::ir {

std::string explain(const Replay& replay) {
  const Recorded& r = replay.recorded();
  const Program& p = r.program;
  std::string s = "  kernel calls:";
  for (const PassEffect& e : replay.effects()) s += tapir::format("  {} {}", e.name, e.calls);
  int64_t read = 0, written = 0, outside = 0;
  std::map<std::string, int64_t> kinds;
  for (const Call& call : p.calls) {
    ++kinds[label_of(call)];
    each_view(call, [&](const View& v, Access access) {
      const int64_t bytes = numel_of(v.shape) * size_of(v.dtype);
      if (access != Access::Write) read += bytes;
      if (access != Access::Read) written += bytes;
    });
  }
  for (const Block& b : p.blocks) outside += b.kind == Block::Kind::Outside ? b.bytes : 0;
  const Plan& plan = replay.schedule().plan();
  s += "\n  operands: " + readable_bytes(read) + " read, " + readable_bytes(written) + " written a call\n";
  const CompileStats stats = replay.stats();
  s += "  memory: " + readable_bytes(plan.arena) + " in one arena for " + readable_bytes(plan.apart) +
       " of blocks, of which " + readable_bytes(plan.bound) + " live at once; results and gradients " +
       readable_bytes(stats.results) + "; together " + readable_bytes(stats.peak()) +
       tapir::format(", {}% of the ", stats.peak() * 100 / std::max<int64_t>(stats.recorded_peak, 1)) +
       readable_bytes(stats.recorded_peak) + " while recorded; outside " + readable_bytes(outside) + "\n";
  if (replay.budget() > 0 && stats.peak() > replay.budget())
    s +=
        "  memory_budget of " + readable_bytes(replay.budget()) + " is not reached: this is the least that was found\n";
  if (p.prepared > 0) {
    int64_t kept = 0;
    for (const Block& b : p.blocks) kept += b.kept ? b.bytes : 0;
    s += tapir::format("  the first {} calls are of weights alone: they run when those change, and keep ",
                       int64_t(p.prepared)) +
         readable_bytes(kept) + "\n";
  }
  s += "  ";
  if (const DeviceRun* run = replay.schedule().device_run()) s += run->text() + "\n  ";
  for (const auto& [kind, count] : kinds) s += tapir::format("{} x {}  ", count, kind);
  s += "\n";
  for (size_t i = 0; i < p.calls.size(); ++i) s += tapir::format("  {}  ", int64_t(i)) + to_string(p.calls[i]) + "\n";
  return s;
}

std::string to_dot(const Program& p) {
  std::string s = "digraph program {\n  rankdir=TB; node [fontname=\"monospace\", fontsize=10];\n";
  const Uses uses(p);
  const auto quoted = [](const std::string& text) { return "\"" + text + "\""; };
  for (size_t i = 0; i < p.calls.size(); ++i) {
    const Call& call = p.calls[i];
    const std::string me = tapir::format("c{}", int64_t(i));
    s += "  " + me + " [shape=box, label=" + quoted(tapir::format("{} {}", int64_t(i), label_of(call))) + "];\n";
    each_view(call, [&](const View& v, Access access) {
      if (access == Access::Write) return;
      const int from = uses.maker(int(i), v.block);
      const std::string what = quoted(tapir::format("%{} {} {}", int64_t(v.block), v.dtype, v.shape));
      if (from >= 0) s += tapir::format("  c{} -> ", int64_t(from)) + me + " [label=" + what + "];\n";
      else s += tapir::format("  b{} -> ", int64_t(v.block)) + me + " [label=" + what + "];\n";
    });
  }
  return s + "}\n";
}

}  // namespace tapir::inline v0::ir
