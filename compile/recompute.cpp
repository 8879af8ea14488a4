// Note [Recomputation]
// At the call where most bytes are alive, some of them only wait: they were written before and are read after. Those that one call wrote,
// from operands that still hold the same numbers later, can be made again where they are read. Which ones is a cheapest cut between
// what must be kept and what is read after that moment, with bytes for capacities: a value that is made again of one as large
// saves nothing, of one that is kept anyway it is free. Random calls draw the same numbers: their place in the sequence is among their parameters.
#include "recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include "dependencies.h"
#include "fuse_group.h"
#include "plan.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

enum class Price : uint8_t { Memory, Arithmetic, Never };  // what bounds a call's time

Price price_of(std::string_view entry) {
  for (const char* e :
       {"copy", "fill", "range", "random", "unary", "binary", "ternary", "fused", "dropout", "norm", "norm_relu"})
    if (entry == e) return Price::Memory;
  for (const char* e : {"reduce", "softmax", "gather", "index", "pool", "attention", "matmul", "conv", "resample"})
    if (entry == e) return Price::Arithmetic;
  return Price::Never;
}

class Round {
 public:
  Round(const Program& p, const std::vector<bool>& fixed, Price most);
  /// Blocks worth making again, the best first.
  std::vector<int> candidates();
  /// The program with those made again.
  Program with(std::span<const int> blocks) const;

 private:
  struct Copies {
    std::vector<int> of;                      // of each block: its second one, or -1
    std::map<int, std::vector<Call>> before;  // new calls, by the call that they stand before
  };
  const Call& writer(int block) const { return p_.calls[size_t(writes_[size_t(block)][0])]; }
  bool own(int block) const {
    return p_.blocks[size_t(block)].kind == Block::Kind::Temporary && !fixed_[size_t(block)];
  }
  bool made_at_once(int block) const;
  bool repeatable(int block, int later) const;
  bool can_make(int block, int at, const std::vector<bool>& again) const;
  void make(int block, int at, const std::vector<bool>& again, Program& out, Copies& copies) const;
  Call copy_of(const Call& call, const std::vector<bool>& again, Program& out, Copies& copies) const;
  int next_use(int block) const;

  const Program& p_;
  const std::vector<bool>& fixed_;
  Price most_;
  int peak_ = 0;                                 // the call at which most bytes are alive
  std::vector<std::vector<int>> uses_, writes_;  // of each block: calls
  std::vector<bool> again_, waits_;  // blocks: the cut makes them again; they are alive at the peak, unused by it
};

Round::Round(const Program& p, const std::vector<bool>& fixed, Price most)
    : p_(p), fixed_(fixed), most_(most), uses_(p.blocks.size()), writes_(p.blocks.size()), again_(p.blocks.size()),
      waits_(p.blocks.size()) {
  for (int at = 0; at < int(p.calls.size()); ++at)
    each_view(p.calls[size_t(at)], [&](const View& v, Access access) {
      uses_[size_t(v.block)].push_back(at);
      if (access != Access::Read) writes_[size_t(v.block)].push_back(at);
    });
  const std::vector<int64_t> alive = live_bytes(p, fixed);
  peak_ = int(std::max_element(alive.begin(), alive.end()) - alive.begin());
}

/// Does one call make the block, all of it and without reading it?
bool Round::made_at_once(int block) const {
  const size_t i = size_t(block);
  if (!own(block) || writes_[i].size() != 1 || uses_[i].front() != writes_[i][0]) return false;
  int named = 0;
  bool whole = true;
  each_view(writer(block), [&](const View& v, Access access) {
    if (v.block == block) ++named, whole &= access == Access::Write && covers(v, p_);
  });
  return whole && named == 1;
}

/// The first call behind the peak that names the block; -1: none.
int Round::next_use(int block) const {
  const std::vector<int>& list = uses_[size_t(block)];
  const auto after = std::upper_bound(list.begin(), list.end(), peak_);
  return after == list.end() ? -1 : *after;
}

