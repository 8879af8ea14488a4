#pragma once
#include "../nn/dropout.h"
#include "../nn/linear.h"
#include "../nn/rnn.h"
#include "../nn/sparse.h"

// A language model of LSTM layers. Zaremba et al. 2014, arXiv 1409.2329; tied weights: Press and Wolf 2016, arXiv 1608.05859.
namespace tapir::inline v0::models {

struct LSTMLanguageModelOptions {
  int64_t num_layers = 2;
  double dropout = 0;  // of the embeddings, between the layers, and of what the decoder sees
  bool tied = false;   // the decoder shares the embedding's weight
};
/// Tokens (B, T) -> scores (B, T, vocab).
struct LSTMLanguageModel : nn::Module {
  struct Output {
    Tensor logits;
    nn::LSTMState state;
  };
  nn::Embedding embed;
  nn::LSTM lstm;
  nn::Linear decoder;
  nn::Dropout dropout;
  LSTMLanguageModel(int64_t vocab, int64_t dim, const LSTMLanguageModelOptions& options = {});
  Tensor forward(const Tensor& tokens);
  /// The text goes on from `state`, and may be continued from the one returned.
  Output forward(const Tensor& tokens, const nn::LSTMState& state);
  TAPIR_DECLARE_FIELDS(embed, lstm, decoder, dropout)
};

}  // namespace tapir::inline v0::models
