// Ten compiled steps are ten eager ones for the nets and steps of the samples, in small, and for the models that models_test.cpp leaves out.
#include <tapir/models/efficientnet.h>
#include <tapir/models/llama.h>
#include <tapir/models/unet.h>

#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

auto images(int64_t n, int64_t channels, int64_t size, int64_t labels) {
  return [=](int i) {
    const Tensor x = sin(arange(0., double(n * channels * size * size), 1., {.dtype = kFloat32}) * (0.1 * (i + 1)));
    return std::pair(x.reshape({n, channels, size, size}), remainder(arange(n) + i, labels).to(kInt64));
  };
}
/// The step that most of them have.
template <class Loss> auto with(Loss loss) {
  return [=](auto& net) {
    return [&net, loss, opt = optim::AdamW(net.parameters(), {.lr = 3e-3})](const Tensor& x, const Tensor& y) mutable {
      opt.zero_grad();
      Tensor l = loss(net(x), x, y);
      l.backward();
      opt.step();
      return l;
    };
  };
}
auto classes = [](const Tensor& scores, const Tensor&, const Tensor& y) { return cross_entropy(scores, y); };
auto itself = [](const Tensor& copy, const Tensor& x, const Tensor&) { return mse_loss(copy, x); };

struct Autoencoder : nn::Module {
  nn::Conv2d down1{1, 4, 3, {.stride = 2, .padding = 1}}, down2{4, 8, 3, {.stride = 2, .padding = 1}};
  nn::Linear squeeze{8 * 3 * 3, 5}, spread{5, 8 * 3 * 3};
  nn::ConvTranspose2d up1{8, 4, 4, {.stride = 2, .padding = 1}}, up2{4, 1, 4, {.stride = 2, .padding = 1}};
  Tensor forward(const Tensor& x) {
    const Tensor code = squeeze(flatten(relu(down2(relu(down1(x)))), 1));
    return sigmoid(up2(relu(up1(relu(spread(code)).view({-1, 8, 3, 3})))));
  }
  TAPIR_FIELDS(down1, down2, squeeze, spread, up1, up2)
};

struct Pair : nn::Module {  // of the DCGAN
  nn::Linear spread{6, 8 * 3 * 3};
  nn::BatchNorm2d bn1{8}, bn2{4}, bn3{8};
  nn::ConvTranspose2d up1{8, 4, 4, {.stride = 2, .padding = 1}}, up2{4, 1, 4, {.stride = 2, .padding = 1}};
  nn::Conv2d down1{1, 4, 4, {.stride = 2, .padding = 1}}, down2{4, 8, 4, {.stride = 2, .padding = 1}};
  nn::Linear verdict{8 * 3 * 3, 1};
  Tensor draw(const Tensor& z) { return tanh(up2(relu(bn2(up1(relu(bn1(spread(z).view({-1, 8, 3, 3})))))))); }
  Tensor judge(const Tensor& x) { return verdict(flatten(leaky_relu(bn3(down2(leaky_relu(down1(x), 0.2))), 0.2), 1)); }
  std::vector<Tensor> artist() { return all_of(spread, bn1, bn2, up1, up2); }
  std::vector<Tensor> critic() { return all_of(down1, down2, bn3, verdict); }
  template <class... M> static std::vector<Tensor> all_of(M&... modules) {
    std::vector<Tensor> all;
    const auto add = [&](auto& m) {
      for (const Tensor& p : m.parameters()) all.push_back(p);
    };
    (add(modules), ...);
    return all;
  }
  TAPIR_FIELDS(spread, bn1, bn2, bn3, up1, up2, down1, down2, verdict)
};

struct QNet : nn::Module {
  nn::Linear fc1{4, 12}, fc2{12, 12}, out{12, 2};
  Tensor forward(const Tensor& x) { return out(relu(fc2(relu(fc1(x))))); }
  TAPIR_FIELDS(fc1, fc2, out)
};
struct Two : nn::Module {  // a network and its slow copy
  QNet net, target;
  TAPIR_FIELDS(net, target)
};

struct CifarNet : nn::Module {
  nn::Conv2d stem{3, 4, 3, {.padding = 1, .bias = false}}, conv1{4, 8, 3, {.stride = 2, .padding = 1, .bias = false}},
      conv2{8, 8, 3, {.padding = 1, .bias = false}}, shortcut{4, 8, 1, {.stride = 2, .bias = false}};
  nn::BatchNorm2d bn{4}, bn1{8}, bn2{8};
  nn::Linear fc{8, 5};
  Tensor forward(const Tensor& x) {
    const Tensor h = relu(bn(stem(x)));
    return fc(mean(relu(bn2(conv2(relu(bn1(conv1(h))))) + shortcut(h)), {2, 3}));
  }
  TAPIR_FIELDS(stem, conv1, conv2, shortcut, bn, bn1, bn2, fc)
};
struct MnistCnn : nn::Module {
  nn::Conv2d conv1{1, 4, 3, {.padding = 1}}, conv2{4, 8, 3, {.padding = 1}};
  nn::BatchNorm2d bn1{4}, bn2{8};
  nn::Linear fc{8 * 3 * 3, 10};
  Tensor forward(const Tensor& x) {
    Tensor h = max_pool2d(relu(bn1(conv1(x))), 2);
    h = max_pool2d(relu(bn2(conv2(h))), 2);
    return fc(dropout(flatten(h, 1), 0.3, training));
  }
  TAPIR_FIELDS(conv1, conv2, bn1, bn2, fc)
};

}  // namespace

