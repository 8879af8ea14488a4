#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "../core/tensor.h"

// Metrics over many batches. update() adds a batch where it lies, on the device: the host waits once, when a result is asked for; that of AUC,
// which looks at scores and labels, waits too.
// In training by many processes each rank counts its own part; all_reduce(group), called by all, makes all have the counts of all: once, when
// an epoch is over, before compute(), and reset() before the next.
// Predictions are scores (N, C, ...), of which the largest along dimension 1 counts, or classes of the target's shape.
namespace tapir::inline v0::distributed {
class ProcessGroup;
}

namespace tapir::inline v0::train {

struct AccuracyOptions {
  int64_t top_k = 1;  // right where the target is among so many largest scores
  std::optional<int64_t> ignore_index = {};
};
/// What metrics share that are a mean over all samples.
class MeanMetric {
 public:
  void all_reduce(const distributed::ProcessGroup& group);
  void reset() { total_ = count_ = Tensor(); }

 protected:
  explicit MeanMetric(DType sums) : sums_(sums) {}
  /// NaN where there was nothing.
  double mean() const;
  Tensor total_, count_;

 private:
  DType sums_;  // total_'s
};
/// The share of right predictions.
class Accuracy : public MeanMetric {
 public:
  explicit Accuracy(const AccuracyOptions& options = {});
  /// ValueError for shapes that do not fit, and for targets outside [0, C) of scores, but for ignore_index.
  void update(const Tensor& predictions, const Tensor& target);
  /// NaN where there was nothing.
  double compute() const { return mean(); }

 private:
  AccuracyOptions options_;
};

/// How the scores of the classes that occur become one number: their mean, that of their share of the targets, or that of all samples.
enum class Average : uint8_t { Macro, Weighted, Micro };

/// How often target i was predicted as j, and what follows from it: precision, recall and F1 (0 where nothing was predicted or there).
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(int64_t num_classes, std::optional<int64_t> ignore_index = {});
  /// ValueError for shapes that do not fit, and classes outside [0, num_classes).
  void update(const Tensor& predictions, const Tensor& target);
  /// (C, C) int64 on the device.
  Tensor compute() const;
  double accuracy() const;
  double precision(Average average = Average::Macro) const;
  double recall(Average average = Average::Macro) const;
  double f1(Average average = Average::Macro) const;
  struct Scores {
    double precision = 0, recall = 0, f1 = 0;
    int64_t support = 0;  // targets of this class
    bool occurs = false;  // as a target or a prediction
  };
  std::vector<Scores> per_class() const;
  void all_reduce(const distributed::ProcessGroup& group);
  void reset() { counts_ = Tensor(); }

 private:
  double averaged(double Scores::*score, Average average) const;
  int64_t classes_;
  std::optional<int64_t> ignore_index_;
  Tensor counts_;
};

/// e to the mean negative log-likelihood of a language model: logits (..., V), targets (...).
class Perplexity : public MeanMetric {
 public:
  explicit Perplexity(int64_t ignore_index = -100) : MeanMetric(kFloat64), ignore_index_(ignore_index) {}
  void update(const Tensor& logits, const Tensor& target);
  double compute() const;

 private:
  int64_t ignore_index_;
};

/// The area under the receiver operating characteristic of two classes: how often a positive sample has the larger score, ties counting
/// half. It keeps the scores.
class AUC {
 public:
  /// scores (N) and labels (N), 0 or 1. ValueError for other labels, scores that are NaN, and integers beyond 2^53.
  void update(const Tensor& scores, const Tensor& labels);
  /// NaN without samples of both classes.
  double compute() const;
  /// Every rank then has the scores of all.
  void all_reduce(const distributed::ProcessGroup& group);
  void reset() { scores_.clear(), labels_.clear(); }

 private:
  std::vector<Tensor> scores_, labels_;
};

}  // namespace tapir::inline v0::train
