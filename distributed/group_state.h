#pragma once
// What stands behind a ProcessGroup and its Work. Not public.
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "../core/cuda.h"
#include "process_group.h"
#include "socket.h"
#include "store.h"
#include "transport.h"

namespace tapir::inline v0::distributed {

struct WorkState {
  std::atomic<int> refs{1};
  const int process = getpid();
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Failure error;
  std::function<void()> finish;  // in the thread that waits first: results go from the host's copy to where they belong
  std::shared_ptr<Exchange> exchange;  // of send and recv: there is no task
  ProcessGroup group;                  // of these two
  bool sends = false;                  // or it receives
  double deadline = 0;
  std::shared_ptr<cuda::Event> on_device;  // when it is done there: the stream of who waits, waits for it
  bool held = false;                       // its tensors, until it is

  void complete(Failure why);
  void until_done();
  void let_go();
  void until_let_go();
};

/// One collective as the flight recorder keeps it.
struct Flight {
  Signature signature;
  Shape shape;
  const char* state = "queued";
  double queued = 0, began = 0, ended = 0;
};

/// A collective as the group's thread runs it, on contiguous tensors: of the host, or, with NCCL, of a CUDA device.
struct Call {
  Signature signature;
  Shape shape;  // for messages
  Tensor in, out;
  Device device;                             // theirs
  std::shared_ptr<cuda::Event> ready;        // where they lie on a device: when they have their values
  std::vector<int64_t> in_sizes, out_sizes;  // of all_to_all, along dimension 0
};

const char* name_of(Collective op);
/// Of a call after the failure that ended the group.
Failure has_failed(const std::string& words, const Failure& why);
inline Failure has_failed(const Signature& s, const Failure& why) { return has_failed(text_of(s), why); }
/// PeerError where a rank is gone or late, else RuntimeError.
[[noreturn]] void throw_failure(const Failure& why);
/// Before it is handed to the group's thread: on a device it waits for what the current stream computes.
void mark_ready(Call& call);
/// Before the current stream reads x, which may have been made on another: its memory goes to nobody else until that is over.
void used_here(const Tensor& x);

/// A collective that is on the stream of NCCL's communicator.
struct Started {
  std::shared_ptr<cuda::Event> done = {};  // behind it; none without a device, where it is over
  double deadline = 0, timeout = 0, lost = 0;
};

class Nccl;
struct GroupState {
  std::atomic<int> refs{1};
  const int process = getpid();
  int64_t id = 0;
  int64_t rank = 0, size = 1;
  LaunchInfo launch;
  ProcessGroupOptions options;
  std::string prefix, address;
  std::string members;  // as all of them must say it
  bool debug = false;
  std::shared_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
  std::unique_ptr<Transport> transport;  // none: a group of one
  std::unique_ptr<Nccl> nccl;            // for CUDA tensors, where asked for
  int64_t children = 0;
  double silence = 0;  // TransportOptions::silence

  static GroupState& of(const ProcessGroup& group) { return group.state(); }
  static WorkState* of(const Work& work) { return work.state_.get(); }
  GroupState();
  ~GroupState();
  /// What needs no peer: ValueError, RuntimeError for a backend that is not there. The options, with timeouts that clocks can add to.
  static ProcessGroupOptions checked(ProcessGroupOptions options);
  /// init_process_group for a place that is known.
  static ProcessGroup join(const ProcessGroupOptions& options, const LaunchInfo& place, double silence = 0);
  /// Do collectives of x run on its device?
  bool runs_on_device(const Tensor& x) const;
  bool runs_on_device(const Call& call) const;
  void open();
  /// Puts the call in the queue; waits for it unless async_op.
  Work submit(Call call, std::function<void()> finish, bool async_op);
  /// The same in a program that is recorded, and in its graph, whose launches tell of it before and behind: Note [Collectives in a program].
  Work record(Call call, std::function<void()> finish, bool async_op);
  std::shared_ptr<cuda::Event> capture(const Call& call);
  void about_to_launch(const Call& call);
  void launched();
  /// One message to or from a rank, beside the queue.
  Work message(const Signature& s, uint32_t tag, bool sends, const Tensor& x, int64_t peer,
               std::function<void()> finish, bool async_op);
  std::string flight_text(size_t last);
  Failure failed();
  /// Until nothing is on its way on a device.
  void settle();
  /// The first error ends the group: the store is told, then the peers see our side closed. Returns what is to be thrown.
  Failure fail_with(const std::string& what, const Failure& why);

 private:
  struct Task {
    Call call;
    WorkState* work;
    uint64_t flight;
  };
  /// A collective on its way on the device; its tensors stay.
  struct Flying {
    Task task;
    Started started;
  };
  void run();
  void run(Task task, const Failure& failed_before);
  void watch(std::promise<void> opened);
  void open_nccl();
  void fail_flying(const Failure& first);
  Failure fail_on_device(const std::string& what, Failure why);
  void start_on_device(const Task& task);
  uint64_t log(const Call& call);
  void mark(uint64_t flight, const char* state, double Flight::*time);
  void execute(Call& call);
  std::string who_is_late();
  Failure execute_checked(Task& task);
  void compare(const Call& call);
  void exchange(const Signature& s, std::span<const Piece> sends, std::span<const Piece> receives,
                uint64_t channel = 0);
  void to_all(Signature s, const void* mine, std::span<const Piece> receives, int64_t bytes);
  void all_reduce(Call& call);
  void all_reduce_large(Call& call);
  void broadcast(Call& call);
  void reduce(Call& call);
  void all_gather(Call& call);
  void reduce_scatter(Call& call);
  void all_to_all(Call& call);
  void dump_flights();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool stop_ = false;
  Failure failed_;
  uint64_t sequence_ = 0;
  std::deque<Flight> flights_;
  uint64_t first_flight_ = 0;
  double born_ = 0;
  std::string current_;        // what the thread is at
  std::deque<Flying> flying_;  // the watching thread alone takes them out
  std::condition_variable flew_;
  std::vector<Task> launching_;
  std::thread thread_, watch_;  // watch_: with NCCL
};

}  // namespace tapir::inline v0::distributed
