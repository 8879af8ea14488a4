#pragma once
// A sample as one of many processes that a launcher has started; without one it is alone.
#include <tapir/distributed/process_group.h>

#include "options.h"

namespace samples {

struct RankOptions {
  std::string backend = "tcp";
  void add_to(App& app) {
    app.add_option("--backend", backend, "tcp, gloo or nccl")->check(CLI::IsMember({"tcp", "gloo", "nccl"}));
  }
  /// Meets the other ranks. Each takes its part of every batch, on the device of its place; rank 0 shows and writes. After a restart all go
  /// on from the newest checkpoint.
  distributed::ProcessGroup join(Options& o) const {
    const auto group = distributed::init_process_group({.backend = backend});
    check(o.batch_size >= group.size(), "--batch-size: expected at least one sample for each of {} ranks, got {}",
          group.size(), o.batch_size);
    o.rank = group.rank(), o.batch_size /= group.size();
    o.resume |= group.launch().restart_count > 0;
    if (o.device == "cuda")
      o.device += ":" + std::to_string(group.launch().local_rank % std::max(1, cuda::device_count()));
    o.any_rank = [group](bool me) {
      const Tensor all = full({}, me ? 1 : 0, {.dtype = kInt64});
      group.all_reduce(all, distributed::ReduceOp::Max);
      return all.item() > 0;
    };
    manual_seed(o.seed + uint64_t(o.rank));  // dropout of its own; the weights will be rank 0's
    return group;
  }
};

}  // namespace samples
