#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../core/error.h"
#include "../core/handle.h"
#include "../core/tensor.h"
#include "launch_env.h"

// Note [Process groups]
// Every rank calls the same collectives on a group in the same order, with the same shapes and dtypes. Collectives of a group run one after
// another in a thread of its own. Each message begins with what the sender is doing: where two ranks do different things, both get an
// error that names both calls, before any payload is taken for another. The first error ends the group, later calls repeat it; a
// process may go on alone, to write its checkpoint. A rank that dies is noticed at once, one that hangs after the timeout.
// Tensors may have any strides, and lie on a device (they are then staged through the host). All ranks get the same bits.
// With NCCL, collectives of CUDA tensors run on a stream beside the kernels' (Note [NCCL]): nobody but streams waits for them.
namespace tapir::inline v0::distributed {

/// A rank is gone, or late: what ends a group without a mistake of the program. Elastic::run goes on after it.
struct PeerError : RuntimeError {
  PeerError(const std::string& text, bool late) : RuntimeError(text), late(late) {}
  bool late;  // the timeout is over; else a connection broke
};

enum class ReduceOp : uint8_t { Sum, Mean, Max, Min, Product };

struct ProcessGroupOptions {
  LaunchOptions launch = {};
  /// "tcp": sockets, always there. "gloo": libgloo, where Tapir was built with it. "nccl": CUDA tensors by NCCL, which is opened now, and
  /// those of the host by sockets.
  std::string backend = "tcp";
  double timeout = 600;       // seconds for one collective; infinity is one too
  double init_timeout = 300;  // seconds until all ranks must have come
  std::optional<bool> debug =
      {};  // compare shapes, dtypes and order over all ranks first; else TAPIR_DISTRIBUTED_DEBUG=1
  std::optional<int64_t> device = {};  // with NCCL: the CUDA device of this rank; else local_rank modulo their number
  std::string interface = {};  // network interface; else GLOO_SOCKET_IFNAME, else the one that reaches the store
};

struct WorkState;
void retain(WorkState* work);
void release(WorkState* work);
struct GroupState;
void retain(GroupState* group);
void release(GroupState* group);

/// A collective under way. Dropping it does not stop it.
class Work {
 public:
  Work() = default;  // nothing to wait for
  /// True when the result is there, or an error.
  bool is_completed() const;
  /// Until the result stands in the tensors; with NCCL the current stream waits, not the host. RuntimeError names collective, sequence number and ranks (PeerError where one is gone or late); it is thrown again by each call.
  void wait() const;

 private:
  friend struct GroupState;
  explicit Work(WorkState* adopted) : state_(adopted) {}
  detail::Handle<WorkState> state_;
};

/// Ranks that exchange tensors; a handle, copies mean the same group. See Note [Process groups]. Each collective waits, unless
/// async_op: then its Work does. ValueError for tensors and ranks that do not fit, RuntimeError for peers and in a process that was forked
/// from the group's.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  /// False for a group that this process is no member of.
  explicit operator bool() const { return bool(state_); }
  int64_t rank() const;
  int64_t size() const;
  const LaunchInfo& launch() const;

  /// x of every rank becomes the reduction of all.
  Work all_reduce(const Tensor& x, ReduceOp op = ReduceOp::Sum, bool async_op = false) const;
  /// x of every rank becomes that of src.
  Work broadcast(const Tensor& x, int64_t src = 0, bool async_op = false) const;
  /// x of dst becomes the reduction of all; the others keep theirs.
  Work reduce(const Tensor& x, int64_t dst = 0, ReduceOp op = ReduceOp::Sum, bool async_op = false) const;
  /// out: (size() * n, ...) of x: (n, ...), in the order of ranks.
  Work all_gather(const Tensor& out, const Tensor& x, bool async_op = false) const;
  /// out: (n, ...), part rank() of the reduction of x: (size() * n, ...).
  Work reduce_scatter(const Tensor& out, const Tensor& x, ReduceOp op = ReduceOp::Sum, bool async_op = false) const;
  /// Part r of x along dimension 0 goes to rank r, and comes from rank r into part r of out. No sizes: equal parts.
  Work all_to_all(const Tensor& out, const Tensor& x, const std::vector<int64_t>& out_sizes = {},
                  const std::vector<int64_t>& in_sizes = {}, bool async_op = false) const;
  /// To and from one rank: the calls of one tag pair up in their order, beside all collectives.
  Work send(const Tensor& x, int64_t dst, uint32_t tag = 0, bool async_op = false) const;
  Work recv(const Tensor& x, int64_t src, uint32_t tag = 0, bool async_op = false) const;
  /// Returns when every rank has called it.
  Work barrier(bool async_op = false) const;
  /// A text of every rank, in the order of ranks.
  std::vector<std::string> all_gather_text(const std::string& text) const;

  /// A group of some of these ranks, in the order given; every rank of this group calls it, also those that stay outside.
  ProcessGroup new_group(const std::vector<int64_t>& ranks) const;
  /// The last 1,000 collectives of this rank, one a line. On a timeout it goes to TAPIR_FLIGHT_DIR/flight-<rank>.txt, if set.
  std::string flight_recorder() const;
  /// A number for find_group, the same for all copies.
  int64_t id() const;

 private:
  friend ProcessGroup init_process_group(const ProcessGroupOptions&);
  friend ProcessGroup find_group(int64_t);
  friend struct GroupState;
  friend class Work;
  explicit ProcessGroup(GroupState* adopted) : state_(adopted) {}
  GroupState& state() const;
  detail::Handle<GroupState> state_;
};

/// Meets all other ranks of the job and makes the default group. PeerError lists the ranks that did not come. RuntimeError tells of another
/// WORLD_SIZE, backend or debug, another secret, and a server that is none of ours; ValueError of an address that other machines reach without one.
ProcessGroup init_process_group(const ProcessGroupOptions& options = {});
/// The group of the last init_process_group; ValueError where there is none.
ProcessGroup default_group();
bool is_initialized();
/// Was Tapir built with gloo?
bool gloo_is_available();
/// Lets go of the default group.
void destroy_process_group();
/// The group of that number; ValueError when it is gone.
ProcessGroup find_group(int64_t id);

/// The sum over ranks as an operation on the tape: its gradient is the sum of all ranks' gradients. For statistics that all share.
Tensor all_reduce_sum(const Tensor& x, const ProcessGroup& group);

}  // namespace tapir::inline v0::distributed
