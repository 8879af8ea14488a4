#include <tapir/models/gpt2.h>

#include "filled.h"
using namespace tapir;

namespace {
models::GPT2LMHeadModel small() {
  models::GPT2LMHeadModel gpt({.vocab_size = 11, .n_positions = 8, .n_embd = 8, .n_layer = 2, .n_head = 2});
  fill_weights(gpt);
  return gpt;
}
const Tensor kTokens = tensor({{1, 4, 2, 9, 0}});
}  // namespace

TEST_CASE("GPT-2 gives the scores of its reference") {
  models::GPT2LMHeadModel gpt = small();
  const Tensor y = gpt(kTokens);
  check_values(y.select(0, 0).select(0, 4), {1.17340537, -0.92047553, 0.63727548, -0.33311842, 0.01800668, 0.29769730,
                                             -0.60361131, 0.88967541, -1.14648215, 1.36558647, -1.53978287});
  CHECK(std::fabs(y.sum().item() + 0.87429398) < 1e-6);
}

TEST_CASE("GPT-2's loss is the cross entropy of its scores, in the gradients too, and compiled") {
  const Tensor next = tensor({{4, 2, 9, 0, 10}});
  models::GPT2LMHeadModel a = small(), b = small();
  a.eval(), b.eval();
  const Tensor whole = cross_entropy(flatten(a(kTokens), 0, 1), flatten(next));
  whole.backward();
  auto loss = compile([&](const Tensor& tokens, const Tensor& targets) {
    for (auto& [name, p] : b.named_parameters()) p.set_grad({});
    const Tensor y = b.loss(tokens, targets);
    y.backward();
    return y.detach();
  });
  for (int i = 0; i < 4; ++i) CHECK(std::fabs(loss(kTokens, next).item() - whole.item()) < 1e-6);
  const auto left = a.named_parameters(), right = b.named_parameters();
  for (size_t i = 0; i < left.size(); ++i)
    CHECK(allclose(left[i].second.grad(), right[i].second.grad(), {.rtol = 1e-5, .atol = 1e-6}));
}

TEST_CASE("GPT-2's names are its checkpoints', and the last layer is tied") {
  models::GPT2LMHeadModel gpt = small();
  const auto names = gpt.named_parameters();
  CHECK(names.size() == 28);
  CHECK(names[4].first == "transformer.h.0.attn.c_attn.weight");
  CHECK(names[4].second.shape() == Shape{8, 24});
  CHECK(gpt.state_dict().find("lm_head.weight") != nullptr);
  CHECK(gpt.lm_head.weight.is_same(gpt.transformer.wte.weight));
  models::GPT2LMHeadModel copy = gpt.clone();
  CHECK(copy.lm_head.weight.is_same(copy.transformer.wte.weight));
}

TEST_CASE("Published forms of GPT-2's checkpoints load") {
  models::GPT2LMHeadModel gpt = small(),
                          other({.vocab_size = 11, .n_positions = 8, .n_embd = 8, .n_layer = 2, .n_head = 2});
  StateDict state = gpt.state_dict().strip("transformer.");  // no lm_head
  state.set("h.0.attn.bias", ones({1, 1, 8, 8}));
  other.to(kFloat64), other.eval();
  other.load_pretrained(state);
  CHECK(equal(other(kTokens), gpt(kTokens)));
  state.set("h.9.ln_1.weight", ones(8));
  CHECK_THROWS_AS(other.load_pretrained(state), ValueError);
}

TEST_CASE("Sizes of GPT-2") {
  const auto count = [](const char* name) {
    const models::GPT2Config c = models::gpt2_config(name);
    const int64_t d = c.n_embd;
    return (c.vocab_size + c.n_positions) * d + c.n_layer * (12 * d * d + 13 * d) + 2 * d;
  };
  CHECK(count("gpt2") == 124439808);
  CHECK(count("gpt2-medium") == 354823168);
  CHECK(count("gpt2-large") == 774030080);
  CHECK(count("gpt2-xl") == 1557611200);
  CHECK_THROWS_AS(models::gpt2_config("gpt3"), ValueError);
}

TEST_CASE("Tokens fed to GPT-2 through a cache give the scores of the whole text") {
  models::GPT2LMHeadModel gpt = small();
  NoGrad guard;
  const Tensor whole = gpt(kTokens);
  for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{5}, {1, 1, 1, 1, 1}, {2, 3}, {3, 1, 1}}) {
    models::KVCache cache = gpt.new_cache(1, 8);
    std::vector<Tensor> out;
    for (int64_t n : pieces) out.push_back(gpt(kTokens.narrow(1, cache.length(), n), cache));
    CHECK(allclose(cat(out, 1), whole));
  }
}
