// Ten compiled steps, and ten steps over compiled forwards, are ten eager ones for the nets and steps of the samples, in small. The nets of
// gpt, lstm_text, seq2seq and resnet are models: models_test.cpp has them.
#include <tapir/distributed/sync_batch_norm.h>
#include <tapir/models/resnet.h>

#include "loops.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

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
  struct Block : nn::Module {
    nn::Conv2d conv1, conv2;
    nn::BatchNorm2d bn1, bn2;
    std::optional<nn::Conv2d> shortcut;
    Block(int64_t in, int64_t out, int64_t stride)
        : conv1(in, out, 3, {.stride = stride, .padding = 1, .bias = false}),
          conv2(out, out, 3, {.padding = 1, .bias = false}), bn1(out), bn2(out) {
      if (in != out) shortcut.emplace(in, out, 1, nn::ConvOptions{.stride = stride, .bias = false});
    }
    Tensor forward(const Tensor& x) {
      const Tensor h = bn2(conv2(relu(bn1(conv1(x)))));
      return relu(h + (shortcut ? (*shortcut)(x) : x));
    }
    TAPIR_FIELDS(conv1, conv2, bn1, bn2, shortcut)
  };
  nn::Conv2d stem{3, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn{4};
  std::vector<Block> blocks;
  nn::Linear fc{8, 5};
  CifarNet() {
    blocks.emplace_back(4, 8, 2);
    blocks.emplace_back(8, 8, 1);
  }
  Tensor forward(const Tensor& x) {
    Tensor h = relu(bn(stem(x)));
    for (Block& block : blocks) h = block(h);
    return fc(mean(h, {2, 3}));
  }
  TAPIR_FIELDS(stem, bn, blocks, fc)
};
template <class Norm> struct MnistCnn : nn::Module {
  nn::Conv2d conv1{1, 4, 3, {.padding = 1}}, conv2{4, 8, 3, {.padding = 1}};
  Norm bn1{4}, bn2{8};
  nn::Linear fc{8 * 3 * 3, 10};
  Tensor forward(const Tensor& x) {
    Tensor h = max_pool2d(relu(bn1(conv1(x))), 2);
    h = max_pool2d(relu(bn2(conv2(h))), 2);
    return fc(dropout(flatten(h, 1), 0.3, this->training));
  }
  TAPIR_FIELDS(conv1, conv2, bn1, bn2, fc)
};
struct MnistMlp : nn::Module {
  nn::Linear fc1{144, 12}, fc2{12, 10};
  Tensor forward(const Tensor& x) { return fc2(dropout(relu(fc1(flatten(x, 1))), 0.2, training)); }
  TAPIR_FIELDS(fc1, fc2)
};
struct Swish {  // of custom_kernel
  Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save(x);
    return x * sigmoid(x);
  }
  Grads backward(FunctionContext& ctx, const Tensor& g) {
    const Tensor x = ctx.saved(0), s = sigmoid(x);
    return {g * s * (1 + x * (1 - s))};
  }
};
struct SwishNet : nn::Module {
  nn::Linear fc1{144, 12}, fc2{12, 10};
  Tensor forward(const Tensor& x) { return fc2(apply_function("swish", Swish{}, fc1(flatten(x, 1)))); }
  TAPIR_FIELDS(fc1, fc2)
};
template <class Net> Net in_channels_last() {
  Net net;
  net.to(kChannelsLast);
  return net;
}

}  // namespace

TEST_CASE("compiled: autoencoder, linear_regression, custom_kernel") {
  check_forms([] { return Autoencoder(); }, with(itself), images(3, 1, 12, 4), 1e-4);
  check_forms([] { return nn::Linear(2, 1); },
              with([](auto& net, const Tensor& x, const Tensor& y) { return mse_loss(net(x), y); }, false,
                   [](const std::vector<Tensor>& p) { return optim::SGD(p, {.lr = 0.1}); }),
              [](int i) {
                const Tensor x = cos(arange(0., 32., 1., {.dtype = kFloat32}) + i).reshape({16, 2});
                return std::pair(x, sum(x, {1}, {.keepdim = true}) + 1);
              },
              1e-5);
  check_forms([] { return SwishNet(); }, with(classes), images(4, 1, 12, 10), 1e-4);
}

