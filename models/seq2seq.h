#pragma once
#include "../nn/linear.h"
#include "../nn/rnn.h"
#include "../nn/sparse.h"

// Translation by recurrent networks with attention. Bahdanau et al. 2014, arXiv 1409.0473; the scores are those of Luong et al. 2015,
// arXiv 1508.04025.
namespace tapir::inline v0::models {

/// src (B, S), tgt (B, T) -> scores (B, T, tgt_vocab) of the tokens after those of tgt.
struct Seq2Seq : nn::Module {
  nn::Embedding src_embed, tgt_embed;
  nn::GRU encoder, decoder;
  nn::Linear bridge, keys, combine, out;
  Seq2Seq(int64_t src_vocab, int64_t tgt_vocab, int64_t dim);
  Tensor forward(const Tensor& src, const Tensor& tgt);
  /// The most likely tokens after `begin`, one at a time, until all sequences have had `end`: (B, at most max_length).
  Tensor translate(const Tensor& src, int64_t begin, int64_t end, int64_t max_length);
  TAPIR_DECLARE_FIELDS(src_embed, tgt_embed, encoder, decoder, bridge, keys, combine, out)

 private:
  struct Encoded {
    Tensor states, keys, h;
  };  // (B, S, 2 dim), (B, S, dim), (1, B, dim)
  Encoded encode(const Tensor& src);
  std::pair<Tensor, Tensor> decode(const Tensor& tgt, const Encoded& encoded, const Tensor& h);
};

}  // namespace tapir::inline v0::models
