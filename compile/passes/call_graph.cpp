#include "call_graph.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "../../core/error.h"

namespace tapir::inline v0::ir {

CallGraph::CallGraph(std::vector<std::vector<int>> direct)
    : direct_(std::move(direct)), calls_(direct_.size()), node_(direct_.size()), ancestors_(direct_.size()) {
  const size_t words = (direct_.size() + 63) / 64;
  for (size_t i = 0; i < direct_.size(); ++i) {
    node_[i] = int(i), calls_[i] = {int(i)};
    std::vector<uint64_t>& mine = ancestors_[i];
    mine.assign(words, 0);
    for (int d : direct_[i]) {
      mine[size_t(d) / 64] |= uint64_t(1) << (d % 64);
      for (size_t w = 0; w <= size_t(d) / 64; ++w) mine[w] |= ancestors_[size_t(d)][w];
    }
  }
}

bool CallGraph::can_join(int a, int b) const {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    if (!before(from, to)) continue;
    const std::vector<uint64_t>& above = ancestors_[size_t(to)];
    for (size_t w = 0; w < above.size(); ++w)
      for (uint64_t bits = above[w]; bits; bits &= bits - 1) {
        const int x = int(w * 64) + std::countr_zero(bits);
        if (x != from && before(from, x)) return false;
      }
  }
  return true;
}

int CallGraph::join(int a, int b) {
  if (a > b) std::swap(a, b);
  std::vector<uint64_t>& above = ancestors_[size_t(a)];
  for (size_t w = 0; w < above.size(); ++w) above[w] |= ancestors_[size_t(b)][w];
  const auto clear = [](std::vector<uint64_t>& bits, int i) { bits[size_t(i) / 64] &= ~(uint64_t(1) << (i % 64)); };
  clear(above, a), clear(above, b);
  for (size_t i = 0; i < node_.size(); ++i) {
    if (node_[i] != int(i) || int(i) == a || int(i) == b) continue;
    if (!before(a, int(i)) && !before(b, int(i))) continue;
    std::vector<uint64_t>& bits = ancestors_[i];
    for (size_t w = 0; w < bits.size(); ++w) bits[w] |= above[w];
    bits[size_t(a) / 64] |= uint64_t(1) << (a % 64);
    clear(bits, b);
  }
  for (int call : calls_[size_t(b)]) node_[size_t(call)] = a;
  std::vector<int>& calls = calls_[size_t(a)];
  calls.insert(calls.end(), calls_[size_t(b)].begin(), calls_[size_t(b)].end());
  std::sort(calls.begin(), calls.end());
  ancestors_[size_t(b)].clear(), calls_[size_t(b)].clear();
  return a;
}

std::vector<int> CallGraph::order() const {
  const size_t n = node_.size();
  std::vector<std::vector<int>> next(n);
  std::vector<int> waits(n, 0), done;
  for (size_t i = 0; i < n; ++i)
    for (int d : direct_[i])
      if (node_[size_t(d)] != node_[i]) next[size_t(node_[size_t(d)])].push_back(node_[i]), ++waits[size_t(node_[i])];
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> ready;
  const auto push = [&](int node) { ready.emplace(calls_[size_t(node)].back(), node); };
  for (size_t i = 0; i < n; ++i)
    if (node_[i] == int(i) && waits[i] == 0) push(int(i));
  while (!ready.empty()) {
    const int node = ready.top().second;
    ready.pop();
    done.push_back(node);
    for (int y : next[size_t(node)])
      if (--waits[size_t(y)] == 0) push(y);
  }
  const auto nodes = std::count_if(calls_.begin(), calls_.end(), [](const auto& c) { return !c.empty(); });
  check_internal(int64_t(done.size()) == int64_t(nodes), "[fuse] expected {} nodes in order, got {}", int64_t(nodes),
                 int64_t(done.size()));
  return done;
}

}  // namespace tapir::inline v0::ir
