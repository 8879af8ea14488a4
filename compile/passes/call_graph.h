#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapir::inline v0::ir {

/// Calls 0 to n - 1 and which of them depend on which, while some are joined: where no third one stands between them, none that depends on
/// one of the two and that the other depends on. So what is left is without cycles, and order() finds a sequence.
class CallGraph {
 public:
  explicit CallGraph(std::vector<std::vector<int>> direct);
  /// The node that call belongs to: a call too, the representative.
  int node_of(int call) const { return node_[size_t(call)]; }
  const std::vector<int>& calls_of(int node) const { return calls_[size_t(node)]; }
  /// May two nodes become one?
  bool can_join(int a, int b) const;
  /// Their representative.
  int join(int a, int b);
  /// The nodes in an order that their dependencies allow: as late as their last call.
  std::vector<int> order() const;

 private:
  bool before(int a, int b) const { return ancestors_[size_t(b)][size_t(a) / 64] >> (a % 64) & 1; }
  std::vector<std::vector<int>> direct_, calls_;
  std::vector<int> node_;
  std::vector<std::vector<uint64_t>> ancestors_;  // of a representative: bits of representatives
};

}  // namespace tapir::inline v0::ir
