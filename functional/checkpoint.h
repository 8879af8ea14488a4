#pragma once
// Note [Checkpointing]
// checkpoint(f, x...) runs f without keeping what its gradients need, and runs it again when backward asks for the first of
// these values: memory for time (Chen et al. 2016, arXiv 1604.06174). It is made of saved-tensor hooks: what an operation of f
// saves is replaced by its number in f; the second run, from the same random state, counts again and hands the values out. The
// graph is the one of the first run, so grad(), hooks, parameters inside f and double backward need nothing special, and
// checkpoints nest.
#include <tuple>
#include <type_traits>
#include <utility>

#include "../autograd/node.h"
#include "../core/modes.h"

namespace tapir::inline v0 {

struct CheckpointOptions {
  bool preserve_rng_state = true;  // the second run draws the same random numbers
};

/// Does the second run of a checkpoint go on in this thread? What a forward pass changes beside its results, such as running statistics, the
/// first run has changed already.
bool in_recomputation();

namespace detail {

/// f bound to its arguments.
struct Recompute {
  virtual ~Recompute() = default;
  virtual void run() = 0;
};

/// An argument, kept like what operations save: an enclosing checkpoint drops it too.
template <class T> struct Argument {
  T value;
  explicit Argument(const T& x) : value(x) {}
  const T& get() const { return value; }
};
template <> struct Argument<Tensor> {
  SavedTensor value;
  explicit Argument(const Tensor& x) : value(x, {}) {}
  Tensor get() const { return value.unpack(nullptr); }
};
template <class F, class... X> struct BoundCall final : Recompute {
  F f;
  std::tuple<Argument<X>...> arguments;
  BoundCall(const F& f, const X&... x) : f(f), arguments(Argument<X>(x)...) {}
  void run() override {
    std::apply([&](const auto&... a) { f(a.get()...); }, arguments);
  }
};

/// In its scope what operations save is replaced by its number. Adopts `again`.
class CheckpointScope {
 public:
  CheckpointScope(Recompute* again, const CheckpointOptions& options);
  ~CheckpointScope();
  CheckpointScope(const CheckpointScope&) = delete;

 private:
  struct Hooks;
  Hooks* hooks_;
};

}  // namespace detail

/// f(x...), whose intermediate values are computed again in backward instead of kept. f must compute the same both times;
/// its arguments are copied (tensors by handle). ValueError in backward when the second run saves other values than the first.
template <class F, class... X> auto checkpoint(const CheckpointOptions& options, F f, const X&... x) {
  if (!modes.grad) return f(x...);
  detail::CheckpointScope scope(new detail::BoundCall<F, X...>(f, x...), options);
  return f(x...);
}
template <class F, class... X>
requires(!std::is_same_v<F, CheckpointOptions>) auto checkpoint(F f, const X&... x) {
  return checkpoint(CheckpointOptions(), std::move(f), x...);
}

}  // namespace tapir::inline v0
