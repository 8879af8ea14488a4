// Recurrent networks, packed sequences, attention modules, caches and sampling: BI-115, BI-139 to BI-146.
#include <tapir/models/gpt2.h>

#include "refused.h"

TEST_CASE("BI-115 recurrent networks of no steps are refused, of no sequences are empty") {
  nn::LSTM lstm(3, 4);
  REFUSED(lstm(zeros({0, 2, 3})), "sequence length to be larger than 0", "(0, 2, 3)");
  const auto [y, state] = lstm(zeros({5, 0, 3}));
  CHECK(y.shape() == Shape{5, 0, 4});
  CHECK(state.c.shape() == Shape{1, 0, 4});
}

TEST_CASE("BI-139 recurrent networks name expected and given shapes") {
  REFUSED(nn::LSTM(3, 4, {.num_layers = 0}), "num_layers from 1", "0");
  REFUSED(nn::GRU(3, 0), "hidden_size from 1");
  REFUSED(nn::LSTM(3, 4, {.proj_size = 4}), "proj_size", "4");
  REFUSED(nn::GRU(3, 4, {.dropout = kNan}), "dropout", "nan");
  REFUSED(nn::RNN(3, 4, {.nonlinearity = "sin"}), "tanh or relu", "sin");
  nn::LSTM lstm(10, 20, {.num_layers = 2});
  REFUSED(lstm(zeros({5, 3, 11})), "input_size", "10", "11");
  REFUSED(lstm(zeros({5, 3, 10, 1})), "2D or 3D", "4D");
  REFUSED(lstm(zeros({5, 3, 10}), {zeros({2, 4, 20}), zeros({2, 3, 20})}), "hidden[0] size (2, 3, 20)", "(2, 4, 20)");
  REFUSED(lstm(zeros({5, 3, 10}), {zeros({2, 3, 20}), zeros({1, 3, 20})}), "hidden[1] size (2, 3, 20)", "(1, 3, 20)");
  REFUSED(lstm(zeros({5, 3, 10}), {zeros({2, 3, 20}), {}}), "both h and c");
  REFUSED(lstm(zeros({5, 3, 10}, {.dtype = kFloat64})), "float32", "float64");
  nn::LSTMCell cell(10, 20);
  REFUSED(cell(zeros({3, 9})), "10 features", "(3, 9)");
  REFUSED(cell(zeros({3, 10}), {zeros({3, 19}), zeros({3, 20})}), "hidden[0] size (3, 20)", "(3, 19)");
  REFUSED(cell(zeros({3, 10}), {zeros({2, 20}), zeros({2, 20})}), "(3, 20)", "(2, 20)");
}

TEST_CASE("BI-140 packed sequences name the position and value of a bad length") {
  const Tensor x = zeros({5, 2, 3});
  REFUSED(nn::pack_padded_sequence(x, {5, 0}), "0 at position 1");
  REFUSED(nn::pack_padded_sequence(x, {-1, 2}), "-1 at position 0");
  REFUSED(nn::pack_padded_sequence(x, {6, 2}), "[1, 5]", "6 at position 0");
  REFUSED(nn::pack_padded_sequence(x, {5, 4, 3}), "batch size 2", "3");
  REFUSED(nn::pack_padded_sequence(x, {3, 5}), "enforce_sorted", "5 after 3");
  nn::GRU gru(3, 4);
  nn::PackedSequence p = nn::pack_padded_sequence(x, {5, 3});
  p.batch_sizes = tensor({2, 2, 2, 1, 2});
  REFUSED(gru(p), "2 at step 4");
  REFUSED(nn::pad_packed_sequence(p), "2 at step 4");
  p.batch_sizes = tensor({2, 2, 2, 2, 1});
  REFUSED(gru(p), "9");
  REFUSED(nn::pad_packed_sequence(p), "9 rows");
  p.batch_sizes = tensor({2, 2, 2, 1, 1}), p.sorted_indices = tensor({0, 7});
  REFUSED(nn::pad_packed_sequence(p), "sorted_indices");
  REFUSED(nn::pad_packed_sequence(nn::pack_padded_sequence(x, {5, 3}), {.total_length = 4}), "5", "4");
}

TEST_CASE("BI-141, BI-142 attention modules name the numbers") {
  REFUSED(nn::MultiheadAttention(10, 3), "divisible", "10 and 3");
  nn::MultiheadAttention attention(8, 2);
  const Tensor q = zeros({4, 3, 8}), k = zeros({5, 3, 8});
  REFUSED(attention(zeros({4, 3, 7}), k, k), "8, 8 and 8 features", "(4, 3, 7)");
  REFUSED(attention(q, k, q), "as many keys as values", "(5, 3, 8)");
  REFUSED(attention(q, zeros({5, 2, 8}), zeros({5, 2, 8})), "one batch size");
  REFUSED(attention(q, k, k, {.attn_mask = zeros({4, 4})}), "(4, 5) or (6, 4, 5)", "(4, 4)");
  REFUSED(attention(q, k, k, {.attn_mask = zeros({4, 5}, {.dtype = kInt64})}), "bool or float", "int64");
  REFUSED(attention(q, k, k, {.key_padding_mask = zeros({5, 3})}), "(3, 5)", "(5, 3)");
}

TEST_CASE("BI-143 what sees nothing gives zeros and no NaN") {
  nn::MultiheadAttention attention(4, 2);
  Tensor x = randn({2, 1, 4}).requires_grad_();
  const Tensor hide = ones({1, 2}, {.dtype = kBool});
  for (const bool weights : {false, true}) {
    const auto [y, w] = attention(x, x, x, {.key_padding_mask = hide, .need_weights = weights});
    sum(y).backward();
    CHECK(y.detach().abs().max().item() == 0);  // the last projection's bias starts as 0
    CHECK(x.grad().abs().max().item() == 0);
    if (weights) CHECK(w.detach().abs().max().item() == 0);
  }
}

TEST_CASE("BI-145 a full cache and a text longer than the model's context are refused") {
  models::GPT2LMHeadModel gpt({.vocab_size = 11, .n_positions = 6, .n_embd = 8, .n_layer = 1, .n_head = 2});
  REFUSED(gpt(zeros({1, 7}, {.dtype = kInt64})), "6 positions", "7 tokens");
  REFUSED(gpt.new_cache(1, 7), "6 positions", "7");
  models::KVCache cache = gpt.new_cache(1, 4);
  gpt(zeros({1, 3}, {.dtype = kInt64}), cache);
  REFUSED(gpt(zeros({1, 2}, {.dtype = kInt64}), cache), "4 places", "2 more at position 3");
  CHECK(cache.length() == 3);
  gpt(zeros({1, 1}, {.dtype = kInt64}), cache);
  CHECK(cache.length() == 4);
  REFUSED(models::generate(gpt, {1, 2, 3}, {.max_new_tokens = 4}), "6 positions", "7");
  REFUSED(models::generate(gpt, {}, {}), "at least one token");
}

TEST_CASE("BI-146 sampling names a number out of range") {
  const Tensor logits = zeros({1, 5});
  for (const double t : {0.0, -1.0, kNan, kInf})
    REFUSED(models::next_token(logits, {.sample = true, .temperature = t}), "temperature above 0");
  REFUSED(models::next_token(logits, {.sample = true, .top_k = 0}), "top_k above 0", "0");
  for (const double p : {0.0, -0.5, 1.5, kNan})
    REFUSED(models::next_token(logits, {.sample = true, .top_p = p}), "top_p in (0, 1]");
  CHECK(models::next_token(logits, {.sample = true, .top_k = 99}).shape() == Shape{1});
}
