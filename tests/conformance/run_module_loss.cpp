// Losses.
#include "modules.h"

namespace conformance {

static Reduction reduction_of(Args& a) {
  const std::string name = a.text("reduction", "mean");
  return name == "none"        ? Reduction::None
         : name == "sum"       ? Reduction::Sum
         : name == "batchmean" ? Reduction::BatchMean
                               : Reduction::Mean;
}

#define BIND(Name, ...) table[#Name] = [](ModuleArgs& a) { return bound<2>(nn::Name(__VA_ARGS__)); }

void bind_module_loss() {
  auto& table = module_makers();
  BIND(CrossEntropyLoss, {a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100),
                          a.number("label_smoothing", 0.0)});
  BIND(NLLLoss, {a.optional_tensor("weight"), reduction_of(a), a.integer("ignore_index", -100)});
  BIND(MSELoss, {{}, reduction_of(a)});
  BIND(L1Loss, {{}, reduction_of(a)});
  BIND(BCEWithLogitsLoss, {a.optional_tensor("weight"), reduction_of(a), a.optional_tensor("pos_weight")});
}

}  // namespace conformance
