// Ten compiled steps are ten eager ones, for the models and the kinds of steps that samples and conformance cases have.
#include <tapir/models/bert.h>
#include <tapir/models/efficientnet.h>
#include <tapir/models/gpt2.h>
#include <tapir/models/llama.h>
#include <tapir/models/lstm_lm.h>
#include <tapir/models/mobilenet_v2.h>
#include <tapir/models/resnet.h>
#include <tapir/models/seq2seq.h>
#include <tapir/models/unet.h>
#include <tapir/models/vgg.h>
#include <tapir/models/vit.h>

#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

auto classes = [](const Tensor& scores, const Tensor& y) { return cross_entropy(scores, y); };
auto tokens_loss = [](const Tensor& scores, const Tensor& y) {
  return cross_entropy(flatten(scores, 0, 1), flatten(y));
};

/// Images that differ from step to step, and labels.
auto images(int64_t n, int64_t channels, int64_t size, int64_t labels) {
  return [=](int i) {
    const Tensor x = sin(arange(0., double(n * channels * size * size), 1., {.dtype = kFloat32}) * (0.1 * (i + 1)));
    return std::pair(x.reshape({n, channels, size, size}), remainder(arange(n) + i, labels).to(kInt64));
  };
}
auto texts(int64_t n, int64_t length, int64_t words) {
  return [=](int i) {
    const Tensor all = remainder(arange(n * (length + 1)) * (2 * i + 3) + i, words).reshape({n, length + 1});
    return std::pair(all.narrow(1, 0, length), all.narrow(1, 1, length));
  };
}
/// The step that most samples have.
template <class Loss> auto with(Loss loss, bool clip = false) {
  return [=](auto& net) {
    return [&net, loss, clip, opt = optim::AdamW(net.parameters(), {.lr = 3e-3})](const Tensor& x,
                                                                                  const Tensor& y) mutable {
      opt.zero_grad();
      Tensor l = loss(net(x), y);
      l.backward();
      if (clip) optim::clip_grad_norm_(net.parameters(), 1.0);
      opt.step();
      return l;
    };
  };
}

/// Compiled steps, and eager steps over a compiled model, leave what eager ones leave.
template <class MakeNet, class Loss, class Batch>
void check_model(MakeNet make_net, Loss loss_of, Batch batch, double tolerance, int steps = 10, bool clip = false) {
  check_compiled(make_net, with(loss_of, clip), batch, tolerance, steps);
  std::vector<Tensor> left[2];
  for (const bool compiled : {false, true}) {
    manual_seed(7);
    auto net = make_net();
    optim::AdamW opt(net.parameters(), {.lr = 3e-3});
    auto fast = compile(net, {.enabled = compiled});
    for (int i = 0; i < steps; ++i) {
      const auto [x, y] = batch(i);
      opt.zero_grad();
      Tensor loss = loss_of(fast.forward(x), y);
      loss.backward();
      if (clip) optim::clip_grad_norm_(net.parameters(), 1.0);
      opt.step();
      left[compiled].push_back(loss.detach().clone());
      for (const Tensor& t : left_by(net)) left[compiled].push_back(t);
    }
    INFO(fast.explain().substr(0, 2000));
    if (compiled) CHECK(replays_of(fast) >= steps - 4);
  }
  REQUIRE(left[0].size() == left[1].size());
  for (size_t i = 0; i < left[0].size(); ++i) {
    INFO("tensor " << i << " of " << left[0].size());
    CHECK(same_values(left[0][i], left[1][i], tolerance));
  }
}

struct Encoder : nn::Module {
  nn::Embedding embed{11, 12};
  nn::TransformerEncoder encoder{
      nn::TransformerEncoderLayer(12, 3, {.dim_feedforward = 16, .dropout = 0.1, .batch_first = true}), 2};
  nn::Linear head{12, 11};
  Tensor forward(const Tensor& x) { return head(encoder(embed(x))); }
  TAPIR_FIELDS(embed, encoder, head)
};

}  // namespace

