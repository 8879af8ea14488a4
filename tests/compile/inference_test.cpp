// Forward alone: decoding with a cache whose length is on the device.
#include <tapir/models/generate.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/llama.h>
#include <tapir/quant/quantize.h>

#include "../core/messages.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

models::GPT2LMHeadModel gpt(int64_t positions = 128) {
  manual_seed(2);
  models::GPT2LMHeadModel net(
      {.vocab_size = 65, .n_positions = positions, .n_embd = 64, .n_layer = 2, .n_head = 4, .dropout = 0});
  net.eval();
  return net;
}
models::LlamaForCausalLM llama() {
  manual_seed(3);
  models::LlamaForCausalLM net({.vocab_size = 31,
                                .hidden_size = 32,
                                .intermediate_size = 48,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 4,
                                .num_key_value_heads = 2,
                                .max_position_embeddings = 128});
  net.eval();
  return net;
}

/// 100 tokens by a compiled step and by eager calls, from the same prompt: the same scores, by one program.
template <class Net> void check_decoding(Net& net, int64_t batch) {
  NoGrad guard;
  auto cache = net.new_cache(batch, 120), other = net.new_cache(batch, 120);
  const Tensor prompt = remainder(arange(batch * 7) * 5, 11).reshape({batch, 7});
  auto step = compile([&](const Tensor& token) {
    NoGrad inside;
    const Tensor scores = net(token, cache).select(1, -1);
    return std::pair(argmax(scores, 1, {.keepdim = true}), scores);
  });
  Tensor token = argmax(net(prompt, cache).select(1, -1), 1, {.keepdim = true}), text = cat({prompt, token}, 1);
  net(prompt, other);
  for (int i = 0; i < 100; ++i) {
    const Tensor expected = net(token, other).select(1, -1);
    const auto [next, scores] = step(token);
    INFO("token " << i);
    REQUIRE(same_values(scores, expected));
    REQUIRE(equal(next, argmax(expected, 1, {.keepdim = true})));
    token = next, text = cat({text, token}, 1);
  }
  INFO(step.explain().substr(0, 4000));
  CHECK(step.programs() == 1);
  CHECK(cache.length() == 107);
  CHECK(other.length() == 107);
  // Each token was chosen by what the whole text before it says.
  const Tensor whole = net(text.narrow(1, 0, 107));
  CHECK(equal(argmax(whole, 2).narrow(1, 6, 101), text.narrow(1, 7, 101)));
}

}  // namespace

TEST_CASE("decoding is one program for all positions") {
  auto a = gpt();
  check_decoding(a, 1);
  check_decoding(a, 3);
  auto b = llama();
  check_decoding(b, 2);
}

TEST_CASE("decoding in bfloat16 and with quantized weights is one program") {
  auto half = gpt();
  half.to(kBFloat16);
  auto net = gpt();
  for (int64_t bits : {8, 4}) {
    auto q = quant::quantize_weights(net, {.bits = bits, .group = 32});
    NoGrad guard;
    models::KVCache cache = q.new_cache(1, 64), other = q.new_cache(1, 64);
    auto step = compile([&](const Tensor& token) { return q(token, cache); });
    for (int i = 0; i < 40; ++i) {
      const Tensor token = full({1, 1}, i * 7 % 65, {.dtype = kInt64});
      REQUIRE(same_values(step(token), q(token, other)));
    }
    CHECK(step.programs() == 1);
  }
  NoGrad guard;
  models::KVCache cache = half.new_cache(1, 64), other = half.new_cache(1, 64);
  auto step = compile([&](const Tensor& token) { return half(token, cache); });
  for (int i = 0; i < 40; ++i) {
    const Tensor token = full({1, 1}, i * 7 % 65, {.dtype = kInt64});
    REQUIRE(same_values(step(token), half(token, other), 2e-2));
  }
  CHECK(step.programs() == 1);
}

