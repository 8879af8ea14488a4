#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "../core/modes.h"
#include "../core/tensor.h"
#include "node.h"

namespace tapir::inline v0 {

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;  // record the backward pass itself, for second derivatives; implies retain_graph
};

/// Gradients of the sum of outputs, weighted by `gradients` (ones where undefined, for one element only), added into every
/// leaf below that wants one. With create_graph such a gradient keeps its leaf alive, and the leaf its gradient, until it is dropped
/// (zero_grad()): one warning says so. grad() leaves nothing behind.
void backward(std::span<const Tensor> outputs, std::span<const Tensor> gradients = {},
              const BackwardOptions& options = {});

struct GradOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool allow_unused = false;      // an input that the outputs do not depend on gives an undefined tensor, not an error
  bool is_grads_batched = false;  // `gradients` have one more dimension in front, and so have the results
};
namespace detail {
inline constinit std::atomic<bool> warned_of_cycles{false};  // by backward() with create_graph
/// Gradients of the part of a graph that was made since node number `first`: with respect to `wanted`, its leaves and the edges that lead
/// out of it, whose hooks do not run. `seeds`: of the roots.
std::vector<Tensor> grad_since(uint64_t first, std::span<const Edge> roots, std::span<Tensor> seeds,
                               std::span<const Edge> wanted, const BackwardOptions& options);
/// Inside of a node's apply(): will its graph be kept?
bool graph_is_retained();
}  // namespace detail
/// The gradients with respect to `inputs`, returned instead of accumulated.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients = {}, const GradOptions& options = {});

/// In this scope a NaN made by a gradient function is a RuntimeError that names the forward operation.
struct [[nodiscard]] AnomalyMode : ScopedMode<bool> {
  explicit AnomalyMode(bool on = true) : ScopedMode(modes.anomaly, on) {}
};

}  // namespace tapir::inline v0
