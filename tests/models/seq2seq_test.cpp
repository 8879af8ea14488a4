#include <tapir/models/lstm_lm.h>
#include <tapir/models/seq2seq.h>

#include "filled.h"
using namespace tapir;

TEST_CASE("A translation, token by token, is what the scores of its own text say") {
  manual_seed(6);
  models::Seq2Seq model(9, 8, 6);
  const Tensor src = tensor({{1, 4, 2}, {5, 8, 3}}), got = model.translate(src, 0, 99, 5);
  CHECK(got.shape() == Shape{2, 5});
  const Tensor tgt = cat({zeros({2, 1}, {.dtype = kInt64}), got.narrow(1, 0, 4)}, 1);
  CHECK(model(src, tgt).argmax(-1).to_vector<int64_t>() == got.to_vector<int64_t>());
  CHECK(model.translate(src.narrow(0, 0, 1), 0, got[{0, 0}].item<int64_t>(), 5).shape() == Shape{1, 1});
}

TEST_CASE("An LSTM language model goes on from its state") {
  models::LSTMLanguageModel model(9, 6, {.tied = true});
  CHECK(model.decoder.weight.is_same(model.embed.weight));
  const Tensor text = tensor({{1, 4, 2, 7}}), whole = model(text);
  const auto [front, state] = model.forward(text.narrow(1, 0, 2), {});
  CHECK(allclose(cat({front, model.forward(text.narrow(1, 2, 2), state).logits}, 1), whole,
                 {.rtol = 1e-4, .atol = 1e-6}));
}
