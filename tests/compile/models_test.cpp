// Ten compiled steps, and ten steps over compiled forwards, are ten eager ones, for every model and for the kinds of steps that samples
// and conformance cases have.
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

#include "loops.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

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
  const auto resnet = [](auto block, bool checkpoint) {
    return [=] {
      return models::ResNet<typename decltype(block)::type>(
          {1, 1, 1, 1}, {.num_classes = 4, .width = 4, .small_images = true, .checkpoint = checkpoint});
    };
  };
  check_forms(resnet(std::type_identity<models::BasicBlock>(), false), with(classes), batch, 1e-4);
  check_forms(resnet(std::type_identity<models::BasicBlock>(), true), with(classes), batch, 1e-4);
  check_forms(resnet(std::type_identity<models::Bottleneck>(), false), with(classes), batch, 1e-4);
  for (const bool batch_norm : {false, true})
    check_forms(
        [=] {
          return models::VGG({4, models::kMaxPool, 8},
                             {.num_classes = 4, .batch_norm = batch_norm, .dropout = 0.3, .pooled = 2, .hidden = {16}});
        },
        with(classes), batch, 1e-4);
  check_forms([] { return models::MobileNetV2({.num_classes = 4, .width_mult = 0.25, .dropout = 0.2}); }, with(classes),
              images(2, 3, 32, 4), 1e-3);
  // Its last norms see two numbers a channel: a rounding of the input (1e-7) moves eager code's loss by 4. So without other roundings.
  check_forms([] { return models::efficientnet_b0({.num_classes = 4}); }, with(classes), images(2, 3, 32, 4), 5e-3, 10,
              false, {.rows = false});
  const auto every_pixel = [](auto& net, const Tensor& x, const Tensor& y) {
    return cross_entropy(net(x), expand(y.view({-1, 1, 1}), {x.size(0), 9, 12}).contiguous());
  };
  check_forms([] { return models::UNet({.in_channels = 2, .num_classes = 3, .width = 3, .depth = 2}); },
              with(every_pixel),
              [](int i) {
                const Tensor x = sin(arange(0., 432., 1., {.dtype = kFloat32}) * (0.1 * (i + 1)));
                return std::pair(x.reshape({2, 2, 9, 12}), remainder(arange(2) + i, 3).to(kInt64));
              },
              1e-3);
}

TEST_CASE("compiled: channels_last, autocast, a schedule between the steps") {
  check_forms(
      [] {
        auto net =
            models::ResNet<models::BasicBlock>({1, 1, 1, 1}, {.num_classes = 4, .width = 4, .small_images = true});
        net.to(kChannelsLast);
        return net;
      },
      with(classes_in_bfloat16, false,
           [](const std::vector<Tensor>& p) { return optim::SGD(p, {.lr = 1e-2, .momentum = 0.9, .nesterov = true}); }),
      images(2, 3, 16, 4), 1e-3);
}

TEST_CASE("compiled: transformers") {
  for (const bool checkpoint : {false, true}) {
    check_forms(
        [=] {
          return models::GPT2LMHeadModel({.vocab_size = 11,
                                          .n_positions = 8,
                                          .n_embd = 12,
                                          .n_layer = 2,
                                          .n_head = 3,
                                          .dropout = 0.1,
                                          .checkpoint = checkpoint});
        },
        with(next_tokens, true), texts(3, 8, 11), 1e-4);
    check_forms(
        [=] {
          return models::LlamaForCausalLM({.vocab_size = 11,
                                           .hidden_size = 16,
                                           .intermediate_size = 16,
                                           .num_hidden_layers = 2,
                                           .num_attention_heads = 4,
                                           .num_key_value_heads = 2,
                                           .max_position_embeddings = 8,
                                           .tie_word_embeddings = checkpoint,
                                           .checkpoint = checkpoint});
        },
        with(next_tokens), texts(3, 7, 11), 1e-4);
  }
  check_forms([] { return Encoder(); }, with(next_tokens), texts(3, 7, 11), 1e-4);
  check_forms(
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
      with(classes), images(2, 3, 16, 4), 1e-4);
}

