// Calls in a process of their own, so that one that crashes or hangs is found like any other.
#pragma once
#include <regex>
#include <set>

#include "check.h"

namespace ops_fuzz {

struct Settings {
  uint64_t seed = 1;
  int64_t calls = 0;    // 0: until the time is over
  double seconds = 60;  // 0: until the calls are done
  double hang = 10;     // seconds that one call may take
  std::optional<Device> device = {};
  int compiled = 40, gradient = 6, on_device = 4;  // one call in so many is compared so
  int64_t megabytes = 512;                         // that the calls may take beside the program
  std::vector<std::regex> known = {};              // of the keys of findings that are not reported
};

/// A finding with the call, as small as could be.
struct Found {
  Finding finding;
  std::string call;
};

/// "written div twin": one finding of each kind for an operation is enough.
std::string key_of(const std::string& check, const std::string& call);

class Campaign {
 public:
  Campaign(const Lines& lines, const Settings& settings) : lines_(lines), settings_(settings) {}
  /// The calls of the corpus, then random ones. Prints each finding.
  void run(const std::vector<std::string>& corpus);
  const std::vector<Found>& found() const { return found_; }
  const Counts& counts() const { return counts_; }
  int64_t known() const { return known_; }

 private:
  struct Shared;  // with the process that runs the calls
  enum class Ended : uint8_t { Done, Crashed, Hung };

  void work(Shared& shared, int pipe, const std::vector<std::string>& corpus, int64_t from);
  void report(Shared& shared, int pipe, const Call& call, const Plan& plan, const Finding& finding);
  Plan plan_of(int64_t n, bool whole) const;
  Ended watch(Shared& shared, int pid, int pipe, int* status);
  void read_reports(int pipe);
  void add(Found found);
  void add_ended(Shared& shared, const std::string& check, const std::string& message);
  bool ends_badly(const Call& call, double seconds) const;
  bool is_new(const std::string& key);

  const Lines& lines_;
  const Settings& settings_;
  Counts counts_;
  int64_t known_ = 0;
  std::vector<Found> found_;
  std::set<std::string> keys_;
  std::string unread_;
};

}  // namespace ops_fuzz
