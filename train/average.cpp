#include "average.h"

#include <limits>

#include "../core/denormals.h"
#include "../nn/norm.h"
#include "../ops/create.h"
#include "../ops/ternary.h"

namespace tapir::inline v0::train::detail {

void average(const Tensors& averages, const Tensors& values, int64_t n_averaged, std::optional<double> decay) {
  check(averages.size() == values.size(),
        "[AveragedModel] expected a model with {} tensors like the averaged one, got {}", int64_t(averages.size()),
        int64_t(values.size()));
  check(n_averaged < std::numeric_limits<int64_t>::max(), "[AveragedModel] expected n_averaged below 2^63 - 1, got {}",
        n_averaged);
  NoGrad guard;
  for (size_t i = 0; i < values.size(); ++i) {
    Tensor to = averages[i].second;
    const Tensor now = values[i].second.detach().to(to.device());
    check(to.shape() == now.shape(), "[AveragedModel] expected {} like the averaged {}, got {}", values[i].first, to,
          now);
    const tapir::detail::FlushDenormals flush(to.dtype());
    if (n_averaged == 0 || !is_floating(to.dtype())) to.copy_(now);
    else lerp_(to, now.to(to.dtype()), decay ? 1 - *decay : 1. / double(n_averaged + 1));
  }
}

FreshStatistics::FreshStatistics(nn::Module& model) {
  for (auto& [name, m] : model.named_modules()) {
    training_.emplace_back(m, m->training);
    auto* norm = dynamic_cast<nn::BatchNormBase*>(m);
    if (!norm || !norm->running_mean.defined()) continue;
    momenta_.emplace_back(m, norm->options.momentum);
    norm->options.momentum.reset();
    norm->running_mean.fill_(0), norm->running_var.fill_(1), norm->num_batches_tracked.fill_(0);
  }
  model.train();
}
FreshStatistics::~FreshStatistics() {
  for (auto& [m, on] : training_) m->training = on;
  for (auto& [m, momentum] : momenta_) static_cast<nn::BatchNormBase*>(m)->options.momentum = momentum;
}

}  // namespace tapir::inline v0::train::detail
