// Weights that any program can make again: parameter n has the elements 0.3 sin(0.37 i + n + 1), those of norms 1 more. The facts in these
// tests are what Hugging Face's transformers 5.23 computes with them in float64.
#pragma once
#include <tapir/tapir.h>

#include <cmath>

#include "../catch.h"

inline void fill_weights(tapir::nn::Module& model) {
  using namespace tapir;
  model.to(kFloat64);
  model.eval();
  NoGrad guard;
  int64_t n = 0;
  for (auto& [name, p] : model.named_parameters()) {
    const bool norm =
        name.ends_with("orm.weight") || (name.find("ln_") != std::string::npos && name.ends_with("weight"));
    const Tensor i = arange(0, p.numel(), 1, {.dtype = kFloat64});
    p.copy_((sin(i * 0.37 + double(++n)) * 0.3 + (norm ? 1.0 : 0.0)).view(p.shape()));
  }
}
inline void check_values(const tapir::Tensor& got, const std::vector<double>& want, double tolerance = 1e-6) {
  const std::vector<double> v = got.to_vector<double>();
  REQUIRE(v.size() == want.size());
  for (size_t i = 0; i < v.size(); ++i) CHECK(std::fabs(v[i] - want[i]) < tolerance);
}
