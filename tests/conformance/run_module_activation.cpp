// Activations.
#include "modules.h"

namespace conformance {

#define BIND(Name, ...) table[#Name] = []([[maybe_unused]] ModuleArgs& a) { return bound(nn::Name(__VA_ARGS__)); }

#define INPLACE \
  { a.boolean("inplace", false) }

void bind_module_activation() {
  auto& table = module_makers();
  BIND(Sigmoid);
  BIND(Tanh);
  BIND(Softsign);
  BIND(Tanhshrink);
  BIND(LogSigmoid);
  BIND(Softmax2d);
  BIND(ReLU, INPLACE);
  BIND(ReLU6, INPLACE);
  BIND(SELU, INPLACE);
  BIND(SiLU, INPLACE);
  BIND(Mish, INPLACE);
  BIND(Hardsigmoid, INPLACE);
  BIND(Hardswish, INPLACE);
  BIND(Softmax, a.integer("dim"));
  BIND(LogSoftmax, a.integer("dim"));
  BIND(Softmin, a.integer("dim"));
  BIND(GLU, a.integer("dim", -1));
  BIND(GELU, a.text("approximate", "none"));
  BIND(LeakyReLU, a.number("negative_slope", 0.01), INPLACE);
  BIND(ELU, a.number("alpha", 1), INPLACE);
  BIND(CELU, a.number("alpha", 1), INPLACE);
  BIND(Hardtanh, a.number("min_val", -1), a.number("max_val", 1), INPLACE);
  BIND(Threshold, a.number("threshold"), a.number("value"), INPLACE);
  BIND(RReLU, a.number("lower", 1.0 / 8), a.number("upper", 1.0 / 3), INPLACE);
  BIND(Softplus, a.number("beta", 1), a.number("threshold", 20));
  BIND(Hardshrink, a.number("lambd", 0.5));
  BIND(Softshrink, a.number("lambd", 0.5));
  BIND(PReLU, a.integer("num_parameters", 1), {a.number("init", 0.25)});
}

}  // namespace conformance
