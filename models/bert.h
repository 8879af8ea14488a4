#pragma once
#include <optional>

#include "../nn/dropout.h"
#include "../nn/linear.h"
#include "../nn/norm.h"
#include "../nn/sparse.h"

// BERT under Hugging Face's weight names. Devlin et al. 2018, arXiv 1810.04805.
namespace tapir::inline v0::models {

enum class ProblemType : uint8_t { Regression, SingleLabelClassification, MultiLabelClassification };
struct BertConfig {
  int64_t vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12;
  int64_t intermediate_size = 3072, max_position_embeddings = 512, type_vocab_size = 2, pad_token_id = 0;
  double dropout = 0.1, layer_norm_eps = 1e-12;  // hidden_dropout_prob and attention_probs_dropout_prob

  // BertForSequenceClassification
  int64_t num_labels = 2;
  std::optional<double> classifier_dropout = {};  // none: dropout
  std::optional<ProblemType> problem_type = {};   // none: by num_labels and the labels' dtype
};
struct BertInputs {
  Tensor attention_mask = {};  // (B, T): 0 where there is only padding
  Tensor token_type_ids = {};  // (B, T); none: zeros
};

/// Sum of the embeddings of words, positions and types, normalised.
struct BertEmbeddings : nn::Module {
  nn::Embedding word_embeddings, position_embeddings, token_type_embeddings;
  nn::LayerNorm layer_norm;
  nn::Dropout dropout;
  explicit BertEmbeddings(const BertConfig& config);
  Tensor forward(const Tensor& tokens, const Tensor& types);
  void tapir_rename(std::vector<nn::Field>& fields) override;
  TAPIR_DECLARE_FIELDS(word_embeddings, position_embeddings, token_type_embeddings, layer_norm, dropout)
};
struct BertSelfAttention : nn::Module {
  int64_t heads;
  nn::Linear query, key, value;
  nn::Dropout dropout;
  explicit BertSelfAttention(const BertConfig& config);
  Tensor forward(const Tensor& x, const Tensor& mask);
  TAPIR_DECLARE_FIELDS(heads, query, key, value, dropout)
};
/// norm(residual + dropout(dense(x)))
struct BertOutput : nn::Module {
  nn::Linear dense;
  nn::LayerNorm layer_norm;
  nn::Dropout dropout;
  BertOutput(int64_t in, const BertConfig& config);
  Tensor forward(const Tensor& x, const Tensor& residual);
  void tapir_rename(std::vector<nn::Field>& fields) override;
  TAPIR_DECLARE_FIELDS(dense, layer_norm, dropout)
};
struct BertAttention : nn::Module {
  BertSelfAttention self;
  BertOutput output;
  explicit BertAttention(const BertConfig& config) : self(config), output(config.hidden_size, config) {}
  Tensor forward(const Tensor& x, const Tensor& mask) { return output(self(x, mask), x); }
  TAPIR_DECLARE_FIELDS(self, output)
};
struct BertIntermediate : nn::Module {
  nn::Linear dense;
  explicit BertIntermediate(const BertConfig& config) : dense(config.hidden_size, config.intermediate_size) {}
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(dense)
};
struct BertLayer : nn::Module {
  BertAttention attention;
  BertIntermediate intermediate;
  BertOutput output;
  explicit BertLayer(const BertConfig& config)
      : attention(config), intermediate(config), output(config.intermediate_size, config) {}
  Tensor forward(const Tensor& x, const Tensor& mask);
  TAPIR_DECLARE_FIELDS(attention, intermediate, output)
};
struct BertEncoder : nn::Module {
  std::vector<BertLayer> layer;
  explicit BertEncoder(const BertConfig& config);
  Tensor forward(const Tensor& x, const Tensor& mask);
  TAPIR_DECLARE_FIELDS(layer)
};
/// tanh(dense(x)) of the first token.
struct BertPooler : nn::Module {
  nn::Linear dense;
  explicit BertPooler(const BertConfig& config) : dense(config.hidden_size, config.hidden_size) {}
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(dense)
};
/// Tokens (B, T) -> {hidden states (B, T, hidden_size), pooled (B, hidden_size)}.
struct BertModel : nn::Module {
  struct Output {
    Tensor last_hidden_state, pooler_output;
  };
  BertEmbeddings embeddings;
  BertEncoder encoder;
  BertPooler pooler;
  explicit BertModel(const BertConfig& config = {});
  Output forward(const Tensor& tokens, const BertInputs& inputs = {});
  Output operator()(const Tensor& tokens, const BertInputs& inputs) { return nn::detail::call(*this, tokens, inputs); }
  /// A checkpoint as it is published: of the model alone or of one with heads ("bert.", "cls."), norms also as gamma and beta.
  void load_pretrained(const StateDict& state);
  TAPIR_DECLARE_FIELDS(embeddings, encoder, pooler)
};

struct BertLabelledInputs {
  Tensor attention_mask = {}, token_type_ids = {};  // as in BertInputs
  /// Regression: numbers (B), or (B, num_labels). Single: classes (B), integers. Multi: 0 or 1, (B, num_labels), floating.
  Tensor labels = {};
};
/// Tokens (B, T) -> {loss, logits (B, num_labels)}; without labels the loss is undefined. It is the mean squared error, cross entropy or
/// binary cross entropy of config.problem_type; where that is none: a regression of one label, single for int64 and int32 labels, multi.
struct BertForSequenceClassification : nn::Module {
  struct Output {
    Tensor loss, logits;
  };
  BertConfig config;
  BertModel bert;
  nn::Dropout dropout;
  nn::Linear classifier;
  explicit BertForSequenceClassification(const BertConfig& config = {});
  Output forward(const Tensor& tokens, const BertLabelledInputs& inputs = {});
  Output operator()(const Tensor& tokens, const BertLabelledInputs& inputs) {
    return nn::detail::call(*this, tokens, inputs);
  }
  /// As BertModel's. Of a file without a classifier the rest alone, to be trained on.
  void load_pretrained(const StateDict& state);
  TAPIR_DECLARE_FIELDS(config, bert, dropout, classifier)
};

}  // namespace tapir::inline v0::models
