// Note [Order of calls]
// The order in which eager code computes is not the one that needs the least memory. A call that makes more bytes than it ends moves
// down to just before its first reader, one that ends more than it makes moves up behind what it needs; each as far as the dependencies
// let it. What comes out is kept where the most bytes alive at once are fewer than before.
#include <algorithm>

#include "dependencies.h"
#include "passes.h"
#include "plan.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

class Order {
 public:
  explicit Order(const Program& p) : p_(p), before_(dependencies(p, 0, int(p.calls.size()))), after_(p.calls.size()) {
    const std::vector<bool> fixed = fixed_blocks(p);
    named_.resize(p.calls.size()), users_.resize(p.blocks.size());
    for (int at = 0; at < int(p.calls.size()); ++at) {
      for (int d : before_[size_t(at)]) after_[size_t(d)].push_back(at);
      each_view(p.calls[size_t(at)], [&](const View& v, Access) {
        std::vector<int>& list = users_[size_t(v.block)];
        if (p.blocks[size_t(v.block)].kind != Block::Kind::Temporary || (!list.empty() && list.back() == at)) return;
        list.push_back(at);
        named_[size_t(at)].push_back(v.block);
      });
      order_.push_back(at), place_.push_back(at);
    }
    for (size_t i = 0; i < fixed.size(); ++i) stays_.push_back(fixed[i] || p.blocks[i].death < 0);
  }
  /// Moves each call once; did any move?
  bool sweep();
  const std::vector<int>& order() const { return order_; }

 private:
  int64_t grows(int call) const;
  void move(int call, int to);

  const Program& p_;
  std::vector<std::vector<int>> before_, after_;
  std::vector<std::vector<int>> named_, users_;  // temporary blocks of each call, and the other way round
  std::vector<bool> stays_;                      // blocks that are alive at the end
  std::vector<int> order_, place_;
};

/// Bytes of blocks that begin with the call, less those that end with it.
int64_t Order::grows(int call) const {
  int64_t bytes = 0;
  for (int block : named_[size_t(call)]) {
    bool first = true, last = !stays_[size_t(block)];
    for (int user : users_[size_t(block)]) {
      first &= place_[size_t(user)] >= place_[size_t(call)];
      last &= place_[size_t(user)] <= place_[size_t(call)];
    }
    bytes += (int64_t(first) - int64_t(last)) * p_.blocks[size_t(block)].bytes;
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
