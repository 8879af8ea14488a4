// Each node is two, one that values enter and one that they leave, with an edge of its capacity between; a largest flow by the algorithm
// of Edmonds and Karp (along a shortest path as long as there is one), and what it fills is the cut.
#include "min_cut.h"

#include <algorithm>
#include <climits>

namespace tapir::inline v0::ir {
namespace {

constexpr int64_t kEndless = INT64_MAX / 4;

class Flow {
 public:
  explicit Flow(int nodes) : edges_of_(size_t(nodes)), came_by_(size_t(nodes)) {}
  void edge(int from, int to, int64_t capacity) {
    edges_of_[size_t(from)].push_back(int(edges_.size())), edges_.push_back({to, capacity});
    edges_of_[size_t(to)].push_back(int(edges_.size())), edges_.push_back({from, 0});
  }
  void run(int from, int to) {
    while (search(from), reached(to)) {
      int64_t most = kEndless;
      const auto each_edge = [&](auto&& f) {
        for (int node = to; node != from; node = edges_[size_t(came_by_[size_t(node)] ^ 1)].to)
          f(came_by_[size_t(node)]);
      };
      each_edge([&](int e) { most = std::min(most, edges_[size_t(e)].left); });
      each_edge([&](int e) { edges_[size_t(e)].left -= most, edges_[size_t(e ^ 1)].left += most; });
    }
  }
  /// After run(): does more fit that far?
  bool reached(int node) const { return came_by_[size_t(node)] != kNever; }

 private:
  struct Edge {
    int to;
    int64_t left;
  };
  static constexpr int kNever = -1, kStart = -2;
  void search(int from) {
    std::fill(came_by_.begin(), came_by_.end(), kNever);
    std::vector<int> queue = {from};
    came_by_[size_t(from)] = kStart;
    for (size_t i = 0; i < queue.size(); ++i)
      for (int e : edges_of_[size_t(queue[i])])
        if (const Edge& edge = edges_[size_t(e)]; edge.left > 0 && !reached(edge.to))
          came_by_[size_t(edge.to)] = e, queue.push_back(edge.to);
  }
  std::vector<std::vector<int>> edges_of_;
  std::vector<Edge> edges_;
  std::vector<int> came_by_;  // of each node: the edge that the search reached it by
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
