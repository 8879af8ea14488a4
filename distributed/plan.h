#pragma once
// What tapir-run and the ranks of an elastic program say to each other at the store; not public.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "store.h"

// Note [Plans]
// The tapir-run that keeps the store decides, and alone writes plans: which processes the job has from a generation on. Everybody else tells
// events. A launcher: that it is there ("beat NODE"), that it was started with other options ("differs NODE: WHY"), how a process of its own
// ended ("ended ID STATUS"), that a signal came which ends the job ("interrupted"). A process in Elastic::run: that it is there ("elastic
// ID"), that its group of a generation has failed and how many seconds others may still take to say so too ("ready ID GENERATION SECONDS"),
// that the training is over ("done ID GENERATION").
namespace tapir::inline v0::distributed {

struct Plan {
  struct Member {
    int64_t id = 0;  // of a process: never given twice
    int64_t node = 0, local = 0;
  };
  int64_t generation = 0;
  int64_t status = -1;               // from 0 on: the job ends with it
  int64_t first = -1;                // the process that failed first
  bool goes_on = false;              // processes that were there before go on; else all are new
  bool finished = false;             // the training is over: nobody meets any more
  std::vector<Member> members = {};  // in the order of their ranks

  /// Of the process with that number; -1 where it is none of them.
  int64_t rank_of(int64_t id) const;
};
std::string text_of(const Plan& plan);
/// RuntimeError for what is no plan.
Plan plan_of(const std::string& text);
std::string plan_key(int64_t generation);
/// The newest of those from that generation on; waits for the first.
Plan newest_plan(Store& store, int64_t generation, double timeout);

void tell(Store& store, const std::string& event);
/// What has been told since, in its order. `heard` counts the numbers that were given, `late` has those whose event has not come yet: who was
/// held up tells it later, who died never.
std::vector<std::string> hear(Store& store, int64_t& heard, std::set<int64_t>& late);

/// Of the keys with which the ranks of a generation meet, the first time.
std::string meeting_prefix(int64_t generation, int64_t times = 0);

}  // namespace tapir::inline v0::distributed
