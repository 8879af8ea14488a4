#pragma once
// What a backend for processes must provide: messages between ranks. Collectives are made of them in process_group.cpp. Not public.
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "../core/tensor.h"
#include "store.h"

namespace tapir::inline v0::distributed {

enum class Collective : uint8_t {
  AllReduce,
  Broadcast,
  Reduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Barrier,
  Send,
  Compare
};

/// Goes before every message: both sides must be at the same call.
struct Signature {
  Collective op = Collective::Barrier;
  uint8_t reduce = 0;
  DType dtype = kUInt8;
  uint8_t phase = 0;  // of a collective of several exchanges
  int32_t root = -1;
  uint64_t sequence = 0;
  int64_t count = 0;  // elements, where all ranks must have the same; else -1
  bool operator==(const Signature&) const = default;
};
/// "all_reduce(sum) #12 of 1000 x float32"
std::string text_of(const Signature& s);

/// What went wrong; without a text nothing did.
struct Failure {
  enum class Kind : uint8_t { Other, PeerGone, Timeout };
  std::string text = {};
  Kind kind = Kind::Other;
  explicit operator bool() const { return !text.empty(); }
};
inline Failure peer_gone(int rank, const std::string& why) {
  return {tapir::format("rank {} is gone ({})", rank, why), Failure::Kind::PeerGone};
}
inline Failure timed_out(double seconds, const std::string& more = {}) {
  return {tapir::format("timed out after {} s{}", seconds, more), Failure::Kind::Timeout};
}

struct Piece {
  int peer;
  void* data;
  int64_t bytes;
};

/// Messages under way; their memory must stay until finished() or Transport::abort().
struct Exchange {
  Signature signature;
  std::mutex mutex;
  std::condition_variable changed;
  int left = 0;
  Failure failure;
  std::vector<int> waits_for;  // one entry per message that is not done
  Tensor memory;               // where nobody else keeps it

  bool finished() {
    std::lock_guard lock(mutex);
    return left == 0 || failure;
  }
  /// False at the deadline (of distributed::now()).
  bool wait(double deadline);
  void done(int peer);
  void fail(const Failure& why);
};

class Transport {
 public:
  virtual ~Transport() = default;
  /// Messages of one channel between two ranks arrive in the order in which they were sent.
  virtual std::shared_ptr<Exchange> start(uint64_t channel, const Signature& signature, std::span<const Piece> sends,
                                          std::span<const Piece> receives) = 0;
  /// The first peer that is gone, as soon as it is known.
  virtual Failure gone() { return {}; }
  /// Every exchange fails, now and later; nobody's memory is touched any more. Peers see a closed connection.
  virtual void abort(const std::string& why) = 0;
};

struct TransportOptions {
  int rank = 0, size = 1;
  std::string prefix;      // of this group's keys in the store
  std::string terms = {};  // what all ranks must have alike
  std::string address;     // of this machine, as peers reach it
  std::string secret;
  double init_timeout = 300;
  double silence = 0;  // seconds after which a peer whose machine does not answer is gone; 0: as the system has it

  /// Seconds to connect to peers that have just been at the store.
  double connect_timeout() const { return silence > 0 ? std::min(silence, init_timeout) : init_timeout; }
};
/// Why nobody waits any more for ranks 0 to ranks - 1 of the meeting under that prefix; the first reason is everybody's.
void end_meeting(Store& store, const std::string& prefix, const std::string& why, int ranks);
bool is_meeting_over(Store& store, const std::string& prefix);
/// Leaves this rank's text in the store and returns those of all; RuntimeError lists the ranks that did not come in time.
std::vector<std::string> meet(Store& store, const TransportOptions& options, const std::string& mine);
std::unique_ptr<Transport> make_tcp(Store& store, const TransportOptions& options);
/// RuntimeError, which names the package, where Tapir was built without it.
std::unique_ptr<Transport> make_gloo(Store& store, const TransportOptions& options);

/// out = reduction of the pieces, in their order, each of n elements; `out` may be one of them. 16-bit floats are reduced in float32.
void reduce_pieces(void* out, std::span<const void* const> pieces, int64_t n, DType dtype, int reduce);

}  // namespace tapir::inline v0::distributed
