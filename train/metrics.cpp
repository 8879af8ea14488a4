#include "metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../core/fail_as.h"
#include "../core/modes.h"
#include "../ops/arithmetic.h"
#include "../ops/bitwise.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/front.h"
#include "../ops/indexing.h"
#include "../ops/loss.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/sort.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::train {

/// Sums stay on the device of the first batch.
static void accumulate(Tensor& sum, const Tensor& batch) {
  if (sum.defined()) sum.add_(batch);
  else sum = batch.clone();
}
/// (N, C, ...) against (N, ...)?
static bool are_scores(const char* metric, const Tensor& p, const Tensor& t) {
  check_defined(metric, "predictions", p, "target", t);
  check(!is_floating(t.dtype()), "[{}] expected classes of an integer dtype as the target, got {}", metric, t);
  if (p.shape() == t.shape() && !is_floating(p.dtype())) return false;
  Shape without = p.shape();
  if (p.dim() >= 2) without.erase(1);
  check(p.dim() >= 2 && without == t.shape(),
        "[{}] expected scores (N, C, ...) or classes of the target's shape, got {} for the target {}", metric, p, t);
  return true;
}

double MeanMetric::mean() const { return total_.defined() ? total_.item() / count_.item() : NAN; }

/// Checks that each target lies in [0, C), where p is (N, C, ...). A kernel looks; the host does not wait.
static void check_targets(const Tensor& t, const Tensor& p) {
  const Tensor places = unsqueeze(to(t, kInt64), 1);
  const Tensor scores = empty(places.shape(), {.dtype = p.dtype(), .device = p.device()});
  Context& ctx = context(p);
  backend(p).gather(ctx, {scores, p, places, {1}});
  check_values(ctx, "[Accuracy] target {value} at position {position} is out of bounds for {bound} classes");
}

Accuracy::Accuracy(const AccuracyOptions& o) : MeanMetric(kInt64), options_(o) {
  check(o.top_k > 0, "[Accuracy] expected top_k above 0, got {}", o.top_k);
}
void Accuracy::update(const Tensor& p, const Tensor& t) try {
  NoGrad guard;
  const bool scores = are_scores("Accuracy", p, t);
  check(scores || options_.top_k == 1, "[Accuracy] expected scores (N, C, ...) for top_k {}, got {}", options_.top_k,
        p);
  check(!scores || options_.top_k <= p.size(1), "[Accuracy] expected top_k of at most the {} classes, got {}",
        scores ? p.size(1) : 0, options_.top_k);
  Tensor right;
  if (!scores) right = eq(p, t);
  else if (options_.top_k == 1) right = eq(argmax(p, 1), t);
  else right = any(eq(topk(p, options_.top_k, 1).second, unsqueeze(t, 1)), 1);
  if (scores) check_targets(options_.ignore_index ? where(eq(t, *options_.ignore_index), 0, t) : t, p);
  if (options_.ignore_index) {
    const Tensor counts = ne(t, *options_.ignore_index);
    right = right & counts;
    accumulate(count_, sum(counts));
  } else accumulate(count_, full({}, t.numel(), {.dtype = kInt64, .device = t.device()}));
  accumulate(total_, sum(right));
} catch (...) {
  fail_as("Accuracy");
}

ConfusionMatrix::ConfusionMatrix(int64_t classes, std::optional<int64_t> ignore)
    : classes_(classes), ignore_index_(ignore) {
  check(classes > 0 && classes < int64_t(1) << 31, "[ConfusionMatrix] expected num_classes in [1, 2^31), got {}",
        classes);
}
void ConfusionMatrix::update(const Tensor& p, const Tensor& t) try {
  NoGrad guard;
  const bool scores = are_scores("ConfusionMatrix", p, t);
  check(!scores || p.shape()[1] == classes_, "[ConfusionMatrix] expected scores of {} classes, (N, C, ...), got {}",
        classes_, p);
  const Tensor guess = scores ? argmax(p, 1) : p;
  if (!counts_.defined()) counts_ = zeros(classes_ * classes_, {.dtype = kInt64, .device = t.device()});
  const Tensor from = flatten(to(t, kInt64)), into = flatten(to(guess, kInt64));
  Tensor place = where((into >= 0) & (into < classes_) & (from >= 0) & (from < classes_), from * classes_ + into,
                       -1);  // index_add refuses what is outside
  Tensor one = ones(from.shape(), {.dtype = kInt64, .device = t.device()});
  if (ignore_index_) {
    const Tensor ignored = eq(from, *ignore_index_);
    place = where(ignored, 0, place), one = where(ignored, 0, one);
  }
  try {
    counts_.copy_(index_add(counts_, 0, place, one));  // a refused batch leaves the counts as they were
  } catch (const ValueError&) {
    const Tensor bad = nonzero(lt(place, 0));
    check(bad.numel() == 0,
          "[ConfusionMatrix] expected classes in [0, {}), got target {} and prediction {} at position {}", classes_,
          from[bad[0].item<int64_t>()].item<int64_t>(), into[bad[0].item<int64_t>()].item<int64_t>(),
          bad[0].item<int64_t>());
    throw;
  }
} catch (...) {
  fail_as("ConfusionMatrix");
}
Tensor ConfusionMatrix::compute() const {
  return counts_.defined() ? counts_.clone().view({classes_, classes_})
                           : zeros({classes_, classes_}, {.dtype = kInt64});
}
std::vector<ConfusionMatrix::Scores> ConfusionMatrix::per_class() const {
  const std::vector<int64_t> n = compute().to_vector<int64_t>();
  std::vector<Scores> out(static_cast<size_t>(classes_));
  for (int64_t c = 0; c < classes_; ++c) {
    int64_t there = 0, predicted = 0;
    for (int64_t i = 0; i < classes_; ++i)
      there += n[size_t(c * classes_ + i)], predicted += n[size_t(i * classes_ + c)];
    const double right = double(n[size_t(c * classes_ + c)]);
    out[size_t(c)] = {predicted ? right / double(predicted) : 0, there ? right / double(there) : 0,
                      there + predicted ? 2 * right / double(there + predicted) : 0, there, there + predicted > 0};
  }
  return out;
}
double ConfusionMatrix::accuracy() const {
  const std::vector<int64_t> n = compute().to_vector<int64_t>();
  int64_t right = 0;
  for (int64_t c = 0; c < classes_; ++c) right += n[size_t(c * classes_ + c)];
  return double(right) / double(std::accumulate(n.begin(), n.end(), int64_t(0)));
}
double ConfusionMatrix::averaged(double Scores::*score, Average average) const {
  if (average == Average::Micro)
    return accuracy();  // every wrong prediction is one false positive and one false negative
  double sum = 0, weight = 0;
  for (const Scores& s : per_class()) {
    const double w = average == Average::Weighted ? double(s.support) : double(s.occurs);
    sum += w * (s.*score), weight += w;
  }
  return sum / weight;
}
double ConfusionMatrix::precision(Average a) const { return averaged(&Scores::precision, a); }
double ConfusionMatrix::recall(Average a) const { return averaged(&Scores::recall, a); }
double ConfusionMatrix::f1(Average a) const { return averaged(&Scores::f1, a); }

