#include "distance.h"

namespace tapir::inline v0::nn {

TAPIR_DEFINE_FIELDS(CosineSimilarity, PairwiseDistance)

}  // namespace tapir::inline v0::nn