/// Would the call that made the block compute the same again just before the call `later`?
bool Round::repeatable(int block, int later) const {
  const Call& call = writer(block);
  const int at = writes_[size_t(block)][0];
  if (price_of(call.entry) > most_) return false;
  bool same = true;
  each_view(call, [&](const View& v, Access access) {
    if (access == Access::Update)
      same &= std::string_view(call.entry).starts_with("norm");  // statistics that can be left out
    if (access != Access::Read) return;
    for (int w : writes_[size_t(v.block)]) same &= w < at || w >= later;
  });
  return same;
}

std::vector<int> Round::candidates() {
  const size_t n = p_.blocks.size();
  std::vector<std::vector<int>> sources(n);
  std::vector<int64_t> capacity(n);
  std::vector<bool> given(n, true), needed(n);
  for (size_t i = 0; i < n; ++i) {
    const int block = int(i);
    if (!own(block) || uses_[i].empty() || uses_[i].front() > peak_) continue;
    const bool there = std::binary_search(uses_[i].begin(), uses_[i].end(), peak_);
    needed[i] = next_use(block) >= 0, waits_[i] = needed[i] && !there;
    capacity[i] = there ? 0 : p_.blocks[i].bytes;
    if (there || !made_at_once(block) || !repeatable(block, needed[i] ? next_use(block) : peak_ + 1)) continue;
    given[i] = false;
    each_view(writer(block), [&](const View& v, Access access) {
      if (access == Access::Read) sources[i].push_back(v.block);
    });
  }
  const std::vector<bool> cut = cheapest_cut(sources, capacity, given, needed);
  for (size_t i = 0; i < n; ++i) again_[i] = !given[i] && !cut[i];
  std::vector<std::pair<double, int>> list;  // bytes that the call moves for each byte it saves
  for (size_t i = 0; i < n; ++i) {
    if (!again_[i] || !waits_[i] || !can_make(int(i), next_use(int(i)), again_)) continue;
    double moved = price_of(writer(int(i)).entry) == Price::Memory ? 0 : 1e9;
    each_view(writer(int(i)), [&](const View& v, Access) { moved += double(numel_of(v.shape) * size_of(v.dtype)); });
    list.emplace_back(moved / double(std::max<int64_t>(p_.blocks[i].bytes, 1)), int(i));
  }
  std::sort(list.begin(), list.end());
  std::vector<int> blocks;
  for (const auto& [cost, block] : list) blocks.push_back(block);
  return blocks;
}

/// Can it be made before the call `at`, with what it needs of other blocks that are made again?
bool Round::can_make(int block, int at, const std::vector<bool>& again) const {
  std::set<int> seen = {block};
  std::vector<int> left = {block};
  while (!left.empty()) {
    const int next = left.back();
    left.pop_back();
    if (!repeatable(next, at)) return false;
    each_view(writer(next), [&](const View& v, Access access) {
      if (access == Access::Read && again[size_t(v.block)] && seen.insert(v.block).second) left.push_back(v.block);
    });
  }
  return true;
}

/// The call on copies where there are some, with new blocks for what it writes.
Call Round::copy_of(const Call& call, const std::vector<bool>& again, Program& out, Copies& copies) const {
  Call copy = call;
  if (is(call, "fused")) keep_stores(copy, again);
  std::map<int, int> spare;
  for (Operand& o : copy.operands)
    for (View& v : o.views) {
      if (v.kind != View::Kind::Memory || v.block < 0) continue;
      if (o.access == Access::Update) {
        v = {}, o.access = Access::Read;
        continue;
      }
      int& second = o.access == Access::Read || again[size_t(v.block)] ? copies.of[size_t(v.block)]
                                                                       : spare.try_emplace(v.block, -1).first->second;
      if (o.access == Access::Write && second < 0) {
        second = int(out.blocks.size());
        out.blocks.push_back(
            {.bytes = p_.blocks[size_t(v.block)].bytes, .device = p_.blocks[size_t(v.block)].device, .death = 0});
      }
      if (second >= 0) v.block = second;
    }
  return copy;
}