TEST_CASE("compiled: BERT, with masks, labels and several results") {
  const models::BertConfig small{.vocab_size = 11,
                                 .hidden_size = 8,
                                 .num_hidden_layers = 2,
                                 .num_attention_heads = 2,
                                 .intermediate_size = 16,
                                 .max_position_embeddings = 8};
  const auto both = [](const models::BertModel::Output& out) {
    return mean(square(out.pooler_output)) + mean(square(out.last_hidden_state - 1));
  };
  const auto words = [=](auto& net, const Tensor& x, const Tensor&) { return both(net(x)); };
  const auto masked = [=](auto& net, const Tensor& x, const Tensor& y) {
    return both(net(x, models::BertInputs{.attention_mask = gt(y, 2).to(kInt64), .token_type_ids = remainder(x, 2)}));
  };
  const auto unpooled = [](auto& net, const Tensor& x, const Tensor&) {
    return mean(square(net(x).last_hidden_state - 1));
  };
  check_forms([&] { return models::BertModel(small); }, with(words), texts(3, 7, 11), 1e-4);
  check_forms([&] { return models::BertModel(small); }, with(unpooled), texts(3, 7, 11), 1e-4);
  check_forms([&] { return models::BertModel(small); }, with(masked), texts(3, 7, 11), 1e-4);
  const auto labelled = [](auto& net, const Tensor& x, const Tensor& y) {
    return net(x, models::BertLabelledInputs{.labels = remainder(y.select(1, 0), 2).to(kInt64)}).loss;
  };
  check_forms([&] { return models::BertForSequenceClassification(small); }, with(labelled), texts(3, 7, 11), 1e-4);
}

TEST_CASE("compiled: recurrent networks") {
  check_forms([] { return models::LSTMLanguageModel(11, 8, {.num_layers = 2, .dropout = 0.1, .tied = true}); },
              with(next_tokens, true), texts(3, 6, 11), 1e-4);
  const auto translated = [](auto& net, const Tensor& x, const Tensor& y) { return tokens_loss(net(x, y), y); };
  check_forms([] { return models::Seq2Seq(11, 11, 8); }, with(translated), texts(3, 6, 11), 1e-4);
}

TEST_CASE("compiled: states that are carried from call to call, detached or with their history") {
  // Truncated backpropagation through time: each text goes on where the last one ended.
  check_forms(
      [] { return models::LSTMLanguageModel(11, 8, {.num_layers = 2, .dropout = 0.1}); },
      [](auto& net, Forwards& compiled) {
        return [forward = compiled([&net](const Tensor& x, const nn::LSTMState& s) { return net.forward(x, s); }),
                opt = optim::AdamW(net.parameters(), {.lr = 3e-3}),
                state = nn::LSTMState{zeros({2, 3, 8}), zeros({2, 3, 8})}](const Tensor& x, const Tensor& y) mutable {
          opt.zero_grad();
          const auto [logits, last] = forward(x, state);
          Tensor loss = tokens_loss(logits, y);
          loss.backward();
          opt.step();
          state = {last.h.detach(), last.c.detach()};
          return loss;
        };
      },
      texts(3, 6, 11), 1e-4, 10, true);
  // Three calls before one backward, through all of which the state's gradient flows.
  check_forms([] { return nn::GRU(5, 4, {.num_layers = 2, .batch_first = true, .dropout = 0.2}); },
              [](nn::GRU& net, Forwards& compiled) {
                return [forward = compiled(net), opt = optim::AdamW(net.parameters(), {.lr = 3e-3})](
                           const Tensor& x, const Tensor&) mutable {
                  opt.zero_grad();
                  Tensor h = zeros({2, 3, 4}), loss = zeros({});
                  for (int part = 0; part < 3; ++part) {
                    auto [output, last] = forward(x.narrow(1, 2 * part, 2), h);
                    loss = loss + mean(square(output - 1)), h = last;
                  }
                  loss.backward();
                  opt.step();
                  return loss;
                };
              },
              [](int i) {
                return std::pair(wave({3, 6, 5}, 0.1 * (i + 1)), Tensor());
              },
              1e-4);
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