void Perplexity::update(const Tensor& logits, const Tensor& t) try {
  NoGrad guard;
  check_defined("Perplexity", "logits", logits, "target", t);
  Shape without = logits.shape();
  if (logits.dim() >= 1) without.resize(logits.dim() - 1);
  check(logits.dim() >= 1 && without == t.shape(),
        "[Perplexity] expected logits (..., V) for targets (...), got {} and {}", logits, t);
  const Tensor flat = t.reshape({-1}), rows = logits.reshape({flat.numel(), logits.shape()[logits.dim() - 1]});
  const Tensor loss =
      cross_entropy(to(rows, kFloat32), flat, {.reduction = Reduction::Sum, .ignore_index = ignore_index_});
  accumulate(total_, to(loss, kFloat64));
  accumulate(count_, sum(ne(flat, ignore_index_)));
} catch (...) {
  fail_as("Perplexity");
}
double Perplexity::compute() const { return std::exp(mean()); }

void AUC::update(const Tensor& scores, const Tensor& labels) try {
  check_defined("AUC", "scores", scores, "labels", labels);
  check(scores.dim() == 1 && scores.shape() == labels.shape(),
        "[AUC] expected scores (N) and labels (N), got {} and {}", scores, labels);
  NoGrad guard;
  const auto refuse = [](const Tensor& bad, const Tensor& x, const char* expected) {
    if (!any(bad).item<bool>()) return;
    const auto at = nonzero(bad)[0].item<int64_t>();
    fail(ErrorKind::Value, "[AUC] expected {}, got {} at position {}", expected, select(x, 0, at).item_scalar(), at);
  };
  constexpr int64_t most = int64_t(1) << 53;
  const Tensor odd = logical_not(logical_or(eq(labels, 0), eq(labels, 1)));
  const Tensor lost = is_floating(scores.dtype()) ? isnan(scores) : logical_or(gt(scores, most), lt(scores, -most));
  if (any(logical_or(odd, lost)).item<bool>()) {  // waits once for good batches
    refuse(odd, labels, "labels 0 and 1");
    refuse(lost, scores,
           is_floating(scores.dtype()) ? "scores that are numbers" : "scores up to 2^53, all of which double holds");
  }
  Tensor score = is_floating(scores.dtype()) ? scores.detach().clone() : to(scores, kFloat64),
         label = labels.detach().clone();
  scores_.push_back(std::move(score)), labels_.push_back(std::move(label));
} catch (...) {
  fail_as("AUC");
}
double AUC::compute() const {
  if (scores_.empty()) return NAN;
  const auto score = cat(scores_).to_vector<double>(), label = cat(labels_).to_vector<double>();
  std::vector<size_t> order(score.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] < score[b]; });
  double pairs = 0, positive = 0, negative = 0;
  for (size_t i = 0, end = 0; i < order.size(); i = end) {  // one group of equal scores at a time
    double p = 0, n = 0;
    for (end = i; end < order.size() && score[order[end]] == score[order[i]]; ++end) {
      const double y = label[order[end]];
      (y == 1 ? p : n) += 1;
    }
    pairs += p * (negative + n / 2), positive += p, negative += n;
  }
  return pairs / (positive * negative);
}

}  // namespace tapir::inline v0::train
