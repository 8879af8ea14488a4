#include "plan.h"

#include <algorithm>
#include <climits>

#include "uses.h"

namespace tapir::inline v0::ir {

constexpr int64_t kAlign = 64;
static int64_t rounded(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

Plan plan_memory(const Program& p, const std::vector<bool>& elsewhere) {
  struct Life {
    int first = INT_MAX, last = -1;
  };
  std::vector<Life> lives(p.blocks.size());
  for (int at = 0; at < int(p.calls.size()); ++at)
    each_view(p.calls[size_t(at)], [&](const View& v, Access) {
      Life& life = lives[size_t(v.block)];
      life.first = std::min(life.first, at), life.last = std::max(life.last, at);
    });
  Plan plan;
  plan.offset.assign(p.blocks.size(), -1);
  std::vector<int> order;
  for (int i = 0; i < int(p.blocks.size()); ++i)
    if (p.blocks[size_t(i)].kind == Block::Kind::Temporary && lives[size_t(i)].last >= 0 && !elsewhere[size_t(i)])
      order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return p.blocks[size_t(a)].bytes > p.blocks[size_t(b)].bytes; });
  std::vector<int> placed;  // by offset
  for (int i : order) {
    const int64_t bytes = rounded(p.blocks[size_t(i)].bytes);
    int64_t best = -1, best_gap = INT64_MAX, end = 0;
    for (int other : placed) {
      const Life &a = lives[size_t(i)], &b = lives[size_t(other)];
      if (a.last < b.first || b.last < a.first) continue;
      const int64_t at = plan.offset[size_t(other)], gap = at - end;
      if (gap >= bytes && gap < best_gap) best = end, best_gap = gap;
      end = std::max(end, at + rounded(p.blocks[size_t(other)].bytes));
    }
    if (best < 0) best = end;
    plan.offset[size_t(i)] = best;
    plan.arena = std::max(plan.arena, best + bytes), plan.apart += bytes;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](int a, int b) { return plan.offset[size_t(a)] < plan.offset[size_t(b)]; }),
                  i);
  }
  return plan;
}

int64_t recorded_peak(const Program& p) {
  std::vector<int64_t> change(p.calls.size() + 2);
  for (const Block& b : p.blocks) {
    if (b.kind == Block::Kind::Outside) continue;
    change[size_t(b.birth)] += b.bytes;
    if (b.death >= 0) change[size_t(b.death) + 1] -= b.bytes;
  }
  int64_t now = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, now += c);
  return peak;
}

}  // namespace tapir::inline v0::ir
