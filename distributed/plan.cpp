#include "plan.h"

#include <sstream>

#include "../core/error.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr const char* kTold = "told";  // how many events there are
std::string event_key(int64_t number) { return tapir::format("told/{}", number); }

}  // namespace

int64_t Plan::rank_of(int64_t id) const {
  for (size_t r = 0; r < members.size(); ++r)
    if (members[r].id == id) return int64_t(r);
  return -1;
}

std::string text_of(const Plan& p) {
  std::string text = tapir::format("{} {} {} {} {} {}\n", p.generation, p.status, p.first, int(p.goes_on),
                                   int(p.finished), p.members.size());
  for (const Plan::Member& m : p.members) text += tapir::format("{} {} {}\n", m.id, m.node, m.local);
  return text;
}

Plan plan_of(const std::string& text) {
  Plan p;
  std::istringstream in(text);
  size_t size = 0;
  in >> p.generation >> p.status >> p.first >> p.goes_on >> p.finished >> size;
  for (Plan::Member m; p.members.size() < size && in >> m.id >> m.node >> m.local;) p.members.push_back(m);
  check_runtime(in && p.members.size() == size, "[tapir-run] expected a plan, got \"{}\"", text);
  return p;
}

std::string plan_key(int64_t generation) { return tapir::format("plan/{}", generation); }

Plan newest_plan(Store& store, int64_t generation, double timeout) {
  std::string text = store.get(plan_key(generation), timeout);
  while (store.has(plan_key(++generation))) text = store.get(plan_key(generation));
  return plan_of(text);
}

void tell(Store& store, const std::string& event) { store.set(event_key(store.add(kTold, 1)), event); }

std::vector<std::string> hear(Store& store, int64_t& heard, std::set<int64_t>& late) {
  for (const int64_t all = store.add(kTold, 0); heard < all;) late.insert(++heard);
  std::vector<std::string> events;
  std::erase_if(late, [&](int64_t number) {
    const std::string key = event_key(number);
    if (!store.has(key)) return false;
    events.push_back(store.get(key));
    store.remove(key);
    return true;
  });
  return events;
}

std::string meeting_prefix(int64_t generation, int64_t times) { return tapir::format("run{}/{}/", generation, times); }

}  // namespace tapir::inline v0::distributed
