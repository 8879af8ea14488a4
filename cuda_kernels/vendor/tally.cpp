#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "libraries.h"
#include "nvrtc.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr size_t kShown = 40;  // refused signatures of a library that a report lists

struct Kept : Tally {
  std::string why;
};
struct Tallies {
  std::mutex mutex;
  std::map<std::pair<Vendor, std::string>, Kept> all;  // its elements stay where they are
};
Tallies& tallies() {
  static auto* const t = new Tallies;
  return *t;
}

struct Refused {
  int64_t count;
  const std::string *call, *why;
};

void report_calls(Vendor library, std::string& text) {
  int64_t served = 0, signatures = 0;
  std::vector<Refused> refused;
  for (const auto& [key, kept] : tallies().all) {
    if (key.first != library) continue;
    served += kept.served, signatures += kept.served > 0;
    if (kept.refused > 0) refused.push_back({kept.refused, &key.second, &kept.why});
  }
  if (signatures == 0 && refused.empty()) return;
  int64_t all = 0;
  for (const Refused& r : refused) all += r.count;
  const auto counted = [](int64_t calls, size_t kinds) {
    return std::to_string(calls) + " calls of " + std::to_string(kinds) + " signatures";
  };
  text += "  served: " + counted(served, size_t(signatures)) + "; refused: " + counted(all, refused.size()) + '\n';
  std::stable_sort(refused.begin(), refused.end(),
                   [](const Refused& a, const Refused& b) { return a.count > b.count; });
  for (size_t i = 0; i < refused.size() && i < kShown; ++i)
    text += "  refused " + std::to_string(refused[i].count) + " x: " + *refused[i].call + ": " + *refused[i].why + '\n';
  if (refused.size() > kShown) text += "  and " + std::to_string(refused.size() - kShown) + " more signatures\n";
}

}  // namespace

Tally& tally_of(Vendor library, const std::string& call) {
  const std::lock_guard lock(tallies().mutex);
  return tallies().all[{library, call}];
}
void count_refusal(Tally& tally, const std::string& why) {
  const std::lock_guard lock(tallies().mutex);
  if (tally.refused++ == 0) static_cast<Kept&>(tally).why = why;
}

std::string library_report() {
  std::string text;
  for (const Vendor v : {Vendor::CublasLt, Vendor::Cublas, Vendor::Cusolver, Vendor::Cudnn}) {
    text += describe(v) + '\n';
    const std::lock_guard lock(tallies().mutex);
    report_calls(v, text);
  }
  return text + nvrtc::describe() + '\n';
}

}  // namespace tapir::inline v0::cuda_kernels
