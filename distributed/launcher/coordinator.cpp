#include "coordinator.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "../socket.h"
#include "../transport.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr double kLastWords = 0.5;  // seconds in which the others may say why they fail too
constexpr double kNever = 1e300;
constexpr int64_t kKilled = 137;

}  // namespace

Coordinator::Coordinator(Store& store, int64_t nodes, int64_t processes_each, const JobLimits& limits)
    : store_(store), nodes_(nodes), limits_(limits), ticked_(now()) {
  Plan first;
  for (int64_t node = 0; node < nodes; ++node)
    for (int64_t local = 0; local < processes_each; ++local)
      first.members.push_back({int64_t(first.members.size()), node, local});
  begin(first);
}

void Coordinator::tick() {
  for (const std::string& event : hear(store_, heard_, late_events_)) take(event);
  if (plan_.status >= 0) return;
  look_for_silent_machines();
  look_for_late_ranks();
  if (is_over()) {
    if (failed_.id < 0) return begin({.generation = plan_.generation + 1, .status = 0});
    elastic_ = false, lost_ = {failed_};  // the others have come to their ends: now as with any program
  }
  if (lost_.empty() && ready_.empty()) return;
  if (elastic_ && !lost_.empty() && !std::exchange(meeting_over_, true))  // who is on the way to it turns round
    end_meeting(store_, meeting_prefix(plan_.generation), "a rank is gone", int(plan_.members.size()));
  const Plan plan = next();
  const bool all =
      std::all_of(plan_.members.begin(), plan_.members.end(), [this](const auto& m) { return has_answered(m.id); });
  if (plan.goes_on || lost_.empty() ? all : now() >= since_ + kLastWords) begin(plan);
}

void Coordinator::take(const std::string& event) {
  std::istringstream in(event);
  std::string what;
  int64_t id = -1, number = -1;
  double seconds = 0;
  in >> what >> id >> number >> seconds;
  if (what == "beat" && id >= 0 && id < nodes_) beats_[id] = now();
  else if (what == "interrupted") interrupted_ = true;
  else if (what == "differs") refuse(id, event);
  else if (plan_.rank_of(id) < 0) return;  // of a plan that is over
  else if (what == "elastic") elastic_ = true;
  else if (what == "ended") {
    if (number == 0 && (!elastic_ || interrupted_ || done_.contains(id))) ended_.insert(id);
    else lose(id, number == 0 ? 1 : number);
  } else if (number != plan_.generation) return;
  else if (what == "done") done_.insert(id);
  else if (what == "ready") ready_.insert(id), deadline_ = std::min(deadline_, now() + seconds);
}

/// Ends the job because a machine was started with other options, unless a machine with that number takes part already.
void Coordinator::refuse(int64_t node, const std::string& event) {
  if (node <= 0 || node >= nodes_ || beats_.contains(node)) return;
  std::fprintf(stderr, "tapir-run: machine %d%s\n", int(node), event.c_str() + std::min(event.size(), event.find(':')));
  store_.add("byes", 1);  // it has gone
  if (plan_.status < 0) begin({.generation = plan_.generation + 1, .status = 2});
}

void Coordinator::lose(int64_t id, int64_t status) {
  if (is_lost(id)) return;
  if (lost_.empty()) since_ = now();
  lost_.push_back({id, status});
}

void Coordinator::look_for_silent_machines() {
  const double before = std::exchange(ticked_, now());
  if (limits_.silence <= 0) return;
  for (auto& [node, at] : beats_) {
    if (now() - before > limits_.silence / 2) at = now();  // we were held up ourselves
    if (node == 0 || now() - at < limits_.silence || !lost_nodes_.insert(node).second) continue;
    std::fprintf(stderr, "tapir-run: machine %d has said nothing for %g s: it is lost\n", int(node), limits_.silence);
    for (const Plan::Member& m : plan_.members)
      if (m.node == node && !ended_.contains(m.id)) lose(m.id, 1);
  }
}

void Coordinator::look_for_late_ranks() {
  if (ready_.empty() || now() < deadline_) return;
  for (const Plan::Member& m : plan_.members) {
    if (has_answered(m.id)) continue;
    std::fprintf(stderr, "tapir-run: rank %d did not come when the others met: it is ended\n",
                 int(plan_.rank_of(m.id)));
    lose(m.id, kKilled);
  }
}

