// Programs recorded on the device, fused there, and run by interpret(): the generated kernels leave the bits of the calls.
#include <tapir/models/gpt2.h>
#include <tapir/models/lstm_lm.h>

#include "../compile/random_calls.h"
#include "../compile/training.h"
#include "cuda.h"

using namespace tapir_tests;

namespace {

/// Two steps, of which the second is recorded; how many groups became one call. Fused and apart they leave the same.
template <class Step> int64_t check_step(Step&& step, std::span<const Tensor> inputs) {
  step();
  ir::Recording recording(inputs);
  const Tensor loss = step();
  return check_fused(recording.finish(std::array{loss}), false);
}
template <class Net, class Loss> int64_t check_training(Net& net, Loss&& loss_of, const Tensor& x, const Tensor& y) {
  net.to(kCUDA);
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  return check_step(
      [&] {
        opt.zero_grad();
        Tensor loss = loss_of(net, x, y);
        loss.backward();
        opt.step();
        return loss.detach();
      },
      std::array{x, y});
}
auto classes = [](auto& net, const Tensor& x, const Tensor& y) { return cross_entropy(net(x), y); };
auto words = [](auto& net, const Tensor& x, const Tensor& y) {
  return cross_entropy(flatten(net(x), 0, 1), flatten(y));
};

struct Mlp : nn::Module {
  nn::Linear a{20, 24}, b{24, 12}, c{12, 5};
  nn::Dropout drop{0.2};
  Tensor forward(const Tensor& x) { return c(silu(b(drop(gelu(a(x) * 0.5 + 1))))); }
  TAPIR_FIELDS(a, b, c, drop)
};
struct Autoencoder : nn::Module {
  nn::Conv2d down{1, 4, 3, {.stride = 2, .padding = 1}};
  nn::ConvTranspose2d up{4, 1, 4, {.stride = 2, .padding = 1}};
  nn::BatchNorm2d norm{4};
  Tensor forward(const Tensor& x) { return sigmoid(up(leaky_relu(norm(down(x)), 0.2))); }
  TAPIR_FIELDS(down, up, norm)
};
struct Adversaries : nn::Module {
  nn::ConvTranspose2d artist{3, 1, 4, {.stride = 2, .padding = 1}};
  nn::Conv2d critic{1, 4, 4, {.stride = 2, .padding = 1}};
  nn::Linear score{4 * 4 * 4, 1};
  Tensor judge(const Tensor& x) { return score(flatten(leaky_relu(critic(x), 0.2), 1)); }
  TAPIR_FIELDS(artist, critic, score)
};

}  // namespace

TEST_CASE("CUDA fused: random programs give the bits of the calls") {
  NEEDS_CUDA;
  int64_t groups = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    manual_seed(seed);
    groups += check_fused(RandomCalls(seed, kCUDA).record(), false);
  }
  CHECK(groups > 12);
}

TEST_CASE("CUDA fused: training steps of nets of layers") {
  NEEDS_CUDA;
  manual_seed(1);
  Mlp mlp;
  const Tensor labels = randint(0, 5, {8}, {.device = kCUDA});
  CHECK(check_training(mlp, classes, randn({8, 20}, {.device = kCUDA}), labels) >= 3);
  ConvNet conv;
  CHECK(check_training(conv, classes, randn({4, 3, 16, 16}, {.device = kCUDA}), labels.narrow(0, 0, 4)) >= 2);
}

TEST_CASE("CUDA fused: a training step in mixed precision") {
  NEEDS_CUDA;
  manual_seed(2);
  Mlp net;
  net.to(kCUDA);
  optim::SGD opt(net.parameters(), {.lr = 1e-2, .momentum = 0.9});
  const Tensor x = randn({8, 20}, {.device = kCUDA}), y = randint(0, 5, {8}, {.device = kCUDA});
  const auto step = [&] {
    opt.zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(kCUDA, {.dtype = kBFloat16});
      loss = cross_entropy(net(x), y);
    }
    loss.backward();
    opt.step();
    return loss.detach();
  };
  CHECK(check_step(step, std::array{x, y}) >= 3);
}

TEST_CASE("CUDA fused: a training step of a transformer") {
  NEEDS_CUDA;
  manual_seed(3);
  models::GPT2LMHeadModel net(
      {.vocab_size = 11, .n_positions = 8, .n_embd = 12, .n_layer = 1, .n_head = 3, .dropout = 0.1});
  const Tensor x = randint(0, 11, {2, 8}, {.device = kCUDA}), y = randint(0, 11, {2, 8}, {.device = kCUDA});
  CHECK(check_training(net, words, x, y) >= 2);
}

TEST_CASE("CUDA fused: a training step of a recurrent net") {
  NEEDS_CUDA;
  manual_seed(4);
  models::LSTMLanguageModel net(11, 8, {.num_layers = 2, .dropout = 0.1, .tied = true});
  const Tensor x = randint(0, 11, {3, 6}, {.device = kCUDA}), y = randint(0, 11, {3, 6}, {.device = kCUDA});
  check_training(net, words, x, y);
}

TEST_CASE("CUDA fused: training steps of an autoencoder and of adversaries") {
  NEEDS_CUDA;
  manual_seed(5);
  Autoencoder net;
  const Tensor x = rand({2, 1, 8, 8}, {.device = kCUDA});
  const auto restore = [](auto& net, const Tensor& x, const Tensor&) { return mse_loss(net(x), x); };
  CHECK(check_training(net, restore, x, x) >= 1);
  Adversaries pair;
  pair.to(kCUDA);
  const optim::AdamOptions adam{.lr = 1e-3, .betas = {0.5, 0.999}};
  optim::Adam artist(pair.artist.parameters(), adam), critic(pair.critic.parameters(), adam);
  const auto wrong = [](const Tensor& s, double to) { return binary_cross_entropy_with_logits(s, full_like(s, to)); };
  const auto step = [&] {
    const Tensor fake = tanh(pair.artist(randn({2, 3, 4, 4}, {.device = kCUDA})));
    critic.zero_grad();
    Tensor loss = wrong(pair.judge(x), 0.9) + wrong(pair.judge(fake.detach()), 0);
    loss.backward();
    critic.step();
    artist.zero_grad();
    Tensor other = wrong(pair.judge(fake), 1);
    other.backward();
    artist.step();
    return (loss + other).detach();
  };
  CHECK(check_step(step, std::array{x}) >= 2);
}
