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
  for (train::Accuracy* m : {&one, &two, &ignoring})
    for (const int64_t bad : {-1, 3, -100}) {
      const double before = m->compute();
      CHECK_THROWS_WITH(m->update(scores, tensor({int64_t(1), int64_t(1), bad, int64_t(2)})),
                        Catch::StartsWith("[Accuracy]") && Catch::Contains(std::to_string(bad)));
      CHECK(m->compute() == before);  // a refused batch leaves no trace
    }
  train::Accuracy padded({.ignore_index = -100});
  padded.update(scores, tensor({1, -100, 2, -100}));
  CHECK(padded.compute() == 1);
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
  for (const double bad : {2., -1., .5, double(NAN)})
    CHECK_THROWS_WITH(auc.update(tensor({.5, .5}), tensor({1., bad})),
                      Catch::StartsWith("[AUC] expected labels 0 and 1"));
  CHECK_THROWS_WITH(auc.update(tensor({double(NAN)}), tensor({1})), Catch::StartsWith("[AUC] expected scores"));
  CHECK(auc.compute() == Approx(0.5));  // refused batches leave no trace
  auc.reset();
  const int64_t most = int64_t(1) << 53;
  CHECK_THROWS_WITH(auc.update(tensor({most, most + 1}), tensor({0, 1})), Catch::StartsWith("[AUC] expected scores"));
  auc.update(tensor({most - 1, most}), tensor({0, 1})), auc.update(tensor({0.5f}), ones({1}, {.dtype = kBool}));
  CHECK(auc.compute() == Approx(0.5));
  auc.reset();
  auc.update(tensor({(1 << 24) + 1}), tensor({1})), auc.update(tensor({float(1 << 24)}), tensor({0}));
  CHECK(auc.compute() == 1);
}

TEST_CASE("metrics name the argument that is undefined") {
  train::Accuracy accuracy;
  train::ConfusionMatrix matrix(2);
  train::Perplexity perplexity;
  train::AUC auc;
  const Tensor x = ones({2, 2}), t = tensor({0, 1}), none;
  const auto says = [](const std::string& text, const char* metric, const char* argument) {
    INFO(text);
    return text.find(metric) == 0 && text.find(argument) != std::string::npos;
  };
  CHECK(says(error_of([&] { accuracy.update(none, t); }), "[Accuracy]", "predictions"));
  CHECK(says(error_of([&] { accuracy.update(x, none); }), "[Accuracy]", "target"));
  CHECK(says(error_of([&] { matrix.update(none, t); }), "[ConfusionMatrix]", "predictions"));
  CHECK(says(error_of([&] { matrix.update(x, none); }), "[ConfusionMatrix]", "target"));
  CHECK(says(error_of([&] { perplexity.update(none, t); }), "[Perplexity]", "logits"));
  CHECK(says(error_of([&] { perplexity.update(x, none); }), "[Perplexity]", "target"));
  CHECK(says(error_of([&] { auc.update(none, t); }), "[AUC]", "scores"));
  CHECK(says(error_of([&] { auc.update(t, none); }), "[AUC]", "labels"));
}