TEST_CASE("compiled: networks of convolutions") {
  const auto batch = images(2, 3, 16, 4);
  check_model(
      [] {
        return models::ResNet<models::BasicBlock>({1, 1, 1, 1}, {.num_classes = 4, .width = 4, .small_images = true});
      },
      classes, batch, 1e-4);
  check_model(
      [] {
        return models::ResNet<models::Bottleneck>({1, 1, 1, 1}, {.num_classes = 4, .width = 4, .small_images = true});
      },
      classes, batch, 1e-4);
  check_model(
      [] {
        return models::VGG({4, models::kMaxPool, 8}, {.num_classes = 4, .dropout = 0.3, .pooled = 2, .hidden = {16}});
      },
      classes, batch, 1e-4);
  check_model([] { return models::MobileNetV2({.num_classes = 4, .width_mult = 0.25, .dropout = 0.2}); }, classes,
              images(2, 3, 32, 4), 1e-3, 6);
}

TEST_CASE("compiled: channels_last, autocast, a schedule between the steps") {
  const auto batch = images(2, 3, 16, 4);
  check_compiled(
      [] {
        auto net =
            models::ResNet<models::BasicBlock>({1, 1, 1, 1}, {.num_classes = 4, .width = 4, .small_images = true});
        net.to(kChannelsLast);
        return net;
      },
      [](auto& net) {
        return [&net, opt = optim::SGD(net.parameters(), {.lr = 1e-2, .momentum = 0.9, .nesterov = true})](
                   const Tensor& x, const Tensor& y) mutable {
          opt.zero_grad();
          Tensor loss;
          {
            amp::Autocast autocast(kCPU, {.dtype = kBFloat16});
            loss = cross_entropy(net(x.contiguous(kChannelsLast)), y, {.label_smoothing = 0.1});
          }
          loss.backward();
          opt.step();
          return loss;
        };
      },
      batch, 1e-3);
}

TEST_CASE("compiled: transformers") {
  check_model(
      [] {
        return models::GPT2LMHeadModel(
            {.vocab_size = 11, .n_positions = 8, .n_embd = 12, .n_layer = 2, .n_head = 3, .dropout = 0.1});
      },
      tokens_loss, texts(3, 8, 11), 1e-4, 10, true);
  check_model([] { return Encoder(); }, tokens_loss, texts(3, 7, 11), 1e-4);
  check_model(
      [] {
        return models::VisionTransformer({.image_size = 16,
                                          .patch_size = 8,
                                          .layers = 2,
                                          .heads = 2,
                                          .hidden = 8,
                                          .mlp = 16,
                                          .num_classes = 4,
                                          .dropout = 0.1});
      },
      classes, images(2, 3, 16, 4), 1e-4);
  check_compiled(
      [] {
        return models::BertModel({.vocab_size = 11,
                                  .hidden_size = 8,
                                  .num_hidden_layers = 2,
                                  .num_attention_heads = 2,
                                  .intermediate_size = 16,
                                  .max_position_embeddings = 8});
      },
      [](auto& net) {
        return [&net, opt = optim::AdamW(net.parameters(), {.lr = 1e-3})](const Tensor& x, const Tensor&) mutable {
          opt.zero_grad();
          const auto out = net.forward(x, {});
          Tensor loss = mean(square(out.pooler_output)) + mean(square(out.last_hidden_state - 1));
          loss.backward();
          opt.step();
          return loss;
        };
      },
      texts(3, 7, 11), 1e-4);
}

