#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../core/no_copy.h"
#include "../nn/module.h"
#include "../optim/optimizer.h"
#include "process_group.h"

namespace tapir::inline v0::distributed {

// Note [Fully sharded training]
// The trained parameters of a block lie in one flat row, padded to N equal chunks, of which each rank keeps one: that chunk is what the
// optimizer updates. Before a block's forward, and again before its backward, the row is gathered, and the block's own tensors see it; after
// that they have no elements. Their gradients are reduce-scattered to the chunks. While a block computes, the next one (in backward the
// one before) is on its way. What belongs to no block is the root: it is gathered from the beginning of forward to the end of backward.
//     memory of a rank = (parameters + gradients + optimizer's state) / N + the root + 2 blocks + the gradients of 2 blocks + activations
// Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054, stage 3; Zhao et al. 2023, arXiv 2304.11277. Limits: frozen parameters stay whole on every
// rank; a parameter that two blocks share must be the root's; optimizers see flat chunks, so they must work element by element (SGD, Adam
// and their kind, not Muon or Adafactor), and clipping is clip_grad_norm_() here; parameters of a called block that the loss does not depend on
// have zeros for gradients, and all ranks must call the same blocks: Note [The order of collectives].

struct FsdpOptions {
  std::vector<nn::Module*> blocks = {};    // sharded one by one: blocks_of<models::GPT2Block>(net)
  std::optional<DType> param_dtype = {};   // what blocks compute in, and what is gathered; chunks keep their own dtype
  std::optional<DType> reduce_dtype = {};  // what gradients travel in; by default param_dtype
  bool prefetch = true;
};

/// All modules of that type below, to be blocks.
template <class Block> std::vector<nn::Module*> blocks_of(nn::Module& net) {
  std::vector<nn::Module*> out;
  for (auto& [name, module] : net.named_modules())
    if (dynamic_cast<Block*>(module)) out.push_back(module);
  return out;
}

/// What does not depend on the module's type.
class ShardedParameters : NoCopy {
 public:
  ShardedParameters(nn::Module& module, const FsdpOptions& options, const ProcessGroup& group);
  ~ShardedParameters();
  void before_forward();
  void after_forward();
  Tensor input(const Tensor& x) const;

  std::vector<Tensor> chunks() const;
  Tensor clip_grad_norm_(double max_norm) const;
  bool agree_on_infinities() const;
  StateDict full_state_dict() const;
  void load_full_state_dict(const StateDict& state);
  void unshard();
  void save(const std::string& folder, const optim::Optimizer* optimizer) const;
  void load(const std::string& folder, optim::Optimizer* optimizer);

 private:
  struct State;
  State* state_;
};

/// Trains a module whose parameters, gradients and optimizer state are spread over the ranks of a group: see Note [Fully sharded training].
///     models::GPT2LMHeadModel net(config);
///     distributed::FullyShardedDataParallel fsdp(net, {.blocks = distributed::blocks_of<models::GPT2Block>(net)});
///     optim::AdamW opt(fsdp.parameters(), {.lr = 3e-4});
///     cross_entropy(flatten(fsdp(x), 0, 1), flatten(y)).backward();
/// Every rank starts from rank 0's weights. The module must outlive it; between steps its tensors have no elements: see unshard().
template <class M> class FullyShardedDataParallel {
 public:
  explicit FullyShardedDataParallel(M& module, const FsdpOptions& options = {},
                                    const ProcessGroup& group = default_group())
      : module_(module), sharded_(module, options, group) {}
  template <class... A> auto operator()(A&&... a) {
    sharded_.before_forward();
    auto y = module_(input(std::forward<A>(a))...);
    sharded_.after_forward();
    return y;
  }
  M& module() { return module_; }
  /// This rank's chunks, one for each block and one for the root: what the optimizer gets, in one group.
  std::vector<Tensor> parameters() const { return sharded_.chunks(); }
  /// The gradients' norm over all ranks, 0-dim; scales them to at most max_norm.
  Tensor clip_grad_norm_(double max_norm) const { return sharded_.clip_grad_norm_(max_norm); }
  /// Before a GradScaler's step or unscale_: where one rank's gradients are not finite, all ranks' are not, so that all skip. True then.
  bool agree_on_infinities() const { return sharded_.agree_on_infinities(); }
  /// The whole weights and buffers, on rank 0; the others get nothing. Every rank calls it.
  StateDict full_state_dict() const { return sharded_.full_state_dict(); }
  /// Takes whole weights from rank 0.
  void load_full_state_dict(const StateDict& state) { sharded_.load_full_state_dict(state); }
  /// Gives the module whole weights again, on every rank, and ends the sharding. Every rank calls it.
  void unshard() { sharded_.unshard(); }
  /// A file of each rank, with its part of the weights and of the optimizer's state, in a folder of their own. Where one rank fails all throw,
  /// and the files of before are whole.
  void save(const std::string& folder, const optim::Optimizer* optimizer = nullptr) const {
    sharded_.save(folder, optimizer);
  }
  /// Of any number of ranks and any choice of blocks. RuntimeError for files that are missing, damaged or of two saves, and for other shapes.
  void load(const std::string& folder, optim::Optimizer* optimizer = nullptr) { sharded_.load(folder, optimizer); }

 private:
  template <class T> decltype(auto) input(T&& x) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, Tensor>) return sharded_.input(x);
    else return std::forward<T>(x);
  }
  M& module_;
  ShardedParameters sharded_;
};

}  // namespace tapir::inline v0::distributed
