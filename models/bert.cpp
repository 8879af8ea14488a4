#include "bert.h"

#include "../core/checks.h"
#include "../nn/init.h"
#include "../nn/layer_count.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/attention.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/loss.h"
#include "../ops/pointwise.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"

namespace tapir::inline v0::models {

/// The checkpoints' name of what C++ calls layer_norm.
static void rename_norm(std::vector<nn::Field>& fields) {
  for (nn::Field& f : fields)
    if (f.name == "layer_norm") f.name = "LayerNorm";
}

BertEmbeddings::BertEmbeddings(const BertConfig& c)
    : word_embeddings(c.vocab_size, c.hidden_size, {.padding_idx = c.pad_token_id}),
      position_embeddings(c.max_position_embeddings, c.hidden_size),
      token_type_embeddings(c.type_vocab_size, c.hidden_size), layer_norm(c.hidden_size, {.eps = c.layer_norm_eps}),
      dropout(c.dropout) {}
Tensor BertEmbeddings::forward(const Tensor& tokens, const Tensor& types) {
  const int64_t steps = tokens.size(1), room = position_embeddings.num_embeddings;
  check(steps <= room, "[BertEmbeddings] expected at most {} positions, got {} tokens", room, steps);
  const Tensor of_types = types.defined() ? token_type_embeddings(types) : select(token_type_embeddings.weight, 0, 0);
  const Tensor x = add(word_embeddings(tokens), of_types);
  return dropout(layer_norm(add(x, narrow(position_embeddings.weight, 0, 0, steps))));
}
void BertEmbeddings::tapir_rename(std::vector<nn::Field>& fields) { rename_norm(fields); }

BertSelfAttention::BertSelfAttention(const BertConfig& c)
    : heads(c.num_attention_heads), query(c.hidden_size, c.hidden_size), key(c.hidden_size, c.hidden_size),
      value(c.hidden_size, c.hidden_size), dropout(c.dropout) {
  check(heads > 0 && c.hidden_size % heads == 0,
        "[BertSelfAttention] expected hidden_size divisible by num_attention_heads, got {} and {}", c.hidden_size,
        heads);
}
Tensor BertSelfAttention::forward(const Tensor& x, const Tensor& mask) {
  const int64_t batch = x.size(0), steps = x.size(1), width = x.size(2);
  const auto split = [&](const Tensor& y) {  // (B, H, T, D)
    return transpose(reshape(y, {batch, steps, heads, width / heads}), 1, 2);
  };
  const Tensor y = scaled_dot_product_attention(split(query(x)), split(key(x)), split(value(x)),
                                                {.attn_mask = mask, .dropout_p = training ? dropout.p : 0});
  return reshape(transpose(y, 1, 2), {batch, steps, width});
}

BertOutput::BertOutput(int64_t in, const BertConfig& c)
    : dense(in, c.hidden_size), layer_norm(c.hidden_size, {.eps = c.layer_norm_eps}), dropout(c.dropout) {}
Tensor BertOutput::forward(const Tensor& x, const Tensor& residual) {
  return layer_norm(add(dropout(dense(x)), residual));
}
void BertOutput::tapir_rename(std::vector<nn::Field>& fields) { rename_norm(fields); }

Tensor BertIntermediate::forward(const Tensor& x) { return gelu(dense(x)); }
Tensor BertLayer::forward(const Tensor& x, const Tensor& mask) {
  const Tensor y = attention(x, mask);
  return output(intermediate(y), y);
}
BertEncoder::BertEncoder(const BertConfig& c) {
  nn::check_layers("BertEncoder", "num_hidden_layers", c.num_hidden_layers);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) layer.emplace_back(c);
}
Tensor BertEncoder::forward(const Tensor& x, const Tensor& mask) {
  Tensor y = x;
  for (BertLayer& l : layer) y = l(y, mask);
  return y;
}
Tensor BertPooler::forward(const Tensor& x) { return tanh(dense(select(x, 1, 0))); }

