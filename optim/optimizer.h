#pragma once
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "../core/backend.h"
#include "../core/each.h"
#include "../core/state_dict.h"
#include "../core/tensor.h"
#include "../core/versioned.h"

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
// TAPIR_OPTIMIZER_OPTIONS(SGD, (double, lr, 1e-3), ...) defines both, SGDOptions and SGDGroup; PyTorch's names and defaults.

// Note [Low precision]
// A parameter of 8 or 11 bits swallows small updates. low_precision, an option of those optimizers whose step is one kernel call, says what
// becomes of them: "nearest" rounds, as PyTorch does; "stochastic" rounds bfloat16 parameters up or down, with probabilities that keep
// the mean; "master" keeps a float32 copy of bfloat16 and float16 ones, which the step updates (state "master_param"). In these two modes
// the states are float32 too. The kernel that updates a copy writes its parameter, and where an element of that is not the copy's rounded
// value, somebody wrote it between the steps: it is the copy's new value.

using Pair = std::array<double, 2>;
using Triple = std::array<double, 3>;
using OptionalPair = std::array<std::optional<double>, 2>;

/// The options of a group as the step reads them; kinds.cpp says which is where.
struct OptionValues : OptimizerParams {
  double c = 0, steps = 0, mode = 0;  // of optimizers that no kernel entry knows
  double low_precision = 0;           // nearest, stochastic, master: Note [Low precision]
};
struct OptimizerKind;  // names, states and options of an optimizer: kinds.h
OptionValues values_of(const OptimizerKind& kind);

/// Base of the optimizers: parameter groups, state, and one fused pass over all parameters of a device (float64 ones apart).
/// Nothing in step() waits for the device: learning rate and step count are tensors there.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  /// One update of every parameter that has a gradient; the others, and their state, stay as they are.
  virtual void step(const StepScale& scale = {});
  /// Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  int64_t num_groups() const { return int64_t(groups_.size()); }
  const std::vector<Tensor>& params(int64_t group = 0) const { return groups_[index(group)].params; }
  double lr(int64_t group = 0) const { return rates_.asked(), groups_[index(group)].lr; }
  void set_lr(double lr, int64_t group = 0);
  /// The rate that schedules start from: what lr() was when the first one asked.
  double initial_lr(int64_t group = 0);
  void set_initial_lr(double lr, int64_t group = 0);
  /// Whether there is a momentum (or a first beta), which schedules may cycle.
  bool has_momentum() const;
  double momentum(int64_t group = 0) const { return rates_.asked(), groups_[index(group)].options.beta1; }
  void set_momentum(double momentum, int64_t group = 0);
  const char* name() const;
  /// Steps that step() has been called for, skipped ones included. ValueError while compile() records; replays do not count.
  int64_t steps() const;

  /// Options that are texts: no tensor holds them.
  std::vector<std::pair<std::string, std::string>> text_options(int64_t group = 0) const;
  /// Names as in PyTorch, flat: "state.0.exp_avg", "param_groups.0.lr". Parameters are numbered in group order; a pair of options is
  /// one tensor: "param_groups.0.betas".
  virtual StateDict state_dict() const;
  /// ValueError where number, shapes or kind of state do not fit; the optimizer is then as before. Options follow the state.
  virtual void load_state_dict(const StateDict& state);

 protected:
  struct Slot {      // of one parameter
    Tensor step;     // 0-dim int64, shared by the parameters that have always been stepped together
    Tensor numbers;  // float32 (2), as in entry::OptimizerStep; shared likewise
    std::array<Tensor, 3> state;
    Tensor master;  // float32, where the option asks for it
  };
  struct Group {
    std::vector<Tensor> params;
    std::vector<Slot> slots;
    OptionValues options;
    double lr = 0;
    std::optional<double> initial_lr = {};
    Tensor device_lr, device_beta1;  // 0-dim float64; the second only where a schedule cycles it
  };
  /// Parameters of one device and type of computing that share a step count: one kernel call.
  struct Batch {
    DType dtype;  // float32 or float64
    Device device;
    Tensor step, numbers;
    std::vector<size_t> members;
  };
  explicit Optimizer(const OptimizerKind& kind) : kind_(&kind) {}
  template <class Options, class G>
  Optimizer(const OptimizerKind& kind, std::vector<G> groups, const Options& defaults);
  void add_group(std::vector<Tensor> params, const OptionValues& options, double lr);
  /// Writes an option where the kind says; a text is one of its choices.
  void set_option(OptionValues& to, const char* name, std::span<const double> value) const;
  void set_option(OptionValues& to, const char* name, const std::string& value) const;
  void set_option(OptionValues& to, const char* name, const OptionalPair& value) const;
  void check_groups(size_t count) const;
  void count_step() { ++steps_; }

  /// The update of these parameters; the step count is the update's to raise. By default the kernel entry.
  virtual void update(Group& group, const Batch& batch, const StepScale& scale);
  // For updates that are made of operations: a step that found_inf skips changes nothing, and nobody waits for it. Denormal numbers count
  // as 0: on the CPU the update holds a FlushDenormals, on other devices what it reads and what it writes is flushed().
  static Tensor gradient(const Group& group, size_t i, const StepScale& scale);
  static void assign(Tensor& to, const Tensor& value, const StepScale& scale);
  static void count(const Batch& batch, const StepScale& scale);
  /// The tensors that the kernel updates in place of these parameters, and their way back: Note [Low precision].
  std::vector<Tensor> widened(Group& group, const Batch& batch);
  static void narrowed(Group& group, const Batch& batch, const std::vector<Tensor>& wide);
  /// A new state tensor for p.
  virtual Tensor new_state(const Group& group, size_t k, const Tensor& p) const;
  /// Of a group in groups_; ValueError where there is none of that number.
  size_t index(int64_t group) const;

  std::vector<Group> groups_;

 private:
  std::vector<Batch> batches_of(Group& group);
  void split_cohorts(Group& group);
  void prepare(Group& group, size_t i, std::vector<Slot>& fresh);
  using Counts = std::vector<std::pair<std::array<double, 3>, Slot>>;  // step and numbers; the slot that holds them
  Slot load_slot(const StateDict& state, const std::string& prefix, const Group& group, const Tensor& p,
                 Counts& counts) const;
  const OptimizerKind* kind_;
  int64_t steps_ = 0;
  // What programs know of it: options and state tensors are exchanged; what lr() and momentum() tell is another. A schedule changes
  // the second in each step, and disturbs only those that read it on the host.
  detail::Versioned state_, rates_;
};

