#include <tapir/tapir.h>

#include <cmath>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;
using train::Average;

TEST_CASE("accuracy over batches: the largest score, the k largest, classes, ignored targets") {
  const Tensor scores = tensor({{.1, .7, .2}, {.5, .3, .2}, {.2, .3, .5}, {.6, .3, .1}}), target = tensor({1, 1, 2, 2});
  train::Accuracy one, two({.top_k = 2}), ignoring({.ignore_index = 2}), classes;
  CHECK(std::isnan(one.compute()));
  for (int64_t i = 0; i < 4; i += 2) {
    const Tensor s = scores.narrow(0, i, 2), t = target.narrow(0, i, 2);
    one.update(s, t), two.update(s, t), ignoring.update(s, t), classes.update(argmax(s, 1), t);
  }
  CHECK(one.compute() == 0.5);
  CHECK(two.compute() == 0.75);
  CHECK(ignoring.compute() == 0.5);
  CHECK(classes.compute() == 0.5);
  one.reset();
  one.update(ones({2, 3, 4, 5}), zeros({2, 4, 5}, {.dtype = kInt64}));
  CHECK(one.compute() == 1);
  CHECK_THROWS_AS(one.update(scores, tensor({1, 1})), ValueError);
  CHECK_THROWS_AS(one.update(scores, tensor({1., 1., 2., 2.})), ValueError);
  CHECK_THROWS_AS(two.update(target, target), ValueError);
}

TEST_CASE("confusion matrix, precision, recall and F1") {
  // scikit-learn's example: target 0 1 2 0 1 2, predictions 0 2 1 0 0 1
  train::ConfusionMatrix m(4);
  m.update(tensor({0, 2, 1}), tensor({0, 1, 2})), m.update(tensor({0, 0, 1}), tensor({0, 1, 2}));
  CHECK(m.compute().to_vector<int64_t>() == std::vector<int64_t>{2, 0, 0, 0, 1, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0});
  CHECK(m.precision() == Approx(2. / 9));  // class 3 does not occur and does not count
  CHECK(m.recall() == Approx(1. / 3));
  CHECK(m.f1() == Approx(0.8 / 3));
  CHECK(m.f1(Average::Micro) == Approx(1. / 3));
  CHECK(m.f1(Average::Weighted) == Approx(0.8 / 3));
  CHECK(m.accuracy() == Approx(1. / 3));
  CHECK(m.per_class()[0].precision == Approx(2. / 3));
  CHECK(m.per_class()[1].support == 2);
  CHECK_THROWS_AS(m.update(tensor({0}), tensor({4})), ValueError);
  CHECK_THROWS_AS(m.update(tensor({-1}), tensor({0})), ValueError);
  CHECK_THROWS_AS(m.update(tensor({4}), tensor({0})), ValueError);
  CHECK_THROWS_WITH(m.update(zeros({1, 5}), tensor({0})),
                    Catch::Contains("[ConfusionMatrix] expected scores of 4 classes") && Catch::Contains("(1, 5)"));
  CHECK_THROWS_WITH(m.update(Tensor(), tensor({0})), Catch::StartsWith("[ConfusionMatrix]"));
  CHECK(sum(m.compute()).item() == 6);  // refused batches leave no trace
  train::ConfusionMatrix padded(2, -100);
  padded.update(tensor({1, 0, 1}), tensor({1, -100, 0}));
  CHECK(padded.compute().to_vector<int64_t>() == std::vector<int64_t>{0, 1, 0, 1});
}

TEST_CASE("perplexity of a language model") {
  train::Perplexity p;
  const Tensor logits = log(tensor({{{.5, .25, .25}, {.1, .8, .1}}, {{.2, .2, .6}, {.3, .3, .4}}}));
  p.update(logits.narrow(0, 0, 1), tensor({{0, 1}})), p.update(logits.narrow(0, 1, 1), tensor({{2, -100}}));
  CHECK(p.compute() == Approx(std::pow(.5 * .8 * .6, -1. / 3)));
  CHECK_THROWS_AS(p.update(logits, tensor({0, 1})), ValueError);
}

TEST_CASE("area under the ROC curve") {
  train::AUC auc;
  CHECK(std::isnan(auc.compute()));
  auc.update(tensor({.1, .4}), tensor({0, 0})), auc.update(tensor({.35, .8}), tensor({1, 1}));
  CHECK(auc.compute() == Approx(0.75));  // scikit-learn's example
  auc.reset();
  auc.update(tensor({.5, .5, .5}), tensor({0, 1, 0}));
  CHECK(auc.compute() == Approx(0.5));
  auc.update(tensor({.5}), tensor({2}));
  CHECK_THROWS_AS(auc.compute(), ValueError);
}
