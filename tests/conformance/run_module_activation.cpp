// Activations.
#include "modules.h"

namespace conformance {

#define BIND(Name, ...) table[#Name] = []([[maybe_unused]] ModuleArgs& a) { return bound(nn::Name(__VA_ARGS__)); }

void bind_module_activation() {
  auto& table = module_makers();
  BIND(ReLU, {a.boolean("inplace", false)});
  BIND(Sigmoid);
  BIND(Tanh);
  BIND(SiLU);
  BIND(GELU, a.text("approximate", "none"));
  BIND(LeakyReLU, a.number("negative_slope", 0.01));
  BIND(Softmax, a.integer("dim"));
  BIND(LogSoftmax, a.integer("dim"));
}

}  // namespace conformance
