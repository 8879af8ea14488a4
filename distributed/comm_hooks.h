#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "process_group.h"

namespace tapir::inline v0::distributed {

/// Gradients that travel together.
struct GradBucket {
  ProcessGroup group;
  size_t index = 0;               // of the bucket: the same one in every step, after the first
  Tensor buffer;                  // flat: this rank's gradients, and what must become the means
  std::vector<Tensor> gradients;  // the parts of it, in the parameters' shapes
};

/// What makes of a bucket's gradients their means over ranks. All ranks have the same hooks, which are called in the same order.
struct CommHook {
  virtual ~CommHook() = default;
  /// The bucket's gradients are there. Puts collectives on their way (async_op) while backward goes on.
  virtual void begin(const GradBucket& bucket) = 0;
  /// Of each bucket, when all have begun: its means stand in the buffer.
  virtual void finish(const GradBucket& bucket) = 0;
};

/// Mean, of the gradients as they are or as `dtype` (kFloat16, kBFloat16), in which half as much travels; sums are taken in float32.
class AllReduceHook final : public CommHook {
 public:
  explicit AllReduceHook(std::optional<DType> dtype = {});
  void begin(const GradBucket& bucket) override;
  void finish(const GradBucket& bucket) override;

 private:
  struct Sent {
    Tensor buffer;
    Work work;
  };
  std::optional<DType> dtype_;
  std::vector<Sent> sent_;  // of each bucket
};

struct PowerSgdOptions {
  int64_t rank = 1;           // columns: more of them are nearer to the gradient
  int64_t start_step = 1000;  // steps before with plain means: gradients change the most then
  uint64_t seed = 0;
};
/// Sends an n x m gradient as n x r and m x r numbers, its nearest matrix of rank r by one step of power iteration; what that leaves out is
/// added to the next step's gradient, but for what is not finite: an overflow ends with its step. Vectors, and what would not become smaller, are sent as they are. Vogels et al. 2019, arXiv 1905.13727.
class PowerSgdHook final : public CommHook {
 public:
  explicit PowerSgdHook(const PowerSgdOptions& options = {});
  void begin(const GradBucket& bucket) override;
  void finish(const GradBucket& bucket) override;

 private:
  struct Matrix {
    size_t gradient = 0;            // of the bucket
    Tensor p = {}, q = {};          // views of the flat ones
    Tensor fresh = {};              // what a column of q begins with
    Tensor error = {}, given = {};  // left out so far; what is to be sent
  };
  struct State {
    int64_t steps = 0;
    bool plain = true;  // this step
    Tensor buffer;      // of the bucket that this was made for
    Tensor ps, qs, fresh, rest;
    std::vector<Matrix> matrices;
    std::vector<size_t> others;
    Work first, second;
  };
  void prepare(State& state, const GradBucket& bucket) const;
  PowerSgdOptions options_;
  AllReduceHook plain_;
  std::vector<State> states_;  // of each bucket
};

}  // namespace tapir::inline v0::distributed
