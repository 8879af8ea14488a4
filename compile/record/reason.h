#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../../autograd/anomaly.h"

namespace tapir::inline v0::ir {

/// Why a call cannot be replayed, or what it did otherwise, in words and places of the user's code. Places are addresses until somebody reads
/// the text: to find their lines a program is started, which takes 20 ms, and a second where the binary is large.
class Reason {
 public:
  using Site = std::shared_ptr<const CallSite>;
  Reason() = default;
  Reason(std::string words) {
    if (!words.empty()) parts_.push_back({std::move(words), {}});
  }
  Reason(const char* words) : Reason(std::string(words)) {}
  Reason(std::string words, Site site) : parts_{{std::move(words), std::move(site)}} {}

  bool empty() const { return parts_.empty(); }
  std::string text() const {
    std::string s;
    for (const auto& [words, site] : parts_) s += words + describe(site.get());
    return s;
  }
  friend bool operator==(const Reason&, const Reason&) = default;
  friend Reason operator+(Reason a, const Reason& b) {
    a.parts_.insert(a.parts_.end(), b.parts_.begin(), b.parts_.end());
    return a;
  }

 private:
  std::vector<std::pair<std::string, Site>> parts_;
};

}  // namespace tapir::inline v0::ir
