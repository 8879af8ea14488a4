#include <tapir/models/bert.h>

#include "filled.h"
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
