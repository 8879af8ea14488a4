#include "plan.h"

#include <algorithm>
#include <cstdint>

#include "../program/uses.h"

namespace tapir::inline v0::ir {

int64_t placed_bytes(const Block& b) {
  const int64_t align = b.device.is_cpu() ? 64 : 256;
  return (b.bytes + align - 1) / align * align;
}

static bool placed_here(const Program& p, size_t i, const Life& life, const std::vector<bool>& elsewhere) {
  return p.blocks[i].kind == Block::Kind::Temporary && life.last >= 0 && !elsewhere[i];
}

static std::vector<int64_t> live_bytes(const Program& p, const std::vector<bool>& elsewhere,
                                       const std::vector<Life>& lives) {
  std::vector<int64_t> bytes(p.calls.size() + 1);
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    if (!placed_here(p, i, lives[i], elsewhere)) continue;
    bytes[size_t(lives[i].first)] += placed_bytes(p.blocks[i]);
    bytes[size_t(lives[i].last) + 1] -= placed_bytes(p.blocks[i]);
  }
  for (size_t at = 1; at < bytes.size(); ++at) bytes[at] += bytes[at - 1];
  bytes.pop_back();
  return bytes;
}

std::vector<int64_t> live_bytes(const Program& p, const std::vector<bool>& elsewhere) {
  return live_bytes(p, elsewhere, lives_of(p));
}
static int64_t most(const std::vector<int64_t>& bytes) {
  return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}
int64_t most_live_bytes(const Program& p, const std::vector<bool>& elsewhere) { return most(live_bytes(p, elsewhere)); }

Plan plan_memory(const Program& p, const Placement& placement) {
  std::vector<Life> lives = lives_of(p);
  std::vector<bool> elsewhere = placement.moves;
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    elsewhere[i] = elsewhere[i] || p.blocks[i].kept;
    if (placement.stays[i] && lives[i].last >= 0) lives[i].last = int(p.calls.size()) - 1;
  }
  Plan plan;
  plan.bound = most(live_bytes(p, elsewhere, lives));
  plan.offset.assign(p.blocks.size(), -1);
  std::vector<int> order;
  for (int i = 0; i < int(p.blocks.size()); ++i)
    if (placed_here(p, size_t(i), lives[size_t(i)], elsewhere)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return p.blocks[size_t(a)].bytes > p.blocks[size_t(b)].bytes; });
  struct Placed {
    int64_t at, end;
    Life life;
  };
  std::vector<Placed> placed;  // by `at`
  const auto add = [&](const Placed& x) {
    placed.insert(std::upper_bound(placed.begin(), placed.end(), x, [](auto& a, auto& b) { return a.at < b.at; }), x);
  };
  for (const Lodger& l : placement.lodgers) {
    const bool stays =
        std::any_of(p.outputs.begin(), p.outputs.end(), [&](const View& v) { return v.block == l.block; });
    add({l.offset, l.offset + l.bytes, {0, stays ? int(p.calls.size()) : lives[size_t(l.block)].last}});
  }
  for (int i : order) {
    const Life& life = lives[size_t(i)];
    const int64_t bytes = placed_bytes(p.blocks[size_t(i)]);
    int64_t best = -1, best_gap = INT64_MAX, end = 0;
    for (const Placed& other : placed) {
      if (life.last < other.life.first || other.life.last < life.first) continue;
      const int64_t gap = other.at - end;
      if (gap >= bytes && gap < best_gap) best = end, best_gap = gap;
      end = std::max(end, other.end);
    }
    if (best < 0) best = end;
    plan.offset[size_t(i)] = best;
    plan.arena = std::max(plan.arena, best + bytes), plan.apart += bytes;
    add({best, best + bytes, life});
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
