#pragma once
// Which processes a job has: the part of tapir-run that decides, at the store of machine 0.
#include <map>
#include <set>
#include <string>
#include <utility>

#include "../plan.h"

namespace tapir::inline v0::distributed {

struct JobLimits {
  int64_t restarts = 0;  // of processes, or of all at once
  int64_t least = 1;     // ranks without which the job ends
  double silence = 0;    // seconds after which a machine is lost; 0: never
};

class Coordinator {
 public:
  /// Writes plan 0.
  Coordinator(Store& store, int64_t nodes, int64_t processes_each, const JobLimits& limits);
  /// Hears what was told, and writes the next plan where there is to be one.
  void tick();
  /// What the last plan changes, in lines for the user; once.
  std::string news() { return std::exchange(news_, {}); }
  /// Machines that take part.
  int64_t nodes() const { return nodes_ - int64_t(lost_nodes_.size()); }

 private:
  struct Lost {
    int64_t id = -1, status = 0;
  };
  void take(const std::string& event);
  void refuse(int64_t node, const std::string& event);
  void lose(int64_t id, int64_t status);
  void look_for_silent_machines();
  void look_for_late_ranks();
  bool is_lost(int64_t id) const;
  bool has_answered(int64_t id) const;
  bool is_over() const;
  Plan next();
  void begin(const Plan& plan);
  std::string change_to(const Plan& plan) const;

  Store& store_;
  const int64_t nodes_;
  JobLimits limits_;
  Plan plan_;
  std::string news_;
  int64_t heard_ = 0, next_id_ = 0;
  int64_t restarts_ = 0, restarts_then_ = 0;  // used so far, and with what next() gave
  int64_t alarms_ = 0;                        // groups that failed although nobody was lost
  bool interrupted_ = false, elastic_ = false, meeting_over_ = false;
  std::map<int64_t, double> beats_;  // of machines that have been there
  std::set<int64_t> lost_nodes_, ended_, done_, ready_, late_events_;
  Lost failed_;             // when the training was over
  std::vector<Lost> lost_;  // in the order of their ends
  double since_ = 0, deadline_ = 0, ticked_ = 0;
};

}  // namespace tapir::inline v0::distributed