TEST_CASE("compiled: recurrent networks") {
  check_model([] { return models::LSTMLanguageModel(11, 8, {.num_layers = 2, .dropout = 0.1, .tied = true}); },
              tokens_loss, texts(3, 6, 11), 1e-4, 10, true);
  check_compiled([] { return models::Seq2Seq(11, 11, 8); },
                 [](auto& net) {
                   return [&net, opt = optim::AdamW(net.parameters(), {.lr = 3e-3})](const Tensor& x,
                                                                                     const Tensor& y) mutable {
                     opt.zero_grad();
                     Tensor loss = tokens_loss(net(x, y), y);
                     loss.backward();
                     opt.step();
                     return loss;
                   };
                 },
                 texts(3, 6, 11), 1e-4);
}

TEST_CASE("compiled: every optimizer") {
  const auto batch = [](int i) {
    return std::pair(sin(arange(0., 24., 1., {.dtype = kFloat32}) + i).reshape({3, 8}),
                     remainder(arange(3) + i, 4).to(kInt64));
  };
  const auto check = [&](auto make) {
    check_compiled([] { return nn::Linear(8, 4); },
                   [make](nn::Linear& net) {
                     return [&net, opt = make(net.parameters())](const Tensor& x, const Tensor& y) mutable {
                       opt.zero_grad();
                       Tensor loss = cross_entropy(net(x), y);
                       loss.backward();
                       opt.step();
                       return loss;
                     };
                   },
                   batch);
  };
  using P = std::vector<Tensor>;
  check([](P p) { return optim::SGD(p, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}); });
  check([](P p) { return optim::Adam(p, {.lr = 0.01, .amsgrad = true}); });
  check([](P p) { return optim::Adagrad(p, {.lr = 0.1}); });
  check([](P p) { return optim::Adadelta(p); });
  check([](P p) { return optim::Adamax(p, {.lr = 0.01}); });
  check([](P p) { return optim::NAdam(p, {.lr = 0.01}); });
  check([](P p) { return optim::RAdam(p, {.lr = 0.01}); });
  check([](P p) { return optim::RMSprop(p, {.lr = 0.01, .centered = true}); });
  check([](P p) { return optim::Rprop(p, {.lr = 0.01}); });
  check([](P p) { return optim::ASGD(p, {.lr = 0.1}); });
  check([](P p) { return optim::Lion(p, {.lr = 0.01}); });
}

/// Steps between which momentum_at(opt, i) sets what it likes: eager's bits, and all calls but the first few are replayed.
template <class Make, class Momentum> void check_cycled(Make make, Momentum momentum_at, int64_t few = 4) {
  constexpr int kSteps = 14;
  std::vector<Tensor> left[2];
  for (int compiled : {0, 1}) {
    manual_seed(3);
    nn::Sequential net(nn::Linear(8, 6), nn::Tanh(), nn::Linear(6, 4, {.bias = false}));
    auto opt = make(net.parameters());
    const auto between = momentum_at(opt);
    auto step = compile(
        [&](const Tensor& x, const Tensor& y) {
          opt.zero_grad();
          Tensor loss = cross_entropy(net(x), y);
          loss.backward();
          opt.step();
          return loss;
        },
        {.enabled = bool(compiled), .verify = 0});
    for (int i = 0; i < kSteps; ++i) {
      const Tensor x = sin(arange(0., 24., 1., {.dtype = kFloat32}) + i).reshape({3, 8});
      left[compiled].push_back(step(x, remainder(arange(3) + i, 4).to(kInt64)).detach().clone());
      for (const Tensor& t : left_by(net)) left[compiled].push_back(t);
      between(i);
    }
    for (const auto& [name, t] : opt.state_dict()) left[compiled].push_back(t.clone());
    INFO(opt.name() << ": " << step.explain().substr(0, 600));
    if (compiled) CHECK(replays_of(step) >= kSteps - few);
  }
  REQUIRE(left[0].size() == left[1].size());
  for (size_t i = 0; i < left[0].size(); ++i) {
    INFO("tensor " << i);
    CHECK(same_bits(left[0][i], left[1][i]));
  }
}