bool Coordinator::is_lost(int64_t id) const {
  return std::any_of(lost_.begin(), lost_.end(), [id](const Lost& l) { return l.id == id; });
}
bool Coordinator::has_answered(int64_t id) const {
  return is_lost(id) || ready_.contains(id) || done_.contains(id) || ended_.contains(id);
}
bool Coordinator::is_over() const {
  return lost_.empty() && std::all_of(plan_.members.begin(), plan_.members.end(),
                                      [this](const auto& m) { return ended_.contains(m.id); });
}

/// After what was lost. Where the training is over the others come to their ends first.
Plan Coordinator::next() {
  const bool anyone =
      std::any_of(plan_.members.begin(), plan_.members.end(), [this](const auto& m) { return !is_lost(m.id); });
  Plan p{.generation = plan_.generation + 1, .goes_on = elastic_ && anyone};
  restarts_then_ = restarts_;
  if (elastic_ && !done_.empty()) {
    p.finished = true, p.members = plan_.members;
    return p;
  }
  if (!lost_.empty()) p.first = lost_[0].id;
  const auto may_restart = [this] { return restarts_then_ < limits_.restarts && ++restarts_then_; };
  const bool again = (!p.goes_on || lost_.empty()) && may_restart();  // one restart for all
  int64_t id = next_id_;
  for (const Plan::Member& m : plan_.members) {
    const bool lives = !lost_nodes_.contains(m.node);
    if (p.goes_on && !is_lost(m.id)) p.members.push_back(m);
    else if (p.goes_on) {
      if (lives && may_restart()) p.members.push_back({id++, m.node, m.local});
    } else if (lives && (again || m.id != p.first)) p.members.push_back({id++, m.node, m.local});
  }
  const bool alarm =
      p.goes_on && lost_.empty() && alarms_ < int64_t(p.members.size());  // they meet again, but not for ever
  const bool enough = int64_t(p.members.size()) >= limits_.least && (again || alarm || !lost_.empty()) && !interrupted_;
  if (enough) return p;
  return {.generation = p.generation, .status = lost_.empty() ? 1 : lost_[0].status, .first = p.first};
}

void Coordinator::begin(const Plan& plan) {
  news_ += change_to(plan);
  if (plan.finished) {
    if (failed_.id < 0 && !lost_.empty()) failed_ = lost_[0];
    for (const Lost& l : lost_) ended_.insert(l.id);
    for (const Plan::Member& m : plan.members) done_.insert(m.id);
  } else done_.clear(), ended_.clear(), failed_ = {};
  plan_ = plan;
  for (const Plan::Member& m : plan.members) next_id_ = std::max(next_id_, m.id + 1);
  alarms_ += plan.goes_on && lost_.empty();
  restarts_ = restarts_then_, elastic_ = plan.goes_on || plan.finished;
  lost_.clear(), ready_.clear();
  meeting_over_ = false, since_ = 0, deadline_ = kNever;
  store_.set(plan_key(plan.generation), text_of(plan));
}

std::string Coordinator::change_to(const Plan& plan) const {
  const auto left = plan.members.size();
  if (plan.status >= 0 || plan.generation == 0) return {};
  if (!plan.goes_on && !plan.finished)
    return restarts_then_ > restarts_
               ? tapir::format("tapir-run: starting all ranks again ({} of {})\n", restarts_then_, limits_.restarts)
               : tapir::format("tapir-run: starting the other {} ranks again\n", left);
  if (plan.finished) return "tapir-run: the training is over: the others come to their ends\n";
  std::string text;
  for (const Lost& l : lost_) {
    const int64_t rank = plan_.rank_of(l.id);
    const Plan::Member& was = plan_.members[size_t(rank)];
    const bool replaced = std::any_of(plan.members.begin(), plan.members.end(),
                                      [&](const auto& m) { return m.node == was.node && m.local == was.local; });
    text += tapir::format("tapir-run: rank {} is {}\n", rank, replaced ? "replaced" : "left out");
  }
  return text + tapir::format("tapir-run: going on with {} {} ({} of {} restarts)\n", left,
                              left == 1 ? "rank" : "ranks", restarts_then_, limits_.restarts);
}

}  // namespace tapir::inline v0::distributed