void Round::make(int block, int at, const std::vector<bool>& again, Program& out, Copies& copies) const {
  if (copies.of[size_t(block)] >= 0) return;
  each_view(writer(block), [&](const View& v, Access access) {
    if (access == Access::Read && again[size_t(v.block)]) make(v.block, at, again, out, copies);
  });
  if (copies.of[size_t(block)] < 0) copies.before[at].push_back(copy_of(writer(block), again, out, copies));
}

Program Round::with(std::span<const int> blocks) const {
  std::vector<bool> again(p_.blocks.size());
  for (size_t i = 0; i < again.size(); ++i) again[i] = again_[i] && !waits_[i];
  for (int block : blocks) again[size_t(block)] = true;
  std::vector<int> order(blocks.begin(), blocks.end());
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return std::pair(next_use(a), a) < std::pair(next_use(b), b); });
  Program out = p_;
  Copies copies{std::vector<int>(p_.blocks.size(), -1), {}};
  for (int block : order)
    if (can_make(block, next_use(block), again)) make(block, next_use(block), again, out, copies);
  out.calls.clear();
  for (int at = 0; at < int(p_.calls.size()); ++at) {
    if (const auto found = copies.before.find(at); found != copies.before.end())
      for (Call& call : found->second) out.calls.push_back(std::move(call));
    Call& call = out.calls.emplace_back(p_.calls[size_t(at)]);
    if (at <= peak_) continue;
    each_view(call, [&](View& v, Access) {
      if (waits_[size_t(v.block)] && copies.of[size_t(v.block)] >= 0) v.block = copies.of[size_t(v.block)];
    });
  }
  remake_lifetimes(out);
  return out;
}

/// One round; false: it did not help. `sparing`: no more of the blocks are made again than the budget asks for, or than lower what is then
/// the peak.
bool lower(Program& p, int64_t budget, Price price, bool sparing) {
  std::vector<bool> fixed = fixed_blocks(p);
  const int64_t before = most_live_bytes(p, fixed);
  Round round(p, fixed, price);
  const std::vector<int> list = round.candidates();
  Program best;
  int64_t goal = before - before / 256;  // less is not worth the calls
  const auto reaches = [&](size_t count) {
    Program tried = round.with(std::span(list).first(count));
    fixed.resize(tried.blocks.size());
    const int64_t bytes = most_live_bytes(tried, fixed);
    if (bytes > goal) return false;
    if (best.calls.empty()) goal = std::max(bytes, budget);
    best = std::move(tried);
    return true;
  };
  size_t no = 0, yes = list.size();
  while (yes > 0 && !reaches(yes)) yes /= 2;
  while (sparing && yes > no + 1) (reaches((no + yes) / 2) ? yes : no) = (no + yes) / 2;
  if (best.calls.empty()) return false;
  p = std::move(best);
  return true;
}

}  // namespace

int64_t recompute(Program& p, int64_t budget) {
  constexpr int kRounds = 64;
  const int64_t calls = int64_t(p.calls.size());
  const auto most = [](const Program& of) { return most_live_bytes(of, fixed_blocks(of)); };
  const auto lowered = [&](bool sparing) {
    Program out = p;
    for (Price price : {Price::Memory, Price::Arithmetic})
      for (int i = 0; i < kRounds && most(out) > budget && lower(out, budget, price, sparing); ++i) {}
    return out;
  };
  if (most(p) <= budget) return 0;
  Program best = lowered(true);
  if (most(best) > budget)
    if (Program other = lowered(false); most(other) < most(best)) best = std::move(other);
  p = std::move(best);
  return int64_t(p.calls.size()) - calls;
}

}  // namespace tapir::inline v0::ir
