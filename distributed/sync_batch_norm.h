#pragma once
#include "../nn/norm.h"

namespace tapir::inline v0::distributed {

/// Batch norm over the batches of all ranks of the default group: (N, C, ...), where N may differ, and be 0. Weights and names are those
/// of nn::BatchNorm2d. In eval mode, and without a group, it is an ordinary batch norm. Ioffe and Szegedy 2015, arXiv 1502.03167.
struct SyncBatchNorm : nn::BatchNormBase {
  explicit SyncBatchNorm(int64_t num_features, const nn::BatchNormOptions& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS_WITH_BASE(nn::BatchNormBase)
};
/// Makes every batch norm of the model normalise as a SyncBatchNorm does; types, weights and names stay.
void convert_sync_batchnorm(nn::Module& model);
/// Has it a batch norm of these two kinds?
bool normalizes_together(nn::Module& model);

}  // namespace tapir::inline v0::distributed
