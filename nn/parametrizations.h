#pragma once
#include <optional>
#include <string>

#include "module.h"

// Parameters that are computed of others, under the names of torch.nn.utils.parametrizations: state_dict and parameters() then hold
// "parametrizations.weight.original0" in the place of "weight". The field is computed anew at each call of the module.
namespace tapir::inline v0::nn {

/// What one field is computed of: original, or original0 and original1, by a step with PyTorch's name "0".
struct ParametrizationList : Module {
  Parameter original, original0, original1;
  std::vector<AnyModule> steps;
  Tensor compute();
  bool tapir_is_list() const override { return true; }
  TAPIR_DECLARE_FIELDS(original, original0, original1, steps)
};

struct WeightNormOptions {
  std::string name = "weight";
  std::optional<int64_t> dim = 0;  // norms of the slices along it; none: of the whole
};
/// weight = original0 original1 / |original1|: length and direction are trained apart. Salimans and Kingma 2016, arXiv 1602.07868.
/// Make the optimizer afterwards. ValueError where there is no such parameter or it is computed already.
void weight_norm(Module& module, const WeightNormOptions& options = {});

struct SpectralNormOptions {
  std::string name = "weight";
  int64_t n_power_iterations = 1;
  double eps = 1e-12;
  std::optional<int64_t> dim = {};  // the rows of the matrix; none: 0, or 1 for transposed convolutions
};
/// weight = original / its largest singular value, which follows by power iteration in training. Miyato et al. 2018, arXiv 1802.05957.
void spectral_norm(Module& module, const SpectralNormOptions& options = {});

/// The parameter is its present value again, and trained itself. ValueError where it is not computed.
void remove_parametrizations(Module& module, const std::string& name = "weight");
bool is_parametrized(Module& module, const std::string& name = "weight");

namespace detail {
/// Renews the computed fields of this module.
void compute_parameters(Module& module);
}  // namespace detail
}  // namespace tapir::inline v0::nn
