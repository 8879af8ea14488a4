// Note [Recomputation]
// At the call where most bytes are alive, some of them only wait: they were written before and are read after. Those that one call wrote,
// from operands that still hold the same numbers later, can be made again where they are read. Which ones is a cheapest cut between
// what must be kept and what is read after that moment, with bytes for capacities: a value that is made again of one as large
// saves nothing, of one that is kept anyway it is free. Random calls draw the same numbers: their place in the sequence is among their parameters.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "../passes/fuse_group.h"
#include "../passes/passes.h"
#include "../program/uses.h"
#include "min_cut.h"
#include "plan.h"

namespace tapir::inline v0::ir {
namespace {

enum class Price : uint8_t { Memory, Arithmetic, Never };  // what bounds a call's time

Price price_of(const Call& call) {
  using namespace entry;
  if (is<Copy, Fill, Range, Random, Unary, Binary, Ternary, Fused, Dropout, Norm, NormRelu>(call)) return Price::Memory;
  if (is<Reduce, Softmax, Gather, entry::Index, Pool, Attention, Matmul, Conv, Resample>(call))
    return Price::Arithmetic;
  return Price::Never;
}

/// What a call reads and writes.
int64_t bytes_of(const Call& call) {
  int64_t bytes = 0;
  each_view(call, [&](const View& v, Access) { bytes += numel_of(v.shape) * size_of(v.dtype); });
  return bytes;
}

/// What a choice of blocks comes to.
struct Again {
  std::vector<int> of;                      // of each block: its second one, or -1
  std::map<int, std::vector<Call>> before;  // new calls, by the call that they stand before
  std::vector<Block> blocks;                // new ones, behind those that there are
  int64_t calls = 0, moved = 0;             // how many are new; bytes that they read and write
};

class Round {
 public:
  Round(Program& p, Price most);
  /// Bytes that are alive at the worst moment.
  int64_t bytes() const { return bytes_; }
  /// Blocks worth making again, the best first.
  std::vector<int> candidates();
  Again plan(std::span<const int> blocks) const;
  /// The most bytes alive at once if that is done.
  int64_t bytes_with(const Again& a) const;
  void apply(Again a);

 private:
  const Call& writer(int block) const { return uses_.call(uses_.only_maker(block)); }
  int repeatable_until(int block) const;
  std::vector<int> makeable_until(const std::vector<bool>& again) const;
  void make(int block, int at, const std::vector<bool>& again, Again& a) const;
  Call copy_of(const Call& call, const std::vector<bool>& again, Again& a) const;
  /// The first call behind the peak that names the block; -1: none.
  int next_use(int block) const { return uses_.next(block, peak_); }
  /// The block that call `at`, one of the program's, names instead.
  int named(int block, int at, const Again& a) const {
    return at > peak_ && waits_[size_t(block)] && a.of[size_t(block)] >= 0 ? a.of[size_t(block)] : block;
  }

