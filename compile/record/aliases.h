#pragma once
// The arguments of a call that is recorded: tensors with storages of their own in the same memory, for what shares memory with an
// argument (the function may have captured the very same tensor) is not the argument. An alias of what has a history goes on into that. A leaf
// that requires a gradient is passed as it is: programs know it by its object, as they know captured tensors.
#include <vector>

#include "../../autograd/node.h"

namespace tapir::inline v0::detail {

/// Is an argument known by its object?
inline bool is_known_leaf(const Tensor& x) { return x.defined() && x.requires_grad() && x.is_leaf(); }

/// Do two arguments that are not the same tensor lie in one block of memory?
bool share_memory(const std::vector<Tensor>& arguments);

/// What was written through an alias was written, and what the function made of the tensor itself (unsqueeze_, requires_grad_) it made
/// of the argument.
class Aliases {
 public:
  /// `arguments` must live longer.
  explicit Aliases(const std::vector<Tensor>& arguments);
  ~Aliases();
  Aliases(const Aliases&) = delete;
  /// Gives the arguments what the function made of the tensors themselves; false: it made nothing.
  bool hand_over();
  /// What the arguments lie in, and its version when writes through the aliases are counted.
  std::vector<std::pair<Weak<Storage>, uint32_t>> versions() const;
  /// A result as the function would have given it: in the argument's storage, not in its alias's. Forgets the base that `y` has.
  Tensor unaliased(Tensor& y) const;
  /// Did the function keep an alias, or a view of one? The call's own handles are known: here, its arguments, `outputs`.
  bool are_kept(const std::vector<Tensor>& outputs) const;
  const std::vector<Tensor> tensors;

 private:
  template <class F> void each(F f) const;
  const std::vector<Tensor>& arguments_;
  std::vector<uint32_t> versions_, handles_;
  std::vector<Node*> nodes_;  // that the aliases began with; null for those without a history
};

}  // namespace tapir::inline v0::detail
