#pragma once
#include "module.h"

namespace tapir::inline v0::nn {

struct DropoutOptions {
  bool inplace = false;  // overwrites the input
};
#define TAPIR_DROPOUT(Name)                                            \
  struct Name : Module {                                               \
    double p;                                                          \
    bool inplace;                                                      \
    explicit Name(double p = 0.5, const DropoutOptions& options = {}); \
    Tensor forward(const Tensor& x);                                   \
    TAPIR_DECLARE_FIELDS(p, inplace)                                   \
  };
/// In training each element is zeroed with probability p and the others grow to x / (1 - p). Srivastava et al. 2014.
TAPIR_DROPOUT(Dropout)
// The same for whole channels of (N, C, ...). Tompson et al. 2015, arXiv 1411.4280.
TAPIR_DROPOUT(Dropout1d)
TAPIR_DROPOUT(Dropout2d)
TAPIR_DROPOUT(Dropout3d)
/// Elements become selu's lower limit; then mean and variance are restored. Klambauer et al. 2017, arXiv 1706.02515.
TAPIR_DROPOUT(AlphaDropout)
/// The same for whole channels.
TAPIR_DROPOUT(FeatureAlphaDropout)
#undef TAPIR_DROPOUT

}  // namespace tapir::inline v0::nn