TEST_CASE("a range of one number becomes that number") {
  NoGrad guard;
  const auto calls = [](bool constants) {
    auto step = compile([](const Tensor& x) { return add(arange(5, 6), x); }, {.verify = 0, .constants = constants});
    for (int64_t i = 0; i < 6; ++i) CHECK(step(full({1}, i, {.dtype = kInt64})).item<int64_t>() == i + 5);
    return step.stats().at(0).calls;
  };
  CHECK(calls(true) == 1);
  CHECK(calls(false) == 2);
}

TEST_CASE("a full cache is an error of a replay, and the length stays") {
  auto net = gpt();
  NoGrad guard;
  models::KVCache cache = net.new_cache(1, 9);
  auto step = compile([&](const Tensor& token) { return net(token, cache); });
  const Tensor token = full({1, 1}, 4, {.dtype = kInt64});
  std::vector<Tensor> scores;
  for (int i = 0; i < 9; ++i) scores.push_back(step(token));
  CHECK(step.programs() == 1);
  CHECK_THROWS_AS(step(token), ValueError);
  CHECK_THROWS_AS(step(token), ValueError);
  CHECK(cache.length() == 9);
  CHECK_THROWS_AS(net(token, cache), ValueError);
  cache.clear();
  CHECK(cache.length() == 0);
  for (int i = 0; i < 9; ++i) CHECK(same_values(step(token), scores[size_t(i)]));
  CHECK(step.programs() == 1);
  CHECK(cache.length() == 9);
}

TEST_CASE("a cache bigger than the model's context is an error beyond it") {
  auto net = gpt(6);
  NoGrad guard;
  models::KVCache cache(2, 1, 4, 32, 16);
  auto step = compile([&](const Tensor& token) { return net(token, cache); });
  const Tensor token = full({1, 1}, 4, {.dtype = kInt64});
  for (int i = 0; i < 6; ++i) step(token);
  CHECK_THROWS_AS(step(token), ValueError);
  CHECK(cache.length() == 6);
  CHECK_THROWS_AS(net(token, cache), ValueError);
}

TEST_CASE("eager calls, replays, prompts and clear() on one cache") {
  auto net = gpt();
  NoGrad guard;
  models::KVCache cache = net.new_cache(1, 64), other = net.new_cache(1, 64);
  auto step = compile([&](const Tensor& token) { return net(token, cache).select(1, -1); });
  const auto tokens = [](int64_t n, int64_t from) { return remainder(arange(n) * 3 + from, 65).unsqueeze(0); };
  for (int round = 0; round < 3; ++round) {
    for (const int64_t n : {5, 1, 1, 1, 1, 3, 1, 1, 2, 1}) {
      const Tensor piece = tokens(n, n + round);
      const Tensor got = n == 1 ? step(piece) : net(piece, cache).select(1, -1);
      REQUIRE(same_values(got, net(piece, other).select(1, -1)));
      if (n == 2) CHECK(cache.length() == other.length());
    }
    models::KVCache copy = cache;  // its length goes its own way
    net(tokens(2, 0), copy);
    CHECK(copy.length() == cache.length() + 2);
    cache.clear(), other.clear();
  }
  CHECK(step.programs() == 1);
}

TEST_CASE("a step that appends by views is not replayed, and right") {
  NoGrad guard;
  models::KVCache cache(1, 1, 1, 32, 2);
  auto step = compile([&](const Tensor& x) {
    const auto [k, v] = cache.append(0, x, x);
    cache.advance(1);
    return sum(k) + sum(v);
  });
  for (int i = 0; i < 20; ++i) CHECK(step(full({1, 1, 1, 2}, 1)).item() == 4 * (i + 1));
  CHECK_FALSE(cache.replayable());
}