  Program& p_;
  const Uses uses_;
  Price most_;
  int peak_ = 0;  // the call at which most bytes are alive
  int64_t bytes_ = 0;
  std::vector<int> until_;           // blocks: see repeatable_until()
  std::vector<bool> again_, waits_;  // blocks: the cut makes them again; they are alive at the peak, unused by it
};

Round::Round(Program& p, Price most) : p_(p), uses_(p), most_(most), again_(p.blocks.size()), waits_(p.blocks.size()) {
  const std::vector<int64_t> alive = live_bytes(p, fixed_blocks(p));
  const auto most_alive = std::max_element(alive.begin(), alive.end());
  peak_ = int(most_alive - alive.begin()), bytes_ = *most_alive;
  for (size_t i = 0; i < p.blocks.size(); ++i) until_.push_back(repeatable_until(int(i)));
}

/// The last call before which the call that made the block would compute the same again; -1: it is not made again.
int Round::repeatable_until(int block) const {
  const int at = uses_.only_maker(block);
  if (at < 0 || !uses_.own(block) || price_of(uses_.call(at)) > most_) return -1;
  const Call& call = uses_.call(at);
  int until = int(p_.calls.size());
  each_view(call, [&](const View& v, Access access) {
    if (access == Access::Update && !is<entry::Norm, entry::NormRelu>(call))
      until = -1;  // unlike statistics, which can be left out
    if (access != Access::Read) return;
    const auto end = uses_.of(v.block).end();
    const auto next = std::find_if(uses_.since(v.block, at), end, [](const Use& use) { return use.writes; });
    if (next != end) until = std::min(until, next->call);
  });
  return until;
}

/// The same with what it needs of other blocks that are made again.
std::vector<int> Round::makeable_until(const std::vector<bool>& again) const {
  std::vector<int> until = until_;
  for (const Call& call : p_.calls) {
    int least = int(p_.calls.size());
    each_view(call, [&](const View& v, Access access) {
      if (access == Access::Read && again[size_t(v.block)]) least = std::min(least, until[size_t(v.block)]);
    });
    each_view(call, [&](const View& v, Access access) {
      if (access != Access::Read) until[size_t(v.block)] = std::min(until[size_t(v.block)], least);
    });
  }
  return until;
}

std::vector<int> Round::candidates() {
  const size_t n = p_.blocks.size();
  std::vector<std::vector<int>> sources(n);
  std::vector<int64_t> capacity(n);
  std::vector<bool> given(n, true), needed(n);
  for (size_t i = 0; i < n; ++i) {
    const int block = int(i);
    const std::vector<Use>& list = uses_.of(block);
    if (!uses_.own(block) || list.empty() || list[0].call > peak_) continue;
    const bool there = uses_.next(block, peak_ - 1) == peak_;
    needed[i] = next_use(block) >= 0, waits_[i] = needed[i] && !there;
    capacity[i] = there ? 0 : p_.blocks[i].bytes;
    if (there || until_[i] < (needed[i] ? next_use(block) : peak_ + 1)) continue;
    given[i] = false;
    each_view(writer(block), [&](const View& v, Access access) {
      if (access == Access::Read) sources[i].push_back(v.block);
    });
  }
  const std::vector<bool> cut = cheapest_cut(sources, capacity, given, needed);
  for (size_t i = 0; i < n; ++i) again_[i] = !given[i] && !cut[i];
  const std::vector<int> until = makeable_until(again_);
  std::vector<std::pair<double, int>> list;  // bytes that the call moves for each byte it saves
  for (size_t i = 0; i < n; ++i) {
    if (!again_[i] || !waits_[i] || until[i] < next_use(int(i))) continue;
    const Call& call = writer(int(i));
    const double moved = double(bytes_of(call)) + (price_of(call) == Price::Memory ? 0 : 1e9);
    list.emplace_back(moved / double(std::max<int64_t>(p_.blocks[i].bytes, 1)), int(i));
  }
  std::sort(list.begin(), list.end());
  std::vector<int> blocks;
  for (const auto& [cost, block] : list) blocks.push_back(block);
  return blocks;
}

/// The call on copies where there are some, with new blocks for what it writes.
Call Round::copy_of(const Call& call, const std::vector<bool>& again, Again& a) const {
  Call copy = call;
  if (is<entry::Fused>(call)) keep_stores(copy, again);
  std::map<int, int> spare;
  for (Operand& o : copy.operands)
    for (View& v : o.views) {
      if (v.kind != View::Kind::Memory || v.block < 0) continue;
      if (o.access == Access::Update) {
        v = {}, o.access = Access::Read;
        continue;
      }
      int& second = o.access == Access::Read || again[size_t(v.block)] ? a.of[size_t(v.block)]
                                                                       : spare.try_emplace(v.block, -1).first->second;
      if (o.access == Access::Write && second < 0) {
        const Block& b = p_.blocks[size_t(v.block)];
        second = int(p_.blocks.size() + a.blocks.size());
        a.blocks.push_back({.bytes = b.bytes, .device = b.device, .death = 0});
      }
      if (second >= 0) v.block = second;
    }
  return copy;
}

void Round::make(int block, int at, const std::vector<bool>& again, Again& a) const {
  if (a.of[size_t(block)] >= 0) return;
  each_view(writer(block), [&](const View& v, Access access) {
    if (access == Access::Read && again[size_t(v.block)]) make(v.block, at, again, a);
  });
  if (a.of[size_t(block)] >= 0) return;
  const Call& made = a.before[at].emplace_back(copy_of(writer(block), again, a));
  ++a.calls, a.moved += bytes_of(made);
}

Again Round::plan(std::span<const int> blocks) const {
  std::vector<bool> again(p_.blocks.size());
  for (size_t i = 0; i < again.size(); ++i) again[i] = again_[i] && !waits_[i];
  for (int block : blocks) again[size_t(block)] = true;
  std::vector<int> order(blocks.begin(), blocks.end());
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return std::pair(next_use(a), a) < std::pair(next_use(b), b); });
  const std::vector<int> until = makeable_until(again);
  Again a;
  a.of.assign(p_.blocks.size(), -1);
  for (int block : order)
    if (until[size_t(block)] >= next_use(block)) make(block, next_use(block), again, a);
  return a;
}