TEST_CASE("compiled: cifar, mnist, mnist_ddp in one process") {
  const auto cifar = images(3, 3, 8, 5), mnist = images(4, 1, 12, 10);
  check_forms([] { return CifarNet(); }, with(classes), cifar, 1e-3);
  check_forms([] { return in_channels_last<CifarNet>(); },
              with(classes_in_bfloat16, false,
                   [](const std::vector<Tensor>& p) {
                     return optim::SGD(p, {.lr = 1e-2, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
                   }),
              cifar, 1e-3);
  check_forms([] { return MnistMlp(); }, with(classes), mnist, 1e-4);
  check_forms([] { return MnistCnn<distributed::SyncBatchNorm>(); }, with(classes), mnist, 1e-3);
  check_forms([] { return MnistCnn<nn::BatchNorm2d>(); }, with(classes), mnist, 1e-3);
  const auto scaled = [](auto& net, Forwards& compiled) {
    return [forward = compiled(net), opt = optim::AdamW(net.parameters(), {.lr = 3e-3, .weight_decay = 0.01}),
            scaler = amp::GradScaler({.init_scale = 0x1p14, .growth_interval = 3})](const Tensor& x,
                                                                                    const Tensor& y) mutable {
      opt.zero_grad();
      Tensor loss;
      {
        amp::Autocast autocast(kCPU, {.dtype = kFloat16});
        loss = cross_entropy(forward(x), y);
      }
      scaler.scale(loss).backward();
      scaler.step(opt);
      scaler.update();
      return loss;
    };
  };
  check_forms([] { return in_channels_last<MnistCnn<nn::BatchNorm2d>>(); }, scaled, mnist, 1e-3);
}

TEST_CASE("compiled: resnet, with an average of the weights and groups of parameters") {
  using Net = models::ResNet<models::BasicBlock>;
  check_forms(
      [] {
        return Net({1, 1, 1, 1}, {.num_classes = 4, .width = 4, .small_images = true});
      },
      [](Net& net, Forwards& compiled) {
        optim::SGDGroup decays{.params = {}, .weight_decay = 1e-2}, stays{.params = {}, .weight_decay = 0.0};
        for (const Tensor& p : net.parameters()) (p.dim() > 1 ? decays : stays).params.push_back(p);
        return [forward = compiled(net), opt = optim::SGD({decays, stays}, {.lr = 1e-2, .momentum = 0.9}),
                average = train::AveragedModel<Net>(net, train::AverageOptions{.use_buffers = true}),
                &net](const Tensor& x, const Tensor& y) mutable {
          opt.zero_grad();
          Tensor loss = cross_entropy(forward(x), y, {.label_smoothing = 0.1});
          loss.backward();
          opt.step();
          average.update_parameters(net);
          return loss;
        };
      },
      images(2, 3, 16, 4), 1e-3, 10, true);
}

TEST_CASE("compiled: dcgan, two optimizers and gradients that cross") {
  check_forms([] { return Pair(); },
              [](Pair& net, Forwards& compiled) {
                const optim::AdamOptions adam{.lr = 1e-3, .betas = {0.5, 0.999}};
                return [draw = compiled([&net](const Tensor& z) { return net.draw(z); }),
                        judge = compiled([&net](const Tensor& x) { return net.judge(x); }),
                        artist = optim::Adam(net.artist(), adam),
                        critic = optim::Adam(net.critic(), adam)](const Tensor& real, const Tensor&) mutable {
                  const auto wrong = [](const Tensor& s, double truth) {
                    return binary_cross_entropy_with_logits(s, full_like(s, truth));
                  };
                  const Tensor fake = draw(randn({real.size(0), 6}));
                  critic.zero_grad();
                  Tensor critic_loss = wrong(judge(real), 0.9) + wrong(judge(fake.detach()), 0);
                  critic_loss.backward();
                  critic.step();
                  artist.zero_grad();
                  Tensor loss = wrong(judge(fake), 1);
                  loss.backward();
                  artist.step();
                  return loss + critic_loss.detach();
                };
              },
              images(3, 1, 12, 4), 1e-3);
}

TEST_CASE("compiled: dqn") {
  check_forms([] { return Two(); },
              [](Two& both, Forwards& compiled) {
                return [&both, net = compiled(both.net), target = compiled(both.target),
                        opt = optim::AdamW(both.net.parameters(), {.lr = 1e-2, .weight_decay = 0})](
                           const Tensor& rows, const Tensor&) mutable {
                  opt.zero_grad();
                  const Tensor after = rows.narrow(1, 5, 4);
                  Tensor wanted;
                  {
                    NoGrad guard;
                    const Tensor choice = argmax(net(after), 1, {.keepdim = true});
                    wanted = rows.narrow(1, 9, 1) * (0.1 + 0.9 * gather(target(after), 1, choice));
                  }
                  const Tensor action = gt(rows.narrow(1, 4, 1), 0).to(kInt64);
                  Tensor loss = smooth_l1_loss(gather(net(rows.narrow(1, 0, 4)), 1, action), wanted);
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
