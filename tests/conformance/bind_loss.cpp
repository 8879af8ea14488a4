#include "ops.h"

namespace conformance {

/// The reduction by its name, or by the two flags it once had.
static Reduction reduction_of(Args& a) {
  const std::string name = a.text("reduction", "mean");
  const Value *average = a.find("size_average"), *reduce = a.find("reduce");
  if (average || reduce) {
    if (reduce && !scalar_of(*reduce).to_bool()) return Reduction::None;
    return average && !scalar_of(*average).to_bool() ? Reduction::Sum : Reduction::Mean;
  }
  return name == "none" ? Reduction::None : name == "sum" ? Reduction::Sum : Reduction::Mean;
}

void bind_loss() {
  auto& table = bindings();
  table["cross_entropy"] = {
      [](Args& a) -> Results {
        return {cross_entropy(a.tensor("input"), a.tensor("target"),
                              {a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100),
                               a.number("label_smoothing", 0.0)})};
      },
      {}};
  table["nll_loss"] = {
      [](Args& a) -> Results {
        return {nll_loss(a.tensor("input"), a.tensor("target"),
                         {a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100)})};
      },
      {}};
  table["mse_loss"] = {
      [](Args& a) -> Results {
        return {mse_loss(a.tensor("input"), a.tensor("target"), {a.optional_tensor("weight"), reduction_of(a)})};
      },
      {}};
  table["l1_loss"] = {
      [](Args& a) -> Results {
        return {l1_loss(a.tensor("input"), a.tensor("target"), {a.optional_tensor("weight"), reduction_of(a)})};
      },
      {}};
  table["binary_cross_entropy_with_logits"] = {
      [](Args& a) -> Results {
        return {binary_cross_entropy_with_logits(
            a.tensor("input"), a.tensor("target"),
            {a.optional_tensor("weight"), reduction_of(a), a.optional_tensor("pos_weight")})};
      },
      {}};
}

}  // namespace conformance