BertModel::BertModel(const BertConfig& c) : embeddings(c), encoder(c), pooler(c) {
  NoGrad guard;
  for (auto& [name, p] : named_parameters())
    if (p.dim() == 2) nn::init::normal_(p, 0, 0.02);
    else if (name.ends_with("bias")) p.zero_();
  select(embeddings.word_embeddings.weight, 0, c.pad_token_id).zero_();
}
BertModel::Output BertModel::forward(const Tensor& tokens, const BertInputs& in) {
  check(tokens.dim() == 2 && tokens.size(1) > 0, "[BertModel] expected tokens (B, T), got {}", tokens);
  Tensor mask = in.attention_mask;
  if (mask.defined()) {
    check(mask.shape() == tokens.shape(), "[BertModel] expected an attention_mask of shape {}, got {}", tokens.shape(),
          mask);
    mask = view(ne(mask, 0), {tokens.size(0), 1, 1, tokens.size(1)});
  }
  const Tensor x = encoder(embeddings(tokens, in.token_type_ids), mask);
  return {x, pooler(x)};
}
void BertModel::load_pretrained(const StateDict& state) {
  const StateDict inner = state.strip("bert.");
  StateDict named;
  for (auto& [given, x] : inner.empty() ? state : inner) {
    std::string name = given;
    if (name.ends_with(".gamma")) name.replace(name.size() - 5, 5, "weight");
    if (name.ends_with(".beta")) name.replace(name.size() - 4, 4, "bias");
    if (!name.ends_with("position_ids")) named.append(name, x);
  }
  load_state_dict(named);
}

BertForSequenceClassification::BertForSequenceClassification(const BertConfig& c)
    : config(c), bert(c), dropout(c.classifier_dropout.value_or(c.dropout)), classifier(c.hidden_size, c.num_labels) {
  check(c.num_labels > 0, "[BertForSequenceClassification] expected num_labels above 0, got {}", c.num_labels);
  nn::init::normal_(classifier.weight, 0, 0.02), nn::init::zeros_(classifier.bias);
}
static Tensor label_loss(const BertConfig& c, const Tensor& logits, const Tensor& labels) {
  const bool classes = labels.dtype() == kInt64 || labels.dtype() == kInt32;
  const ProblemType type = c.problem_type.value_or(c.num_labels == 1 ? ProblemType::Regression
                                                   : classes         ? ProblemType::SingleLabelClassification
                                                                     : ProblemType::MultiLabelClassification);
  const int64_t batch = logits.size(0);
  const bool single = type == ProblemType::SingleLabelClassification;
  const bool flat = single || (type == ProblemType::Regression && c.num_labels == 1);  // a label for each text
  const Shape shape = flat ? Shape(batch) : logits.shape();
  check(labels.shape() == shape || (flat && labels.shape() == Shape{batch, 1}),
        "[BertForSequenceClassification] expected labels of shape {}, got {}", shape, labels);
  const Tensor y = reshape(labels, shape);
  if (single) return cross_entropy(logits, y);
  if (type == ProblemType::Regression) return mse_loss(reshape(logits, shape), y);
  return binary_cross_entropy_with_logits(logits, y);
}
BertForSequenceClassification::Output BertForSequenceClassification::forward(const Tensor& tokens,
                                                                             const BertLabelledInputs& in) {
  const Tensor pooled = bert(tokens, {in.attention_mask, in.token_type_ids}).pooler_output;
  const Tensor logits = classifier(dropout(pooled));
  return {in.labels.defined() ? label_loss(config, logits, in.labels) : Tensor(), logits};
}
void BertForSequenceClassification::load_pretrained(const StateDict& state) {
  StateDict encoder;
  for (auto& [name, x] : state)
    if (!name.starts_with("classifier.")) encoder.append(name, x);
  bert.load_pretrained(encoder);
  if (const StateDict head = state.strip("classifier."); !head.empty()) classifier.load_state_dict(head);
}

TAPIR_DEFINE_FIELDS(BertEmbeddings, BertSelfAttention, BertOutput, BertAttention, BertIntermediate, BertLayer,
                    BertEncoder, BertPooler, BertModel, BertForSequenceClassification)

}  // namespace tapir::inline v0::models
