#include "loss.h"

namespace tapir::inline v0::nn {

TAPIR_DEFINE_FIELDS(CrossEntropyLoss, NLLLoss, MSELoss, L1Loss, HuberLoss, BCELoss, MultiMarginLoss,
                    MultiLabelSoftMarginLoss, SmoothL1Loss, KLDivLoss, PoissonNLLLoss, HingeEmbeddingLoss,
                    SoftMarginLoss, MultiLabelMarginLoss, GaussianNLLLoss, MarginRankingLoss, CosineEmbeddingLoss,
                    TripletMarginLoss, BCEWithLogitsLoss, CTCLoss)

}  // namespace tapir::inline v0::nn
