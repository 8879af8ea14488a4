#pragma once
// What stands behind ShardedParameters: units of parameters that are gathered, freed and reduced together. Not public.
#include <map>
#include <string>
#include <vector>

#include "fsdp.h"

namespace tapir::inline v0::distributed {

inline constexpr const char* kFsdpName = "FullyShardedDataParallel";

/// A parameter of the module: its tensor keeps one Storage for ever, whose memory comes and goes. So what the tape has saved of it, views
/// too, sees the gathered values in backward.
struct ShardedParam {
  std::string name;
  Tensor tensor;
  Shape shape;
  int64_t offset = 0, numel = 0;  // in the unit's row
  StoragePtr storage;
  int64_t hook = 0;
  bool ready = false;  // its gradient, in this backward
};

/// The parameters of a block, or the rest.
struct ShardedUnit {
  nn::Module* block = nullptr;  // null: the root
  std::vector<int64_t> hooks;
  std::vector<ShardedParam> params;
  int64_t chunk = 0;  // elements of a rank's part
  Tensor mine;        // (chunk), the leaf that the optimizer updates
  Tensor row, sent;   // (ranks * chunk) while it is gathered; what travels from here
  Work gathering;
  Tensor grad_row, grad_chunk;  // while they are reduced
  Work reducing;
  uint32_t version = 0;                  // of the chunk that was gathered last
  bool gathered = false, armed = false;  // armed: a forward has run whose backward has not ended
  size_t pending = 0;
};

struct ShardedParameters::State {
  ProcessGroup group;
  FsdpOptions options;
  std::vector<ShardedUnit> units;  // the root first
  std::vector<std::pair<std::string, Tensor>> buffers;
  std::vector<size_t> order, last_order;  // of blocks in this forward, and in the one before
  size_t reducing = SIZE_MAX;             // the unit whose gradients are under way
  int forwards = 0;                       // since a backward began
  bool backward_began = false;

  void add_unit(nn::Module* block, std::vector<std::pair<std::string, Tensor>> params);
  void shard(ShardedUnit& u);
  void add_hooks(size_t i);
  void start_gather(ShardedUnit& u);
  void gather(ShardedUnit& u);
  void release(ShardedUnit& u);
  void release_all();
  void before_block(size_t i);
  void after_block(size_t i);
  void before_block_backward(size_t i);
  void prefetch(const std::vector<size_t>& list, size_t i, int step);
  void on_gradient(size_t i, size_t k);
  void arm(ShardedUnit& u);
  bool await_end();
  void reduce(size_t i);
  void reduce_from(size_t place);
  void finish_reduce();
  void backward_ended();
  DType dtype_of(const ShardedUnit& u) const { return options.param_dtype.value_or(u.mine.dtype()); }
};

}  // namespace tapir::inline v0::distributed
