#include <tapir/io/safetensors.h>
#include <tapir/models/bert.h>

#include "../errors.h"
#include "filled.h"
#include "source_dir.h"
using namespace tapir;

TEST_CASE("BERT gives the states of its reference, under its names") {
  models::BertModel bert({.vocab_size = 11,
                          .hidden_size = 8,
                          .num_hidden_layers = 2,
                          .num_attention_heads = 2,
                          .intermediate_size = 12,
                          .max_position_embeddings = 16});
  fill_weights(bert);
  const auto names = bert.named_parameters();
  CHECK(names[3].first == "embeddings.LayerNorm.weight");
  CHECK(names[5].first == "encoder.layer.0.attention.self.query.weight");
  CHECK(names[19].first == "encoder.layer.0.output.LayerNorm.weight");
  const auto [states, pooled] = bert(tensor({{1, 4, 2, 9, 0}}), {.attention_mask = tensor({{1, 1, 1, 1, 0}}),
                                                                 .token_type_ids = tensor({{0, 0, 1, 1, 1}})});
  check_values(states.select(0, 0).select(0, 1),
               {-0.96518510, -0.65056809, -0.54833604, -0.73624656, 1.76826732, 0.37340915, 1.32993152, 1.50986577});
  check_values(pooled.select(0, 0),
               {0.08245389, 0.49543297, -0.00746985, 0.45919962, -0.19892375, 0.29679812, -0.38933839, 0.07673521});
  StateDict published;
  for (auto& [name, x] : bert.state_dict()) {
    std::string old = "bert." + name;
    if (old.ends_with("LayerNorm.weight")) old.replace(old.size() - 6, 6, "gamma");
    published.set(old, x);
  }
  published.set("cls.predictions.bias", zeros(11));
  models::BertModel other = bert.clone();
  for (const Tensor& p : other.parameters()) p.detach().zero_();
  other.load_pretrained(published);
  CHECK(equal(other(tensor({{1, 4}})).pooler_output, bert(tensor({{1, 4}})).pooler_output));
  CHECK_THROWS_AS(bert(zeros({1, 17}, {.dtype = kInt64})), ValueError);
}

// references.py wrote what it is compared with.
namespace {
models::BertConfig tiny(int64_t num_labels, std::optional<models::ProblemType> type = {}) {
  return {.vocab_size = 11,
          .hidden_size = 8,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 12,
          .max_position_embeddings = 16,
          .num_labels = num_labels,
          .problem_type = type};
}
const Tensor kTexts = tensor({{1, 4, 2, 9, 0}, {3, 3, 8, 0, 0}});
const Tensor kMask = tensor({{1, 1, 1, 1, 1}, {1, 1, 1, 0, 0}});
const Tensor kTypes = tensor({{0, 0, 1, 1, 1}, {0, 0, 0, 0, 0}});
}  // namespace

TEST_CASE("review 14: BertForSequenceClassification gives logits, losses and gradients of transformers") {
  const StateDict file = io::load_safetensors(TAPIR_SOURCE_DIR "/tests/models/references/bert_classifier.safetensors");
  using enum models::ProblemType;
  const std::tuple<const char*, int64_t, std::optional<models::ProblemType>> cases[] = {
      {"regression_one", 1, {}}, {"regression_three", 3, Regression},
      {"single", 3, {}},         {"single_in_a_column", 3, SingleLabelClassification},
      {"multi", 3, {}},          {"multi_of_one", 1, MultiLabelClassification}};
  for (const auto& [name, num_labels, type] : cases) {
    INFO(name);
    const StateDict want = file.strip(std::string(name) + ".");
    models::BertForSequenceClassification bert(tiny(num_labels, type));
    fill_weights(bert);
    const auto [loss, logits] =
        bert(kTexts, {.attention_mask = kMask, .token_type_ids = kTypes, .labels = want.at("labels")});
    CHECK(allclose(logits, want.at("logits"), {.rtol = 1e-9}));
    CHECK(loss.item() == Approx(want.at("loss").item()).epsilon(1e-9));
    loss.backward();
    CHECK(allclose(bert.classifier.weight.grad(), want.at("classifier.weight"), {.rtol = 1e-7}));
    CHECK(allclose(bert.bert.pooler.dense.bias.grad(), want.at("bert.pooler.dense.bias"), {.rtol = 1e-7}));
    CHECK(!bert(kTexts).loss.defined());
  }
}

TEST_CASE("review 14: BertForSequenceClassification loads its checkpoints, and those of an encoder alone") {
  const StateDict file = io::load_safetensors(TAPIR_SOURCE_DIR "/tests/models/references/bert_classifier.safetensors");
  models::BertForSequenceClassification bert(tiny(3)), other(tiny(3)), encoder(tiny(3));
  bert.load_pretrained(file.strip("state."));
  bert.to(kFloat64), bert.eval();
  const Tensor logits = bert(kTexts, {.attention_mask = kMask, .token_type_ids = kTypes}).logits;
  CHECK(allclose(logits, file.at("single.logits"), {.rtol = 1e-5, .atol = 1e-6}));  // weights in float32
  other.load_state_dict(file.strip("state."));                                      // its names, and no others
  StateDict published = file.strip("state.");
  published.set("cls.predictions.bias", zeros(11));
  StateDict headless;
  for (auto& [name, x] : published)
    if (!name.starts_with("classifier.")) headless.append(name, x);
  const Tensor before = encoder.classifier.weight.detach().clone();
  encoder.load_pretrained(headless);
  CHECK(equal(encoder.classifier.weight, before));
  CHECK(equal(encoder.bert.pooler.dense.weight, other.bert.pooler.dense.weight));
  models::BertForSequenceClassification two(tiny(2));
  CHECK_THROWS_AS(two.load_pretrained(published), ValueError);  // a classifier of three
}

TEST_CASE("review 14: BertForSequenceClassification refuses labels that do not fit, and has its own dropout") {
  models::BertForSequenceClassification bert(tiny(3));
  const auto refused = [&](const Tensor& labels) { return error_of([&] { bert(kTexts, {.labels = labels}); }); };
  CHECK(refused(tensor({1, 2, 0})).starts_with("[BertForSequenceClassification] expected labels of shape (2,)"));
  CHECK(refused(zeros({2, 2})).starts_with("[BertForSequenceClassification] expected labels of shape (2, 3)"));
  CHECK(refused(tensor({1, 3})) != "");  // no such class
  CHECK_THROWS_AS(models::BertForSequenceClassification(tiny(0)), ValueError);
  CHECK(bert.dropout.p == 0.1);
  models::BertConfig config = tiny(3);
  config.classifier_dropout = 0.4;
  CHECK(models::BertForSequenceClassification(config).dropout.p == 0.4);
  bert.train();
  const Tensor labels = tensor({2, 0});
  optim::AdamW opt(bert.parameters(), {.lr = 5e-3});
  manual_seed(4);
  for (int i = 0; i < 40; ++i) {
    opt.zero_grad();
    bert(kTexts, {.attention_mask = kMask, .labels = labels}).loss.backward();
    opt.step();
  }
  bert.eval();
  CHECK(equal(argmax(bert(kTexts, {.attention_mask = kMask}).logits, 1), labels));
}
