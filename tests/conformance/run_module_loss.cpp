// Losses.
#include "modules.h"

namespace conformance {

/// The reduction by its name, or by the two flags it once had.
static Reduction reduction_of(Args& a) {
  const Value *average = a.find("size_average"), *reduce = a.find("reduce");
  if (average || reduce) {
    if (reduce && !scalar_of(*reduce).to_bool()) return Reduction::None;
    return average && !scalar_of(*average).to_bool() ? Reduction::Sum : Reduction::Mean;
  }
  const std::string name = a.text("reduction", "mean");
  return name == "none"        ? Reduction::None
         : name == "sum"       ? Reduction::Sum
         : name == "batchmean" ? Reduction::BatchMean
                               : Reduction::Mean;
}

#define BIND(Name, ...) table[#Name] = [](ModuleArgs& a) { return bound<2>(nn::Name(__VA_ARGS__)); }
#define BIND3(Name, ...) table[#Name] = [](ModuleArgs& a) { return bound<3>(nn::Name(__VA_ARGS__)); }

/// Lengths are tensors or lists of numbers.
static Bound ctc(ModuleArgs& a) {
  return {nn::CTCLoss({a.integer("blank", 0), reduction_of(a), a.boolean("zero_infinity", false)}),
          [](nn::Module& held, Args& in) -> std::vector<Tensor> {
            const auto lengths = [&](size_t i) {
              const Value& v = *in.at(i);
              return v.kind == Value::Kind::Tensor ? v.tensor : tensor(dims_of(v).vec());
            };
            return {static_cast<nn::CTCLoss&>(held)(input(in, 0), input(in, 1), lengths(2), lengths(3))};
          }};
}

void bind_module_loss() {
  auto& table = module_makers();
  BIND(CrossEntropyLoss, {a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100),
                          a.number("label_smoothing", 0.0)});
  BIND(NLLLoss, {a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100)});
  BIND(MSELoss, {{}, reduction_of(a)});
  BIND(L1Loss, {{}, reduction_of(a)});
  BIND(SmoothL1Loss, {reduction_of(a), a.number("beta", 1)});
  BIND(HuberLoss, {reduction_of(a), a.number("delta", 1), {}});
  BIND(BCELoss, {a.optional_tensor("weight"), reduction_of(a)});
  BIND(BCEWithLogitsLoss, {a.optional_tensor("weight"), reduction_of(a), a.optional_tensor("pos_weight")});
  BIND(KLDivLoss, {reduction_of(a), a.boolean("log_target", false)});
  BIND(PoissonNLLLoss,
       {a.boolean("log_input", true), a.boolean("full", false), a.number("eps", 1e-8), reduction_of(a)});
  BIND(HingeEmbeddingLoss, {a.number("margin", 1), reduction_of(a)});
  BIND(MultiMarginLoss, {a.integer("p", 1), a.number("margin", 1), a.optional_tensor("weight"), reduction_of(a)});
  BIND(MultiLabelMarginLoss, {reduction_of(a)});
  BIND(MultiLabelSoftMarginLoss, {a.optional_tensor("weight"), reduction_of(a)});
  BIND(SoftMarginLoss, {reduction_of(a)});
  BIND3(GaussianNLLLoss, {a.boolean("full", false), a.number("eps", 1e-6), reduction_of(a)});
  BIND3(MarginRankingLoss, {a.number("margin", 0), reduction_of(a)});
  BIND3(CosineEmbeddingLoss, {a.number("margin", 0), reduction_of(a)});
  BIND3(TripletMarginLoss,
        {a.number("margin", 1), a.number("p", 2), a.number("eps", 1e-6), a.boolean("swap", false), reduction_of(a)});
  table["TripletMarginWithDistanceLoss"] = [](ModuleArgs& a) {
    const TripletDistanceOptions o{a.number("margin", 1), a.boolean("swap", false), reduction_of(a)};
    return bound<3>(nn::TripletMarginWithDistanceLoss<>(nn::PairwiseDistance(), o));
  };
  table["CTCLoss"] = ctc;
}

}  // namespace conformance
