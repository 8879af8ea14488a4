#include "seq2seq.h"

#include "../ops/activation.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/matmul.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/softmax.h"

namespace tapir::inline v0::models {

Seq2Seq::Seq2Seq(int64_t src_vocab, int64_t tgt_vocab, int64_t dim)
    : src_embed(src_vocab, dim), tgt_embed(tgt_vocab, dim),
      encoder(dim, dim, {.batch_first = true, .bidirectional = true}), decoder(dim, dim, {.batch_first = true}),
      bridge(2 * dim, dim), keys(2 * dim, dim, {.bias = false}), combine(3 * dim, dim), out(dim, tgt_vocab) {}

Seq2Seq::Encoded Seq2Seq::encode(const Tensor& src) {
  const auto [states, h] = encoder(src_embed(src));
  const Tensor both = cat({select(h, 0, 0), select(h, 0, 1)}, 1);  // the ends of both directions
  return {states, keys(states), unsqueeze(tanh(bridge(both)), 0)};
}
std::pair<Tensor, Tensor> Seq2Seq::decode(const Tensor& tgt, const Encoded& e, const Tensor& h) {
  const auto [d, next] = decoder(tgt_embed(tgt), h);
  const Tensor weights = softmax(matmul(d, transpose(e.keys, 1, 2)), -1);  // (B, T, S)
  return {out(tanh(combine(cat({d, matmul(weights, e.states)}, -1)))), next};
}
Tensor Seq2Seq::forward(const Tensor& src, const Tensor& tgt) {
  const Encoded e = encode(src);
  return decode(tgt, e, e.h).first;
}
Tensor Seq2Seq::translate(const Tensor& src, int64_t begin, int64_t end, int64_t max_length) {
  check(max_length > 0, "[Seq2Seq] expected max_length above 0, got {}", max_length);
  NoGrad guard;
  const Encoded e = encode(src);
  Tensor last = full({src.size(0), 1}, begin, {.dtype = kInt64, .device = src.device()}), h = e.h, ended;
  std::vector<Tensor> tokens;
  for (int64_t i = 0; i < max_length; ++i) {
    auto [logits, next] = decode(last, e, h);
    last = argmax(logits, -1), h = next;
    tokens.push_back(last);
    ended = ended.defined() ? logical_or(ended, eq(last, end)) : eq(last, end);
    if (all(ended).item<bool>()) break;
  }
  return cat(tokens, 1);
}

TAPIR_DEFINE_FIELDS(Seq2Seq)

}  // namespace tapir::inline v0::models
