// How the ranks of a group find each other in the store, before they have connections.
#include <algorithm>
#include <chrono>
#include <thread>

#include "../core/error.h"
#include "process_group.h"
#include "socket.h"
#include "transport.h"

namespace tapir::inline v0::distributed {

namespace {

constexpr const char* kGaveUp = "the others have given up";

std::string over_key(const std::string& prefix) { return prefix + "over"; }
std::string rank_key(const std::string& prefix, int rank) { return tapir::format("{}at/{}", prefix, rank); }

/// Where the ranks of a group leave their texts, and why nobody waits any more: the first verdict is everybody's.
struct Meeting {
  Store& store;
  const TransportOptions& o;
  std::string key(int rank) const { return rank_key(o.prefix, rank); }
  /// Why it is over; empty while it is not.
  std::string verdict() { return is_meeting_over(store, o.prefix) ? store.get(over_key(o.prefix)) : ""; }
  [[noreturn]] void refuse(const std::string& why) {
    linger();
    fail(ErrorKind::Runtime, "[init_process_group] expected rank {} of {} to meet the others within {} s; {}", o.rank,
         o.size, o.init_timeout, why);
  }
  /// The first that comes says how many they are, and what they are to have alike.
  void agree_on_terms() {
    const std::string place = o.prefix + "terms", mine = tapir::format("{} {}", o.size, o.terms);
    if (store.add(o.prefix + "comers", 1) == 1) return store.set(place, mine);
    const std::string first = store.get(place, o.init_timeout);
    if (first == mine) return;
    const std::string why = tapir::format("the ranks differ: rank {} has {}; the first that came has {}", o.rank,
                                          o.terms, first.substr(first.find(' ') + 1));
    end_meeting(store, o.prefix, why, std::max(std::stoi(first), o.size));
    refuse(why);
  }
  /// The store may go with this process: let others read.
  static void linger() { std::this_thread::sleep_for(std::chrono::milliseconds(500)); }
};

}  // namespace

/// Who waits for a rank that is not there gets an empty text.
void end_meeting(Store& store, const std::string& prefix, const std::string& why, int ranks) {
  if (!store.has(over_key(prefix))) store.set(over_key(prefix), why);
  for (int r = 0; r < ranks; ++r)
    if (!store.has(rank_key(prefix, r))) store.set(rank_key(prefix, r), "");
}

bool is_meeting_over(Store& store, const std::string& prefix) { return store.has(over_key(prefix)); }

std::vector<std::string> meet(Store& store, const TransportOptions& o, const std::string& mine) {
  const double deadline = now() + o.init_timeout;
  Meeting meeting{store, o};
  meeting.agree_on_terms();
  store.set(meeting.key(o.rank), mine);
  if (const std::string why = meeting.verdict(); !why.empty()) meeting.refuse(why);
  std::vector<std::string> texts(static_cast<size_t>(o.size));
  std::string missing, came;
  for (int r = 0; r < o.size; ++r) {
    const double left = deadline - now();
    if (left > 0) try {
        texts[size_t(r)] = store.get(meeting.key(r), left);
      } catch (const RuntimeError&) {
        if (now() < deadline) throw;
      }
    else if (store.has(meeting.key(r))) texts[size_t(r)] = store.get(meeting.key(r));
    if (texts[size_t(r)].empty() && missing.empty()) {
      end_meeting(store, o.prefix, kGaveUp, o.size);
      if (const std::string why = meeting.verdict(); why != kGaveUp) meeting.refuse(why);
    }
    std::string& list = texts[size_t(r)].empty() ? missing : came;
    list += (list.empty() ? "" : ", ") + std::to_string(r);
  }
  if (missing.empty()) return texts;
  Meeting::linger();
  throw PeerError(tapir::format("[init_process_group] expected {} ranks within {} s, missing: {}; came: {}", o.size,
                                o.init_timeout, missing, came),
                  true);
}

}  // namespace tapir::inline v0::distributed
