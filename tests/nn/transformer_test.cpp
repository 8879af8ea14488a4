#include <tapir/tapir.h>

#include <cmath>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

static bool near(const Tensor& a, const Tensor& b) { return allclose(a, b, {.rtol = 1e-4, .atol = 1e-6}); }

TEST_CASE("Attention's weights are probabilities, and not needed ones change nothing") {
  manual_seed(7);
  nn::MultiheadAttention attention(8, 2, {.batch_first = true});
  const Tensor x = randn({3, 5, 8});
  const auto [y, weights] = attention(x, x, x);
  CHECK(weights.shape() == Shape{3, 5, 5});
  CHECK(near(weights.sum(-1), ones({3, 5})));
  const auto [same, none] = attention(x, x, x, {.need_weights = false});
  CHECK_FALSE(none.defined());
  CHECK(near(same, y));
  CHECK(near(attention(x, x.clone(), x.clone(), {.need_weights = false}).output, y));
  CHECK(attention(x, x, x, {.average_attn_weights = false}).weights.shape() == Shape{3, 2, 5, 5});
  const Tensor causal = triu(ones({5, 5}, {.dtype = kBool}), 1);
  const Tensor masked = attention(x, x, x, {.attn_mask = causal}).output;
  CHECK(near(attention(x, x, x, {.need_weights = false, .is_causal = true}).output, masked));
  CHECK(near(attention(x, x, x, {.is_causal = true}).output, masked));
  CHECK(near(attention(x, x, x, {.attn_mask = nn::Transformer::generate_square_subsequent_mask(5)}).output, masked));
  CHECK(near(attention(x.select(0, 1), x.select(0, 1), x.select(0, 1)).output, y.select(0, 1)));
}

TEST_CASE("Attention's parameters have PyTorch's names") {
  const auto names = [](nn::Module& m) {
    std::string all;
    for (auto& [name, p] : m.named_parameters()) all += name + " ";
    return all;
  };
  nn::MultiheadAttention plain(8, 2), split(8, 2, {.bias = false, .kdim = 6}), added(8, 2, {.add_bias_kv = true});
  CHECK(names(plain) == "in_proj_weight in_proj_bias out_proj.weight out_proj.bias ");
  CHECK(names(split) == "q_proj_weight k_proj_weight v_proj_weight out_proj.weight ");
  CHECK(names(added) == "in_proj_weight in_proj_bias bias_k bias_v out_proj.weight out_proj.bias ");
  CHECK(plain.in_proj_bias.abs().max().item() == 0);
}

TEST_CASE("The layers of a stack are copies of one, and its own") {
  nn::TransformerEncoder encoder(nn::TransformerEncoderLayer(8, 2, {.dim_feedforward = 12, .dropout = 0}), 2);
  const StateDict state = encoder.state_dict();
  const Tensor &a = state.at("layers.0.linear1.weight"), &b = state.at("layers.1.linear1.weight");
  CHECK(a.to_vector<float>() == b.to_vector<float>());
  CHECK_FALSE(a.is_same(b));
  CHECK(encoder.named_parameters()[0].first == "layers.0.self_attn.in_proj_weight");
  CHECK(error_of([] { nn::TransformerEncoderLayer(8, 2, {.activation = "sin"}); }).find("relu/gelu, not sin") !=
        std::string::npos);
}

TEST_CASE("Padding does not reach what is not padding") {
  manual_seed(8);
  nn::Transformer net(
      8, 2,
      {.num_encoder_layers = 1, .num_decoder_layers = 2, .dim_feedforward = 12, .dropout = 0, .batch_first = true});
  const Tensor src = randn({1, 4, 8}), tgt = randn({1, 3, 8}),
               mask = nn::Transformer::generate_square_subsequent_mask(3);
  const Tensor want = net(src, tgt, {.tgt_mask = mask});
  const Tensor padded = cat({src, randn({1, 2, 8})}, 1), hide = tensor({{0, 0, 0, 0, 1, 1}}).to(kBool);
  CHECK(
      near(net(padded, tgt, {.tgt_mask = mask, .src_key_padding_mask = hide, .memory_key_padding_mask = hide}), want));
  CHECK(near(net(src, tgt, {.tgt_mask = mask, .tgt_is_causal = true}), want));
}

TEST_CASE("a refused attention draws no random numbers") {
  const auto draws = [](auto&& make) {
    manual_seed(3);
    CHECK_THROWS_AS(make(), ValueError);
    return default_generator().offset();
  };
  CHECK(draws([] { nn::MultiheadAttention(4, 3); }) == 0);
  CHECK(draws([] { nn::MultiheadAttention(4, 0); }) == 0);
  CHECK(draws([] { nn::MultiheadAttention(4, 2, {.dropout = 2}); }) == 0);
  CHECK(draws([] { nn::MultiheadAttention(4, 2, {.kdim = -1}); }) == 0);
  CHECK(draws([] { nn::Transformer(8, 3); }) == 0);
}
