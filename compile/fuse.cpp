#include "fuse.h"

#include <algorithm>
#include <map>
#include <set>

#include "dependencies.h"
#include "fuse_group.h"
#include "overlap.h"
#include "params.h"
#include "rows.h"

namespace tapir::inline v0::ir {
namespace {

constexpr int kWindow = 2048;  // calls that are looked at together: the graph grows with its square

class Fuser {
 public:
  /// `readers`: of each block, the calls of the whole program that read it.
  Fuser(const Program& p, int first, int last, const std::vector<std::vector<int>>& readers, FuseRows rows)
      : p_(p), first_(first), readers_(readers), graph_(dependencies(p, first, last)) {
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
  void emit(std::vector<Call>& to, FuseReport& report);

 private:
  const Call& call_of(int i) const { return p_.calls[size_t(first_ + i)]; }
  std::vector<const Call*> calls_of(const std::vector<int>& list) const {
    std::vector<const Call*> calls;
    for (int i : list) calls.push_back(&call_of(i));
    return calls;
  }
  void join_partners(int i);
  bool shares(const std::vector<int>& a, const std::vector<int>& b, const std::vector<int>& both) const;
  bool is_read(const FusedGroup::Place& place, const std::vector<int>& members) const;
  Call fused_call(const std::vector<int>& members) const;

  const Program& p_;
  int first_;
  const std::vector<std::vector<int>>& readers_;
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
    if (other.deterministic != call.deterministic || !(other.device == call.device)) continue;
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
  const Block& b = p_.blocks[size_t(place.view.block)];
  if (b.kind != Block::Kind::Temporary || b.death < 0) return true;
  for (const View& v : p_.outputs)
    if (v.kind == View::Kind::Memory && v.block == place.view.block) return true;
  const int writer = first_ + members[place.writer];
  for (int at : readers_[size_t(place.view.block)]) {
    if (at <= writer || std::binary_search(members.begin(), members.end(), at - first_)) continue;
    for (const Operand& o : p_.calls[size_t(at)].operands)
      for (const View& v : o.views)
        if (o.access != Access::Write && overlap(v, place.view)) return true;
  }
  return false;
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
  Call call = ir::call_of<entry::Fused>(last, params);
  call[&entry::Fused::outs] = std::move(outs), call[&entry::Fused::ins] = group.inputs;
  return call;
}

void Fuser::emit(std::vector<Call>& to, FuseReport& report) {
  for (int node : graph_.order()) {
    const std::vector<int>& members = graph_.calls_of(node);
    const bool pointwise = std::any_of(members.begin(), members.end(), [&](int at) { return !rows_[size_t(at)]; });
    if (members.size() == 1 || !pointwise) {  // a call on rows has a kernel that is faster
      for (int at : members) to.push_back(call_of(at));
      continue;
    }
    Call call = fused_call(members);
    ++report.groups;
    if (!call[&entry::Fused::outs].empty()) to.push_back(std::move(call));
  }
}

}  // namespace

FuseReport fuse(Program& p, FuseRows rows) {
  FuseReport report{.calls_before = int64_t(p.calls.size())};
  std::vector<std::vector<int>> readers(p.blocks.size());
  for (int at = 0; at < int(p.calls.size()); ++at)
    for (const Operand& o : p.calls[size_t(at)].operands)
      for (const View& v : o.views)
        if (o.access != Access::Write && v.kind == View::Kind::Memory && v.block >= 0 &&
            (readers[size_t(v.block)].empty() || readers[size_t(v.block)].back() != at))
          readers[size_t(v.block)].push_back(at);
  std::vector<Call> calls;
  for (const Call& call : p.calls) report.bytes_before += bytes_of(call);
  for (int first = 0; first < int(p.calls.size()); first += kWindow)
    Fuser(p, first, std::min(first + kWindow, int(p.calls.size())), readers, rows).emit(calls, report);
  p.calls = std::move(calls);
  for (const Call& call : p.calls) report.bytes_after += bytes_of(call);
  report.calls_after = int64_t(p.calls.size());
  remake_lifetimes(p);
  return report;
}

}  // namespace tapir::inline v0::ir
