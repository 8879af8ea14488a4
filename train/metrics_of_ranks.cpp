// Metrics over the ranks of a group.
#include "../core/modes.h"
#include "../distributed/process_group.h"
#include "../ops/create.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "metrics.h"

namespace tapir::inline v0::train {

/// The sum over ranks; a rank that has counted nothing adds nothing.
static void add_up(Tensor& sum, const Shape& shape, DType dtype, const distributed::ProcessGroup& group) {
  NoGrad guard;
  sum = sum.defined() ? sum.to(dtype) : zeros(shape, {.dtype = dtype});
  group.all_reduce(sum);
}

void MeanMetric::all_reduce(const distributed::ProcessGroup& group) {
  add_up(total_, {}, sums_, group), add_up(count_, {}, kInt64, group);
}
void ConfusionMatrix::all_reduce(const distributed::ProcessGroup& group) {
  add_up(counts_, {classes_ * classes_}, kInt64, group);
}

void AUC::all_reduce(const distributed::ProcessGroup& group) {
  NoGrad guard;
  const auto joined = [](const std::vector<Tensor>& list) {
    return list.empty() ? zeros({0}, {.dtype = kFloat64}) : cat(list).to(kFloat64).cpu();
  };
  const Tensor scores = joined(scores_), labels = joined(labels_);
  Tensor lengths = zeros({group.size()}, {.dtype = kInt64});
  group.all_gather(lengths, full({1}, scores.numel(), {.dtype = kInt64}));
  const int64_t longest = lengths.max().item<int64_t>();
  const Tensor mine = zeros({2, longest}, {.dtype = kFloat64}),
               all = zeros({2 * group.size(), longest}, {.dtype = kFloat64});
  mine.select(0, 0).narrow(0, 0, scores.numel()).copy_(scores);
  mine.select(0, 1).narrow(0, 0, labels.numel()).copy_(labels);
  group.all_gather(all, mine);
  scores_.clear(), labels_.clear();
  for (int64_t r = 0; r < group.size(); ++r) {
    const int64_t n = lengths.select(0, r).item<int64_t>();
    scores_.push_back(all.select(0, 2 * r).narrow(0, 0, n).clone());
    labels_.push_back(all.select(0, 2 * r + 1).narrow(0, 0, n).clone());
  }
}

}  // namespace tapir::inline v0::train
