#pragma once
// A communicator of NCCL's, or of its stand-in, with the sockets that watch over it; without a group.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tapir/distributed/nccl.h>

#include "worker.h"

namespace worker {

using distributed::Call, distributed::Collective, distributed::Nccl;

/// Where the ranks of this job meet.
inline distributed::Store store_of_job() {
  const char* secret = std::getenv("TAPIR_STORE_SECRET");
  return distributed::Store("127.0.0.1", number_from("MASTER_PORT", 0),
                            {.secret = secret ? secret : "", .timeout = 60});
}

struct Communicator {
  int device = -1;  // below 0: memory is the host's
  std::string prefix = "test/";
  int rank = my_rank(), size = number_from("WORLD_SIZE", 1);
  distributed::TransportOptions transport_options{.rank = rank,
                                                  .size = size,
                                                  .prefix = prefix,
                                                  .address = "127.0.0.1",
                                                  .secret = {},
                                                  .init_timeout = options.init_timeout};
  distributed::Store store = store_of_job();
  std::unique_ptr<distributed::Transport> sockets = distributed::make_tcp(store, transport_options);
  Nccl nccl{&store, transport_options, device, sockets.get()};
  distributed::Failure failure = {};  // of the last call
  bool fatal = false, waits = true;   // waits: for what the operands' stream holds

  distributed::Started start(Collective op, const Tensor& in, const Tensor& out, Op reduce = Op::Sum, int root = -1,
                             std::vector<int64_t> in_sizes = {}, std::vector<int64_t> out_sizes = {}) {
    Call call;
    call.signature = {.op = op, .reduce = uint8_t(reduce), .dtype = in.dtype(), .root = root, .count = in.numel()};
    call.in = in, call.out = out, call.in_sizes = std::move(in_sizes), call.out_sizes = std::move(out_sizes);
    if (device >= 0 && waits) call.ready = std::make_shared<cuda::Event>(cuda::current_stream(device).record_event());
    distributed::Started started;
    failure = nccl.start(call, options.timeout, fatal, started);
    return started;
  }
  std::string run(Collective op, const Tensor& in, const Tensor& out, Op reduce = Op::Sum, int root = -1,
                  std::vector<int64_t> in_sizes = {}, std::vector<int64_t> out_sizes = {}) {
    distributed::Started started = start(op, in, out, reduce, root, std::move(in_sizes), std::move(out_sizes));
    while (!failure && !nccl.is_over(started, failure)) {
      fatal = bool(failure);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    if (failure) std::printf("caught: %s\n", failure.text.c_str());
    return failure.text;
  }
};

}  // namespace worker