TEST_CASE("generate: compiled and eager texts are the same") {
  auto net = gpt();
  const std::vector<int64_t> prompt = {1, 9, 4};
  const auto text = [&](models::GenerateOptions o, bool compiled) {
    manual_seed(11);
    o.compile = compiled;
    return models::generate(net, prompt, o);
  };
  for (const models::SamplingOptions& s : {models::SamplingOptions{},
                                           {.sample = true},
                                           {.sample = true, .temperature = 0.7, .top_k = 5},
                                           {.sample = true, .top_p = 0.8}}) {
    const auto eager = text({.max_new_tokens = 40, .sampling = s}, false);
    CHECK(eager.size() == 40);
    CHECK(text({.max_new_tokens = 40, .sampling = s}, true) == eager);
    CHECK(text({.max_new_tokens = 40, .sampling = s, .read_every = 7}, true) == eager);
    CHECK(text({.max_new_tokens = 40, .sampling = s, .read_every = 64}, false) == eager);
    const auto first = std::find(eager.begin(), eager.end(), eager[20]);
    const std::vector<int64_t> ended(eager.begin(), first + 1);
    for (const int64_t every : {0, 5})
      CHECK(text({.max_new_tokens = 40, .sampling = s, .eos = eager[20], .read_every = every}, true) == ended);
  }
  std::vector<int64_t> seen;
  models::generate(net, prompt, {.max_new_tokens = 30, .read_every = 4}, [&](int64_t token) {
    seen.push_back(token);
    return seen.size() < 10;
  });
  CHECK(seen.size() == 10);
  CHECK_THROWS_AS(models::generate(net, prompt, {.read_every = -1}), ValueError);
  auto poison = [&, n = 0](int64_t) mutable {
    NoGrad guard;
    if (++n == 10) net.lm_head.weight.fill_(std::numeric_limits<double>::quiet_NaN());
    return true;
  };
  CHECK_THROWS_AS(models::generate(net, prompt, {.max_new_tokens = 30, .sampling = {.sample = true}}, poison),
                  ValueError);
}

TEST_CASE("generate runs steps as they are where hooks look on") {
  auto net = gpt();
  int64_t calls = 0;
  net.transformer.h[0].mlp.register_forward_hook([&](nn::Module&, auto&, auto&) { ++calls; });
  CHECK(models::generate(net, {1, 2}, {.max_new_tokens = 20}).size() == 20);
  CHECK(calls == 20);
}

namespace {
/// Asks its cache where it is: what it does may depend on that.
struct Asking : nn::Module {
  Parameter scores = randn({7, 7});
  models::KVCache new_cache(int64_t batch, int64_t capacity) { return {1, batch, 1, capacity, 1}; }
  Tensor forward(const Tensor& tokens, models::KVCache& cache) {
    const bool late = cache.length() >= 10;
    cache.advance(tokens.size(1));
    const Tensor y = index_select(scores, 0, tokens.reshape(-1)).unsqueeze(0);
    return late ? zeros_like(y) : y;
  }
  TAPIR_FIELDS(scores)
};
}  // namespace

TEST_CASE("generate runs steps as they are where the model asks for the length") {
  Asking net;
  const auto text = models::generate(net, {1}, {.max_new_tokens = 30});
  CHECK(text == models::generate(net, {1}, {.max_new_tokens = 30, .compile = false}));
  CHECK(text[29] == 0);
}

TEST_CASE("a step that refuses a token leaves the length as it was") {
  auto net = gpt();
  NoGrad guard;
  models::KVCache cache = net.new_cache(1, 32), other = net.new_cache(1, 32);
  auto step = compile([&](const Tensor& token) { return net(token, cache); });
  const auto token = [](int64_t i) { return full({1, 1}, i, {.dtype = kInt64}); };
  for (int i = 0; i < 5; ++i) step(token(i)), net(token(i), other);
  REQUIRE(step.programs() == 1);
  CHECK_THROWS_AS(step(token(65)), ValueError);
  CHECK(cache.length() == 5);
  CHECK(same_values(step(token(7)), net(token(7), other)));
}