TEST_CASE("compiled: autoencoder, cifar, mnist, linear_regression") {
  check_compiled([] { return Autoencoder(); }, with(itself), images(3, 1, 12, 4), 1e-4);
  check_compiled([] { return CifarNet(); }, with(classes), images(3, 3, 8, 5), 1e-3);
  check_compiled([] { return MnistCnn(); }, with(classes), images(4, 1, 12, 10), 1e-3);
  check_compiled([] { return nn::Linear(2, 1); },
                 [](nn::Linear& net) {
                   return [&net, opt = optim::SGD(net.parameters(), {.lr = 0.1})](const Tensor& x,
                                                                                  const Tensor& y) mutable {
                     opt.zero_grad();
                     Tensor loss = mse_loss(net(x), y);
                     loss.backward();
                     opt.step();
                     return loss;
                   };
                 },
                 [](int i) {
                   const Tensor x = cos(arange(0., 32., 1., {.dtype = kFloat32}) + i).reshape({16, 2});
                   return std::pair(x, sum(x, {1}, {.keepdim = true}) + 1);
                 });
}

TEST_CASE("compiled: dcgan, two optimizers and gradients that cross") {
  check_compiled([] { return Pair(); },
                 [](Pair& net) {
                   const optim::AdamOptions adam{.lr = 1e-3, .betas = {0.5, 0.999}};
                   return [&net, artist = optim::Adam(net.artist(), adam), critic = optim::Adam(net.critic(), adam)](
                              const Tensor& real, const Tensor&) mutable {
                     const auto wrong = [](const Tensor& s, double truth) {
                       return binary_cross_entropy_with_logits(s, full_like(s, truth));
                     };
                     const Tensor fake = net.draw(randn({real.size(0), 6}));
                     critic.zero_grad();
                     Tensor critic_loss = wrong(net.judge(real), 0.9) + wrong(net.judge(fake.detach()), 0);
                     critic_loss.backward();
                     critic.step();
                     artist.zero_grad();
                     Tensor loss = wrong(net.judge(fake), 1);
                     loss.backward();
                     artist.step();
                     return loss + critic_loss.detach();
                   };
                 },
                 images(3, 1, 12, 4), 1e-3);
}

TEST_CASE("compiled: dqn") {
  check_compiled([] { return Two(); },
                 [](Two& both) {
                   return [&both, opt = optim::AdamW(both.net.parameters(), {.lr = 1e-2, .weight_decay = 0})](
                              const Tensor& rows, const Tensor&) mutable {
                     opt.zero_grad();
                     const Tensor after = rows.narrow(1, 5, 4);
                     Tensor wanted;
                     {
                       NoGrad guard;
                       const Tensor choice = argmax(both.net(after), 1, {.keepdim = true});
                       wanted = rows.narrow(1, 9, 1) * (0.1 + 0.9 * gather(both.target(after), 1, choice));
                     }
                     const Tensor action = gt(rows.narrow(1, 4, 1), 0).to(kInt64);
                     Tensor loss = smooth_l1_loss(gather(both.net(rows.narrow(1, 0, 4)), 1, action), wanted);
                     loss.backward();
                     optim::clip_grad_norm_(both.net.parameters(), 1.0);
                     opt.step();
                     NoGrad guard;
                     std::vector<Tensor> to = both.target.parameters(), from = both.net.parameters();
                     for (size_t i = 0; i < to.size(); ++i) lerp_(to[i], from[i], 0.1);
                     return loss;
                   };
                 },
                 [](int i) {
                   return std::pair(sin(arange(0., 80., 1., {.dtype = kFloat32}) * (i + 1)).reshape({8, 10}), Tensor());
                 },
                 1e-4);
}

TEST_CASE("compiled: UNet, EfficientNet, Llama") {
  check_compiled([] { return models::UNet({.in_channels = 2, .num_classes = 3, .width = 3, .depth = 2}); },
                 with([](const Tensor& scores, const Tensor&, const Tensor& y) {
                   return cross_entropy(scores, expand(y.view({-1, 1, 1}), {scores.size(0), 9, 12}).contiguous());
                 }),
                 [](int i) {
                   const Tensor x = sin(arange(0., 432., 1., {.dtype = kFloat32}) * (0.1 * (i + 1)));
                   return std::pair(x.reshape({2, 2, 9, 12}), remainder(arange(2) + i, 3).to(kInt64));
                 },
                 1e-3, 6);
  check_compiled([] { return models::efficientnet_b0({.num_classes = 4}); }, with(classes), images(2, 3, 32, 4), 5e-3,
                 5);
  for (bool checkpoint : {false, true})
    check_compiled(
        [=] {
          return models::LlamaForCausalLM({.vocab_size = 11,
                                           .hidden_size = 16,
                                           .intermediate_size = 16,
                                           .num_hidden_layers = 2,
                                           .num_attention_heads = 4,
                                           .num_key_value_heads = 2,
                                           .max_position_embeddings = 8,
                                           .checkpoint = checkpoint});
        },
        with([](const Tensor& scores, const Tensor&, const Tensor& y) {
          return cross_entropy(flatten(scores, 0, 1), flatten(y));
        }),
        [](int i) {
          const Tensor all = remainder(arange(3 * 8) * (2 * i + 3) + i, 11).reshape({3, 8});
          return std::pair(all.narrow(1, 0, 7), all.narrow(1, 1, 7));
        },
        1e-4);
}