int64_t Round::bytes_with(const Again& a) const {
  const size_t n = p_.blocks.size();
  std::vector<Life> lives(n + a.blocks.size());
  int now = 0;
  const auto name = [&](int block) {
    Life& life = lives[size_t(block)];
    life.first = std::min(life.first, now), life.last = now;
  };
  for (int at = 0; at < int(p_.calls.size()); ++at, ++now) {
    if (const auto found = a.before.find(at); found != a.before.end())
      for (const Call& call : found->second) each_view(call, [&](const View& v, Access) { name(v.block); }), ++now;
    each_view(p_.calls[size_t(at)], [&](const View& v, Access) { name(named(v.block, at, a)); });
  }
  std::vector<int64_t> change(size_t(now) + 1);
  for (size_t i = 0; i < lives.size(); ++i) {
    if ((i < n && !uses_.own(int(i))) || lives[i].last < 0) continue;
    const int64_t bytes = placed_bytes(i < n ? p_.blocks[i] : a.blocks[i - n]);
    change[size_t(lives[i].first)] += bytes, change[size_t(lives[i].last) + 1] -= bytes;
  }
  int64_t alive = 0, most = 0;
  for (const int64_t c : change) most = std::max(most, alive += c);
  return most;
}

void Round::apply(Again a) {
  std::vector<Call> calls;
  calls.reserve(p_.calls.size() + size_t(a.calls));
  for (int at = 0; at < int(p_.calls.size()); ++at) {
    if (const auto found = a.before.find(at); found != a.before.end())
      std::move(found->second.begin(), found->second.end(), std::back_inserter(calls));
    Call& call = calls.emplace_back(std::move(p_.calls[size_t(at)]));
    each_view(call, [&](View& v, Access) { v.block = named(v.block, at, a); });
  }
  p_.calls = std::move(calls);
  std::move(a.blocks.begin(), a.blocks.end(), std::back_inserter(p_.blocks));
  remake_lifetimes(p_);
}

/// How far it may go.
struct Limits {
  int64_t bytes = 0;  // no less is wanted
  size_t calls = 0;   // no more calls than that
};
constexpr int64_t kMostMoved = 64;  // bytes that new calls move for each one that is saved: what is worse is not done

/// One round; false: it did not help. `sparing`: no more of the blocks are made again than the budget asks for, or than lower what is then
/// the peak.
bool lower(Program& p, const Limits& limits, Price price, bool sparing) {
  Round round(p, price);
  if (round.bytes() <= limits.bytes) return false;
  const std::vector<int> list = round.candidates();
  std::optional<Again> best;
  int64_t goal = round.bytes() - round.bytes() / 256;  // less is not worth the calls
  const auto reaches = [&](size_t count) {
    Again tried = round.plan(std::span(list).first(count));
    if (p.calls.size() + size_t(tried.calls) > limits.calls) return false;
    const int64_t bytes = round.bytes_with(tried);
    if (bytes > goal || tried.moved > kMostMoved * (round.bytes() - bytes)) return false;
    if (!best) goal = std::max(bytes, limits.bytes);
    best = std::move(tried);
    return true;
  };
  size_t no = 0, yes = list.size();
  while (yes > 0 && !reaches(yes)) yes /= 2;
  while (sparing && yes > no + 1) (reaches((no + yes) / 2) ? yes : no) = (no + yes) / 2;
  if (!best) return false;
  round.apply(std::move(*best));
  return true;
}

}  // namespace

int64_t recompute(Program& p, int64_t budget) {
  constexpr int kRounds = 64;
  const size_t calls = p.calls.size();
  const auto most = [](const Program& of) { return most_live_bytes(of, fixed_blocks(of)); };
  const auto lowered = [&](bool sparing) {
    Program out = p;
    for (Price price : {Price::Memory, Price::Arithmetic})
      for (int i = 0; i < kRounds && lower(out, {budget, 2 * calls}, price, sparing); ++i) {}
    return out;
  };
  if (most(p) <= budget) return 0;
  Program best = lowered(true);
  if (most(best) > budget) {
    Program other = lowered(false);
    if (std::pair(most(other), other.calls.size()) < std::pair(most(best), best.calls.size())) best = std::move(other);
  }
  p = std::move(best);
  return int64_t(p.calls.size() - calls);
}

}  // namespace tapir::inline v0::ir
