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
  return name == "none"        ? Reduction::None
         : name == "sum"       ? Reduction::Sum
         : name == "batchmean" ? Reduction::BatchMean
         : name == "mean"      ? Reduction::Mean
                               : throw Refused("no such reduction: " + name);
}

#define BIND(name, ...) table[#name] = {[](Args& a) -> Results { return {name(__VA_ARGS__)}; }, {}}

static void bind_elementwise(std::map<std::string, Binding>& table) {
  BIND(smooth_l1_loss, a.tensor("input"), a.tensor("target"), {reduction_of(a), a.number("beta", 1.0)});
  BIND(huber_loss, a.tensor("input"), a.tensor("target"),
       {reduction_of(a), a.number("delta", 1.0), a.optional_tensor("weight")});
  BIND(binary_cross_entropy, a.tensor("input"), a.tensor("target"), {a.optional_tensor("weight"), reduction_of(a)});
  BIND(kl_div, a.tensor("input"), a.tensor("target"), {reduction_of(a), a.boolean("log_target", false)});
  table["gaussian_nll_loss"] = {
      [](Args& a) -> Results {
        const Tensor x = a.tensor("input"), t = a.tensor("target");
        const GaussianNllLossOptions o{a.boolean("full", false), a.number("eps", 1e-6), reduction_of(a)};
        if (a.need("var").is_number()) return {gaussian_nll_loss(x, t, a.number("var"), o)};
        return {gaussian_nll_loss(x, t, a.tensor("var"), o)};
      },
      {}};
  BIND(poisson_nll_loss, a.tensor("input"), a.tensor("target"),
       {a.boolean("log_input", true), a.boolean("full", false), a.number("eps", 1e-8), reduction_of(a)});
  BIND(soft_margin_loss, a.tensor("input"), a.tensor("target"), reduction_of(a));
  BIND(multilabel_soft_margin_loss, a.tensor("input"), a.tensor("target"),
       {a.optional_tensor("weight"), reduction_of(a)});
}

static void bind_margins(std::map<std::string, Binding>& table) {
  BIND(hinge_embedding_loss, a.tensor("input"), a.tensor("target"), {a.number("margin", 1.0), reduction_of(a)});
  BIND(margin_ranking_loss, a.tensor("input1"), a.tensor("input2"), a.tensor("target"),
       {a.number("margin", 0.0), reduction_of(a)});
  BIND(cosine_embedding_loss, a.tensor("input1"), a.tensor("input2"), a.tensor("target"),
       {a.number("margin", 0.0), reduction_of(a)});
  BIND(multi_margin_loss, a.tensor("input"), a.tensor("target"),
       {a.integer("p", 1), a.number("margin", 1.0), a.optional_tensor("weight"), reduction_of(a)});
  BIND(multilabel_margin_loss, a.tensor("input"), a.tensor("target"), reduction_of(a));
  BIND(triplet_margin_loss, a.tensor("anchor"), a.tensor("positive"), a.tensor("negative"),
       {a.number("margin", 1.0), a.number("p", 2.0), a.number("eps", 1e-6), a.boolean("swap", false), reduction_of(a)});
}

/// A list of numbers or a tensor.
static std::vector<int64_t> lengths_of(const Value& v) {
  return v.kind == Value::Kind::Tensor ? v.tensor.to_vector<int64_t>() : dims_of(v).vec();
}

void bind_loss() {
  auto& table = bindings();
  bind_elementwise(table), bind_margins(table);
  BIND(ctc_loss, a.tensor("log_probs"), a.tensor("targets"), lengths_of(a.need("input_lengths")),
       lengths_of(a.need("target_lengths")),
       {a.integer("blank", 0), reduction_of(a), a.boolean("zero_infinity", false)});
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