TEST_CASE("a cache gives the same gradients and masks compiled as eager, whatever lies in its memory") {
  const Tensor tokens = remainder(arange(8) * 5, 29).reshape({1, 8});
  for (const double dropout : {0.0, 0.3}) {
    std::vector<Tensor> gradients[2];
    for (const bool compiled : {false, true}) {
      manual_seed(4);
      models::GPT2LMHeadModel net(
          {.vocab_size = 65, .n_positions = 64, .n_embd = 32, .n_layer = 2, .n_head = 4, .dropout = dropout});
      auto cache = net.new_cache(1, 20);
      const auto f = [&](const Tensor& x) {
        net.zero_grad();
        cache.clear();
        const Tensor loss = mean(square(net(x, cache)));
        loss.backward();
        return loss.detach();
      };
      auto fast = compile(f);
      for (int i = 0; i < 5; ++i) compiled ? fast(tokens) : f(tokens);
      CHECK(fast.programs() == (compiled ? 1 : 0));
      for (const Tensor& p : net.parameters()) gradients[compiled].push_back(p.grad().clone());
    }
    for (size_t i = 0; i < gradients[0].size(); ++i) CHECK(same_values(gradients[0][i], gradients[1][i]));
  }
  auto net = gpt();
  models::KVCache cache = net.new_cache(1, 20);
  for (int64_t i = 0; i < 2; ++i) {
    cache.begin(20);
    const Tensor nothing = full({1, 4, 20, 16}, NAN);
    cache.attend(i, nothing, nothing, nothing);
  }
  cache.clear();
  {
    NoGrad guard;
    net(tokens, cache);
  }
  mean(square(net(tokens, cache))).backward();
  for (const Tensor& p : net.parameters())
    if (p.grad().defined()) CHECK(all(isfinite(p.grad())).item<bool>());
}

TEST_CASE("a cache is advanced by as many places as it gave") {
  auto net = gpt();
  models::KVCache cache = net.new_cache(1, 20);
  cache.begin(3);
  CHECK_THROWS_AS(cache.advance(2), ValueError);
  cache.clear();
  cache.advance(2);
  CHECK(cache.length() == 2);
  CHECK(equal(cache.begin(1), tensor({int64_t(2)})));
  cache.clear();
  for (const int64_t count : {-1, 0, 21}) {
    INFO(count);
    CHECK_THROWS_AS(cache.advance(count), ValueError);
    CHECK(cache.length() == 0);
  }
  cache.advance(20);
  CHECK_THROWS_AS(cache.advance(1), ValueError);
  CHECK(cache.length() == 20);
}

TEST_CASE("attention from a cache without begin() says so") {
  models::KVCache cache(1, 1, 2, 4, 8);
  const Tensor x = ones({1, 2, 1, 8});
  const auto attend = [&] { return message_of<ValueError>([&] { cache.attend(0, x, x, x); }); };
  CHECK(contains(attend(), "[KVCache] expected begin() before, for 1 places, got 0"));
  cache.begin(2);
  CHECK(contains(attend(), "[KVCache] expected begin() before, for 1 places, got 2"));
}

