#pragma once
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "../core/backend.h"
#include "../core/state_dict.h"
#include "../core/tensor.h"

namespace tapir::inline v0::optim {

/// What a gradient scaler hands to step(): 0-dim float32 tensors on the device. Undefined: none.
struct StepScale {
  Tensor inv_scale;  // gradients are multiplied by it
  Tensor found_inf;  // not 0: the step changes nothing
};

// Note [Parameter groups]
// Each optimizer has an options struct, with its defaults, and a group struct: parameters and the same options, optional. What a group
// does not give is the optimizer's:
//     optim::SGD opt({{.params = body, .lr = 0.01}, {.params = head}}, {.lr = 0.1, .momentum = 0.9});

/// Base of the optimizers: parameter groups, state, and one fused pass over all parameters of one dtype and device.
/// Nothing in step() waits for the device: learning rate and step count are tensors there.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  /// One update of every parameter that has a gradient; the others, and their state, stay as they are.
  void step(const StepScale& scale = {});
  /// Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  int64_t num_groups() const { return int64_t(groups_.size()); }
  const std::vector<Tensor>& params(int64_t group = 0) const { return groups_[size_t(group)].params; }
  double lr(int64_t group = 0) const { return groups_[size_t(group)].lr; }
  void set_lr(double lr, int64_t group = 0);

  /// Names as in PyTorch, flat: "state.0.exp_avg", "param_groups.0.lr". Parameters are numbered in group order.
  StateDict state_dict() const;
  /// ValueError where number, shapes or kind of state do not fit; the optimizer is then as before.
  void load_state_dict(const StateDict& state);

 protected:
  struct Slot {   // of one parameter
    Tensor step;  // 0-dim int64, shared by the parameters that have always been stepped together
    std::array<Tensor, 3> state;
  };
  struct Group {
    std::vector<Tensor> params;
    std::vector<Slot> slots;
    OptimizerParams options;
    double lr = 0;
    Tensor device_lr;  // 0-dim float64
  };
  /// `states`: names of the per-parameter state tensors, at most 3; null where a name is not used by these options.
  explicit Optimizer(const char* name) : name_(name) {}
  void add_group(std::vector<Tensor> params, const OptimizerParams& options, double lr);
  virtual std::array<const char*, 3> state_names(const OptimizerParams& options) const = 0;

  std::vector<Group> groups_;

 private:
  struct Batch;
  void step_group(Group& group, const StepScale& scale);
  void split_cohorts(Group& group);
  void prepare(Group& group, size_t i, const Tensor& step);
  const char* name_;
};

inline constexpr double kAnyNumber = -std::numeric_limits<double>::max();
/// Checks that a number is finite and at least `low` (below `high`): the texts of all optimizers' option errors.
void check_option(const char* optimizer, const char* option, double value, double low = 0, double high = kAnyNumber);

}  // namespace tapir::inline v0::optim
