// Note [Order of calls]
// The order in which eager code computes is not the one that needs the least memory. A call that makes more bytes than it ends moves
// down to just before its first reader, one that ends more than it makes moves up behind what it needs; each as far as the dependencies
// let it. What comes out is kept where the most bytes alive at once are fewer than before.
#include <algorithm>

#include "../passes/passes.h"
#include "../program/uses.h"
#include "plan.h"

namespace tapir::inline v0::ir {
namespace {

class Order {
 public:
  explicit Order(const Program& p) : uses_(p), before_(uses_.dependencies(0, uses_.size())), after_(before_.size()) {
    for (int at = 0; at < uses_.size(); ++at) {
      for (int d : before_[size_t(at)]) after_[size_t(d)].push_back(at);
      order_.push_back(at), place_.push_back(at);
    }
  }
  /// Moves each call once; did any move?
  bool sweep();
  const std::vector<int>& order() const { return order_; }

 private:
  int64_t grows(int call) const;
  void move(int call, int to);

  const Uses uses_;
  std::vector<std::vector<int>> before_, after_;
  std::vector<int> order_, place_;
};

/// Bytes of temporary blocks that begin with the call, less those that end with it.
int64_t Order::grows(int call) const {
  int64_t bytes = 0;
  for (int block : blocks_of(uses_.call(call))) {
    if (uses_.block(block).kind != Block::Kind::Temporary) continue;
    bool first = true, last = uses_.own(block);
    for (const Use& use : uses_.of(block)) {
      first &= place_[size_t(use.call)] >= place_[size_t(call)];
      last &= place_[size_t(use.call)] <= place_[size_t(call)];
    }
    bytes += (int64_t(first) - int64_t(last)) * uses_.block(block).bytes;
  }
  return bytes;
}

void Order::move(int call, int to) {
  const int from = place_[size_t(call)];
  const auto at = [&](int i) { return order_.begin() + i; };
  if (from < to) std::rotate(at(from), at(from + 1), at(to + 1));
  else std::rotate(at(to), at(from), at(from + 1));
  for (int i = std::min(from, to); i <= std::max(from, to); ++i) place_[size_t(order_[size_t(i)])] = i;
}

bool Order::sweep() {
  bool moved = false;
  const auto go = [&](int call, bool down) {
    if (uses_.call(call).custom) return;  // what it began may go on until another one ends it
    const int64_t bytes = grows(call);
    if (down ? bytes <= 0 : bytes >= 0) return;
    int to = down ? int(order_.size()) - 1 : 0;
    for (int other : (down ? after_ : before_)[size_t(call)])
      to = down ? std::min(to, place_[size_t(other)] - 1) : std::max(to, place_[size_t(other)] + 1);
    if (to == place_[size_t(call)]) return;
    move(call, to), moved = true;
  };
  const std::vector<int> now = order_;
  for (size_t i = now.size(); i-- > 0;) go(now[i], true);
  for (int call : now) go(call, false);
  return moved;
}

}  // namespace

void order_calls(Program& p) {
  constexpr int kSweeps = 4;
  const std::vector<bool> fixed = fixed_blocks(p);
  int64_t least = most_live_bytes(p, fixed);
  Order order(p);
  Program best;
  for (int i = 0; i < kSweeps && order.sweep(); ++i) {
    Program tried = p;
    for (size_t k = 0; k < order.order().size(); ++k) tried.calls[k] = p.calls[size_t(order.order()[k])];
    const int64_t bytes = most_live_bytes(tried, fixed);
    if (bytes < least) least = bytes, best = std::move(tried);
  }
  if (best.calls.empty()) return;
  p = std::move(best);
  remake_lifetimes(p);
}

}  // namespace tapir::inline v0::ir