namespace {
struct Block : nn::Module {
  nn::Conv2d first{3, 8, 3, {.padding = 1, .bias = false}}, second{8, 8, 3, {.groups = 2}};
  nn::BatchNorm2d a{8}, b{8, {.affine = false}};
  nn::Linear head{8, 4};
  Block() {
    NoGrad guard;
    for (nn::BatchNorm2d* norm : {&a, &b}) norm->running_mean.normal_(), norm->running_var.uniform_(0.3, 2);
    a.weight.normal_(), a.bias.normal_();
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = relu(a(first(x)));
    return head(mean(relu(b(second(y))), {2, 3}));
  }
  TAPIR_FIELDS(first, second, a, b, head)
};
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_CASE("batch norms in evaluation become parts of convolutions, and follow what is written to them") {
  manual_seed(4);
  for (const bool last : {false, true}) {
    Block net;
    net.eval();
    if (last) net.to(kChannelsLast);
    auto forward = compile([&](const Tensor& x) {
      InferenceMode guard;
      return net(x);
    });
    const auto check = [&] {
      Tensor x = randn({2, 3, 9, 8});
      if (last) x = x.contiguous(kChannelsLast);
      InferenceMode guard;
      CHECK(same_values(forward(x), net(x), 1e-4));
    };
    for (int i = 0; i < 4; ++i) check();
    INFO(forward.explain());
    CHECK(forward.programs() == 1);
    CHECK_FALSE(has(forward.explain(), "norm(Batch)"));
    NoGrad guard;
    const std::vector<Tensor> sources = {net.first.weight,   net.second.bias,   net.a.weight,      net.a.bias,
                                         net.a.running_mean, net.a.running_var, net.b.running_var, net.second.weight};
    for (Tensor t : sources) {
      t.mul_(1.5), check(), check();
      if (t.dim() == 1) t.narrow(0, 2, 3).add_(0.25), check();
    }
    const StateDict other = Block().state_dict();
    net.load_state_dict(other), check();
    net.train();
    forward(randn({2, 3, 9, 8})), net.eval();
    for (int i = 0; i < 3; ++i) check();
  }
}

TEST_CASE("batch norms that cannot be folded stay, and are right") {
  manual_seed(5);
  nn::Conv2d conv(3, 4, 3);
  nn::BatchNorm2d norm(4);
  norm.eval();
  norm.running_var.uniform_(0.3, 2), norm.running_mean.normal_();
  const auto check = [&](auto f, bool folded) {
    auto fast = compile(f);
    for (int i = 0; i < 4; ++i) {
      const Tensor x = randn({2, 3, 6, 6});
      CHECK(same_values(fast(x), f(x), 1e-4));
    }
    CHECK(fast.programs() == 1);
    CHECK(has(fast.explain(), "norm(Batch)") != folded);
  };
  NoGrad guard;
  check([&](const Tensor& x) { return norm(conv(x)); }, true);
  check(
      [&](const Tensor& x) {
        const Tensor y = conv(x);
        return norm(y) + y;
      },
      false);
  check([&](const Tensor& x) { return norm(conv(x) * 2); }, false);
  check([&](const Tensor& x) { return norm(conv(x.narrow(2, 0, 4))); }, false);  // a weight larger than the result
  check([&](const Tensor& x) { return norm(conv(x).select(0, 1).unsqueeze(0)); }, false);
  check([&](const Tensor& x) { return norm(conv2d(x, conv.weight * sum(x), conv.bias)); }, false);
  check(
      [&](const Tensor& x) {
        norm.running_mean.add_(0.0);
        return norm(conv(x));
      },
      false);
  auto eager = compile([&](const Tensor& x) { return norm(conv(x)); }, {.fold_norm = false});
  for (int i = 0; i < 3; ++i) eager(randn({2, 3, 6, 6}));
  CHECK(has(eager.explain(), "norm(Batch)"));
}

TEST_CASE("what is computed of weights alone is computed again when they change") {
  manual_seed(6);
  NoGrad guard;
  Tensor w = randn({4, 6}), scale = full({}, 2.0), flag = zeros({4});
  Tensor half = w.narrow(0, 0, 2);
  const auto f = [&](const Tensor& x) {
    const Tensor doubled = (w * scale).t().contiguous() + 1;  // of weights alone
    Tensor y = matmul(x, doubled);
    flag.copy_(sum(y, 0));  // what the program writes is no weight
    return y + flag * 2 + w.narrow(0, 0, 1).sum();
  };
  auto fast = compile(f);
  const auto check = [&] {
    const Tensor x = randn({3, 6}), got = fast(x);
    CHECK(same_values(got, f(x)));
  };
  for (int i = 0; i < 4; ++i) check();
  CHECK(fast.programs() == 1);
  w.mul_(3), check(), check();
  half.zero_(), check(), check();
  scale.fill_(0.5), check(), check();
  auto train = compile([&](const Tensor& x) { w.add_(sum(x)); });  // another program writes
  for (int i = 0; i < 5; ++i) train(randn({2})), check();
  CHECK(fast.programs() == 1);
  half = Tensor(), w = randn({4, 6});
  for (int i = 0; i < 4; ++i) check();
}