TEST_CASE(
    "review 6: compiled steps are replayed while OneCycleLR cycles the momentum, for every optimizer that has one") {
  const auto one_cycle = [](optim::Optimizer& opt) {
    auto schedule = std::make_shared<optim::OneCycleLR>(opt, 0.05, optim::OneCycleLROptions{.total_steps = 20});
    return [schedule](int) { schedule->step(); };
  };
  const auto check = [&](auto make) { check_cycled(make, one_cycle); };
  using P = std::vector<Tensor>;
  check([](P p) { return optim::SGD(p, {.momentum = 0.9}); });
  check([](P p) { return optim::SGD(p, {.momentum = 0.9, .weight_decay = 5e-4, .nesterov = true}); });
  check([](P p) { return optim::Adam(p, {.amsgrad = true}); });
  check([](P p) { return optim::AdamW(p); });
  check([](P p) { return optim::Adamax(p); });
  check([](P p) { return optim::NAdam(p); });
  check([](P p) { return optim::RAdam(p); });
  check([](P p) { return optim::RMSprop(p, {.momentum = 0.5, .centered = true}); });
  check([](P p) { return optim::Lion(p); });
  check([](P p) { return optim::Muon(P{p[0], p[2]}); });
}

TEST_CASE("review 6: a momentum that becomes 0, or begins, has other buffers and is recorded anew") {
  const auto set = [](optim::Optimizer& opt) {
    return [&opt](int i) { opt.set_momentum(i < 5 ? 0.9 - 0.01 * i : i < 9 ? 0 : 0.5); };
  };
  check_cycled([](auto p) { return optim::SGD(p, {.lr = 0.05, .momentum = 0.9}); }, set, 9);
  check_cycled([](auto p) { return optim::SGD(p, {.lr = 0.05}); }, set, 9);
  check_cycled([](auto p) { return optim::RMSprop(p, {.lr = 0.01, .momentum = 0.9}); }, set, 9);
}

TEST_CASE("compiled: checkpointed blocks, custom gradients, hooks") {
  check_compiled(
      [] { return Encoder(); },
      [](Encoder& net) {
        return [&net, opt = optim::AdamW(net.parameters(), {.lr = 1e-3})](const Tensor& x, const Tensor& y) mutable {
          opt.zero_grad();
          Tensor h = net.embed(x);
          h.register_hook([](const Tensor& g) { return g * 0.5; });
          Tensor loss = tokens_loss(net.head(checkpoint([&](const Tensor& h) { return net.encoder(h); }, h)), y);
          loss.backward();
          opt.step();
          return loss;
        };
      },
      texts(3, 7, 11), 1e-4);
}

TEST_CASE("compiled: a model's forward in evaluation, with batch norm and in bfloat16") {
  manual_seed(1);
  models::ResNet<models::BasicBlock> net({1, 1, 1, 1}, {.num_classes = 4, .width = 4, .small_images = true});
  net.eval();
  auto forward = compile([&](const Tensor& x) {
    InferenceMode guard;
    return net(x);
  });
  const auto batch = images(2, 3, 16, 4);
  for (int i = 0; i < 6; ++i) {
    const Tensor got = forward(batch(i).first);
    InferenceMode guard;
    CHECK(same_values(got, net(batch(i).first)));
  }
  CHECK(forward.programs() == 1);
}

TEST_CASE("compiled: a decoder from the first token on") {
  manual_seed(2);
  models::GPT2LMHeadModel net(
      {.vocab_size = 11, .n_positions = 32, .n_embd = 12, .n_layer = 2, .n_head = 3, .dropout = 0});
  net.eval();
  NoGrad guard;
  auto cache = net.new_cache(1, 32), other = net.new_cache(1, 32);
  auto step = compile([&](const Tensor& token) { return net(token, cache); });
  for (int i = 0; i < 20; ++i) {
    const Tensor token = full({1, 1}, i % 11, {.dtype = kInt64});
    CHECK(same_values(step(token), net(token, other)));
  }
  CHECK(step.programs() == 1);
}
