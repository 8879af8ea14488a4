#include <algorithm>
#include <map>
#include <set>

#include "../program/overlap.h"
#include "../program/params.h"
#include "../program/uses.h"
#include "call_graph.h"
#include "fuse_group.h"
#include "passes.h"

namespace tapir::inline v0::ir {
namespace {

constexpr int kWindow = 2048;  // calls that are looked at together: the graph grows with its square

class Fuser {
 public:
  Fuser(const Uses& uses, int first, int last, FuseRows rows)
      : uses_(uses), first_(first), graph_(uses.dependencies(first, last)) {
    for (int i = 0; i < last - first; ++i) {
      const Call& call = call_of(i);
      rows_.push_back(rows != FuseRows::None && is_row_call(call) && (rows == FuseRows::All || is_worth_fusing(call)));
      if (!rows_.back() && !is_pointwise(call)) continue;
      if (backend(call.device).fused) join_partners(i);
      for (const Operand& o : call.operands)
        if (o.kind == TraceArg::Kind::View && o.views[0].block >= 0) users_[o.views[0].block].push_back(i);
    }
  }
  /// The calls of the range, joined and ordered.
  void emit(std::vector<Call>& to) const;

 private:
  const Call& call_of(int i) const { return uses_.call(first_ + i); }
  std::vector<const Call*> calls_of(const std::vector<int>& list) const {
    std::vector<const Call*> calls;
    for (int i : list) calls.push_back(&call_of(i));
    return calls;
  }
  void join_partners(int i);
  bool shares(const std::vector<int>& a, const std::vector<int>& b, const std::vector<int>& both) const;
  bool is_read(const FusedGroup::Place& place, const std::vector<int>& members) const;
  Call fused_call(const std::vector<int>& members) const;

  const Uses& uses_;
  int first_;
  CallGraph graph_;
  std::map<int, std::vector<int>> users_;  // of a block: the calls that may be joined and name it
  std::vector<bool> rows_;                 // is a call one on rows?
};

/// Do the calls fit into one, and is there a place that both groups read or write?
bool Fuser::shares(const std::vector<int>& a, const std::vector<int>& b, const std::vector<int>& both) const {
  const auto all = fused_group(calls_of(both)), first = fused_group(calls_of(a)), second = fused_group(calls_of(b));
  if (!all || !first || !second || all->places.size() >= first->places.size() + second->places.size()) return false;
  const auto stores = std::count_if(all->places.begin(), all->places.end(), [&](const FusedGroup::Place& place) {
    return place.written && is_read(place, both);
  });
  return stores <= kFusedOutputs && all->params.count + stores <= kFusedSteps;
}

/// Joins a call with the nodes of earlier pointwise calls that name one of its blocks, the last ones first.
void Fuser::join_partners(int i) {
  const Call& call = call_of(i);
  std::set<int, std::greater<>> partners;
  constexpr size_t kMost = 8;  // of those that share an operand: more would be far away
  for (const Operand& o : call.operands) {
    if (o.kind != TraceArg::Kind::View || o.views[0].block < 0) continue;
    const auto found = users_.find(o.views[0].block);
    if (found == users_.end()) continue;
    const std::vector<int>& users = found->second;
    for (size_t k = users.size(); k-- > 0 && users.size() - k <= kMost;) partners.insert(users[k]);
  }
  std::set<int> failed;
  for (int partner : partners) {
    const int a = graph_.node_of(i), b = graph_.node_of(partner);
    if (a == b || failed.contains(b)) continue;
    const Call& other = call_of(partner);
    if (other.modes != call.modes || !(other.device == call.device)) continue;
    const auto on_rows = [&](int node) {
      const std::vector<int>& calls = graph_.calls_of(node);
      return std::any_of(calls.begin(), calls.end(), [&](int at) { return rows_[size_t(at)]; });
    };
    if (numel_of(other.result().shape) != numel_of(call.result().shape) && !on_rows(a) && !on_rows(b)) continue;
    std::vector<int> both = graph_.calls_of(a);
    both.insert(both.end(), graph_.calls_of(b).begin(), graph_.calls_of(b).end());
    std::sort(both.begin(), both.end());
    if (!graph_.can_join(a, b) || !shares(graph_.calls_of(a), graph_.calls_of(b), both)) {
      failed.insert(b);
      continue;
    }
    graph_.join(a, b);
  }
}

/// Does anything but the group look at what it leaves there?
bool Fuser::is_read(const FusedGroup::Place& place, const std::vector<int>& members) const {
  const std::vector<Use>& list = uses_.of(place.view.block);
  return !uses_.own(place.view) || std::any_of(list.begin(), list.end(), [&](const Use& use) {
    const bool other = use.call > first_ + members[place.writer] &&
                       !std::binary_search(members.begin(), members.end(), use.call - first_);
    return other && uses_.reads(use.call, place.view);
  });
}

Call Fuser::fused_call(const std::vector<int>& members) const {
  FusedGroup group = *fused_group(calls_of(members));
  const Call& last = call_of(members.back());
  std::vector<View> outs;
  FusedParams& params = group.params;
  for (const FusedGroup::Place& place : group.places) {
    if (!place.written || !is_read(place, members)) continue;
    params.steps[params.count++] = {
        .kind = FusedKind::Store, .type = place.view.dtype, .operand = {uint8_t(place.value), uint8_t(outs.size())}};
    outs.push_back(place.view);
  }
  remove_dead_steps(params, group.inputs);
  return ir::call_of<entry::Fused>(last, params, &entry::Fused::outs, outs, &entry::Fused::ins, group.inputs);
}

void Fuser::emit(std::vector<Call>& to) const {
  for (int node : graph_.order()) {
    const std::vector<int>& members = graph_.calls_of(node);
    const bool pointwise = std::any_of(members.begin(), members.end(), [&](int at) { return !rows_[size_t(at)]; });
    if (members.size() == 1 || !pointwise) {  // a call on rows has a kernel that is faster
      for (int at : members) to.push_back(call_of(at));
      continue;
    }
    Call call = fused_call(members);
    if (!call[&entry::Fused::outs].empty()) to.push_back(std::move(call));
  }
}

}  // namespace

void fuse(Program& p, FuseRows rows) {
  const Uses uses(p);
  std::vector<Call> calls;
  for (int first = 0; first < uses.size(); first += kWindow)
    Fuser(uses, first, std::min(first + kWindow, uses.size()), rows).emit(calls);
  p.calls = std::move(calls);
  remake_lifetimes(p);
}

}  // namespace tapir::inline v0::ir