namespace detail {
/// x with 0 for denormal numbers and for 2^-126; x itself where operations see to that. Not of float64, and float16 has none of float32's.
Tensor flushed(const Tensor& x);
}  // namespace detail
/// ValueError while compile() records: what the host does there, a replay would not do again.
void check_not_recorded(const char* function,
                        const char* why = "a compiled step reads the rate from the device: set it between its calls");
inline constexpr double kAnyNumber = -std::numeric_limits<double>::max();
/// Checks that a number is finite and at least `low` (below `high`): the texts of all optimizers' option errors.
void check_option(const char* optimizer, const char* option, double value, double low = 0, double high = kAnyNumber);

template <class Options, class G>
Optimizer::Optimizer(const OptimizerKind& kind, std::vector<G> groups, const Options& defaults) : kind_(&kind) {
  check_groups(groups.size());
  for (G& g : groups) {
    OptionValues values = values_of(*kind_);
    Options o = g.over(defaults);
    o.each([&](const char* name, auto& value) {
      if constexpr (requires { double(value); }) set_option(values, name, std::array{double(value)});
      else set_option(values, name, value);
    });
    add_group(std::move(g.params), values, o.lr);
  }
}

}  // namespace tapir::inline v0::optim

#define TAPIR_OPTIMIZER_OPTIONS(Name, ...)                                              \
  struct Name##Options {                                                                \
    TAPIR_EACH(TAPIR_OPTION_FIELD, __VA_ARGS__)                                         \
    template <class F> void each(F&& f) { TAPIR_EACH(TAPIR_OPTION_VISIT, __VA_ARGS__) } \
  };                                                                                    \
  struct Name##Group {                                                                  \
    std::vector<Tensor> params;                                                         \
    TAPIR_EACH(TAPIR_OPTION_OPTIONAL, __VA_ARGS__)                                      \
    template <class F> void each(F&& f) { TAPIR_EACH(TAPIR_OPTION_VISIT, __VA_ARGS__) } \
    template <class Options> Options over(Options o) const {                            \
      TAPIR_EACH(TAPIR_OPTION_OVER, __VA_ARGS__)                                        \
      return o;                                                                         \
    }                                                                                   \
  };
#define TAPIR_OPTION_FIELD(x) TAPIR_OPTION_FIELD_ x
#define TAPIR_OPTION_FIELD_(type, name, ...) type name = __VA_ARGS__;
#define TAPIR_OPTION_OPTIONAL(x) TAPIR_OPTION_OPTIONAL_ x
#define TAPIR_OPTION_OPTIONAL_(type, name, ...) std::optional<type> name = {};
#define TAPIR_OPTION_VISIT(x) TAPIR_OPTION_VISIT_ x
#define TAPIR_OPTION_VISIT_(type, name, ...) f(#name, name);
#define TAPIR_OPTION_OVER(x) TAPIR_OPTION_OVER_ x
#define TAPIR_OPTION_OVER_(type, name, ...) o.name = name.value_or(o.name);
/// The constructors of an optimizer: from parameters, or from groups.
#define TAPIR_OPTIMIZER_CONSTRUCTORS(Name)                                      \
  explicit Name(std::vector<Tensor> params, const Name##Options& options = {}); \
  explicit Name(std::vector<Name##Group> groups, const Name##Options& options = {});
