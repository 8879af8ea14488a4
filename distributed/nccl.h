#pragma once
// Note [NCCL]
// A communicator of NCCL's for the CUDA tensors of a group; tensors on the host, and what ranks must agree on, go over the group's sockets,
// which also tell at once when a peer has died: NCCL may wait for it for ever.
// States: opening -> ready -> failed or closed. The communicator does not block: a call that is "in progress" is asked for again, with
// ncclCommGetAsyncError, until it is on the communicator's stream, which goes before the streams of kernels. It is begun in the thread that
// calls, which then goes on: who uses the result lets a stream wait for the event behind it. A thread of the group watches what is on its
// way: it is over when that event has been passed. A deadline, an asynchronous error or a dead peer ends in ncclCommAbort, which lets go of
// what still runs on the device; after that every call repeats the first error. An invalid argument alone leaves the communicator as it is.
// Never run by us on GPUs so far: tests use a stand-in of the same interface, which refuses what NVIDIA's would not survive
// (tests/distributed/nccl_stand_in). Not public.
#include <memory>
#include <mutex>
#include <string>

#include "../core/cuda.h"
#include "group_state.h"
#include "nccl_api.h"

namespace tapir::inline v0::distributed {

class Nccl {
 public:
  /// `device` below 0: no CUDA at all, memory is the host's (tests of this class with the stand-in). RuntimeError where the library is missing,
  /// two ranks have one device, or the others do not come in time. `watched` tells of peers that are gone.
  Nccl(Store* store, const TransportOptions& options, int device, Transport* watched);
  ~Nccl();
  /// Does it know that dtype and reduction? Others go over the host.
  static bool has(DType dtype);
  int device() const { return device_; }
  /// Puts the collective, whose tensors lie on the device, on the communicator's stream, behind `call.ready`. Its memory must stay until it is
  /// over. A Failure without a text, or what went wrong; `fatal`: the communicator is lost.
  Failure start(const Call& call, double timeout, bool& fatal, Started& started);
  /// Asks, and does not wait. `why`: it will never be over, or an abort has ended it.
  bool is_over(Started& started, Failure& why);
  /// The first error ends the communicator; what is on its way is let go of.
  void abort(const std::string& why);

 private:
  void open(Store* store, const TransportOptions& options);
  void check_devices(Store& store, const TransportOptions& options);
  nccl::Result enqueue(const Call& call, void* stream);
  nccl::Result all_to_all(const Call& call, nccl::DataType type, void* stream);
  /// Until nothing is in progress.
  Failure settle(nccl::Result result, double deadline, double timeout);
  Failure hopeless(double deadline, double timeout, double& lost) const;
  Failure words(nccl::Result result) const;

  const nccl::Api* api_;
  std::mutex mutex_;  // one call of the communicator at a time
  nccl::Comm* comm_ = nullptr;
  int device_, size_;
  Transport* watched_;
  std::unique_ptr<cuda::Stream> stream_;
  std::string failed_;
};

}  // namespace tapir::inline v0::distributed
