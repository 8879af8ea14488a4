// Each node is two, one that values enter and one that they leave, with an edge of its capacity between; a largest flow by Dinic's
// algorithm, and what it fills is the cut.
#include "min_cut.h"

#include <algorithm>
#include <climits>

namespace tapir::inline v0::ir {
namespace {

constexpr int64_t kEndless = INT64_MAX / 4;

class Flow {
 public:
  explicit Flow(int nodes) : edges_of_(size_t(nodes)), level_(size_t(nodes)), next_(size_t(nodes)) {}
  void edge(int from, int to, int64_t capacity) {
    edges_of_[size_t(from)].push_back(int(edges_.size())), edges_.push_back({to, capacity});
    edges_of_[size_t(to)].push_back(int(edges_.size())), edges_.push_back({from, 0});
  }
  void run(int from, int to) {
    while (levels(from), level_[size_t(to)] >= 0) {
      std::fill(next_.begin(), next_.end(), 0);
      while (push(from, to, kEndless) > 0) {}
    }
  }
  /// After run(): does more fit that far?
  bool reached(int node) const { return level_[size_t(node)] >= 0; }

 private:
  struct Edge {
    int to;
    int64_t left;
  };
  void levels(int from) {
    std::fill(level_.begin(), level_.end(), -1);
    std::vector<int> queue = {from};
    level_[size_t(from)] = 0;
    for (size_t i = 0; i < queue.size(); ++i)
      for (int e : edges_of_[size_t(queue[i])])
        if (const Edge& edge = edges_[size_t(e)]; edge.left > 0 && level_[size_t(edge.to)] < 0)
          level_[size_t(edge.to)] = level_[size_t(queue[i])] + 1, queue.push_back(edge.to);
  }
  int64_t push(int node, int to, int64_t most) {
    if (node == to) return most;
    const std::vector<int>& list = edges_of_[size_t(node)];
    for (size_t& i = next_[size_t(node)]; i < list.size(); ++i) {
      Edge& edge = edges_[size_t(list[i])];
      if (edge.left <= 0 || level_[size_t(edge.to)] != level_[size_t(node)] + 1) continue;
      const int64_t pushed = push(edge.to, to, std::min(most, edge.left));
      if (pushed == 0) continue;
      edge.left -= pushed, edges_[size_t(list[i] ^ 1)].left += pushed;
      return pushed;
    }
    return 0;
  }
  std::vector<std::vector<int>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace

std::vector<bool> cheapest_cut(const std::vector<std::vector<int>>& sources, const std::vector<int64_t>& capacity,
                               const std::vector<bool>& given, const std::vector<bool>& needed) {
  const int n = int(sources.size()), start = 2 * n, end = start + 1;
  Flow flow(2 * n + 2);
  for (int i = 0; i < n; ++i) {
    flow.edge(2 * i, 2 * i + 1, capacity[size_t(i)]);
    for (int s : sources[size_t(i)]) flow.edge(2 * s + 1, 2 * i, kEndless);
    if (given[size_t(i)]) flow.edge(start, 2 * i, kEndless);
    if (needed[size_t(i)]) flow.edge(2 * i + 1, end, kEndless);
  }
  flow.run(start, end);
  std::vector<bool> cut(sources.size());
  for (int i = 0; i < n; ++i) cut[size_t(i)] = flow.reached(2 * i) && !flow.reached(2 * i + 1);
  return cut;
}

}  // namespace tapir::inline v0::ir
