#include "lstm_lm.h"

#include "../core/fail_as.h"

namespace tapir::inline v0::models {

LSTMLanguageModel::LSTMLanguageModel(int64_t vocab, int64_t dim, const LSTMLanguageModelOptions& o) try
    : embed(vocab, dim), lstm(dim, dim, {.num_layers = o.num_layers, .batch_first = true, .dropout = o.dropout}),
      decoder(dim, vocab), dropout(o.dropout) {
  if (o.tied) decoder.weight = embed.weight;
} catch (...) {
  fail_as("LSTMLanguageModel");
}
Tensor LSTMLanguageModel::forward(const Tensor& tokens) { return forward(tokens, {}).logits; }
LSTMLanguageModel::Output LSTMLanguageModel::forward(const Tensor& tokens, const nn::LSTMState& state) {
  const auto [h, next] = lstm(dropout(embed(tokens)), state);
  return {decoder(dropout(h)), next};
}

TAPIR_DEFINE_FIELDS(LSTMLanguageModel)

}  // namespace tapir::inline v0::models
