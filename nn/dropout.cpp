#include "dropout.h"

#include "../ops/dropout.h"

namespace tapir::inline v0::nn {

#define TAPIR_DROPOUT(Name, dropped)                                                                     \
  Name::Name(double p, const DropoutOptions& o) : p(p), inplace(o.inplace) {                             \
    check(p >= 0 && p <= 1, "[" #Name "] dropout probability has to be between 0 and 1, but got {}", p); \
  }                                                                                                      \
  Tensor Name::forward(const Tensor& x) {                                                                \
    Tensor y = x;                                                                                        \
    return dropped;                                                                                      \
  }
TAPIR_DROPOUT(Dropout, inplace ? dropout_(y, p, training) : dropout(x, p, training))
// In place: the gradient keeps a copy of what is overwritten.
#define TAPIR_CHANNEL_DROPOUT(Name, function) \
  TAPIR_DROPOUT(Name, inplace ? y.copy_(function(x.clone(), p, training)) : function(x, p, training))
TAPIR_CHANNEL_DROPOUT(Dropout1d, dropout1d)
TAPIR_CHANNEL_DROPOUT(Dropout2d, dropout2d)
TAPIR_CHANNEL_DROPOUT(Dropout3d, dropout3d)
TAPIR_CHANNEL_DROPOUT(AlphaDropout, alpha_dropout)
TAPIR_CHANNEL_DROPOUT(FeatureAlphaDropout, feature_alpha_dropout)
#undef TAPIR_CHANNEL_DROPOUT
#undef TAPIR_DROPOUT

TAPIR_DEFINE_FIELDS(Dropout, Dropout1d, Dropout2d, Dropout3d, AlphaDropout, FeatureAlphaDropout)

}  // namespace tapir::inline v0::nn
