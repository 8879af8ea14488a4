// Names, shapes and results of models/ beside torchvision's.
#include <tapir/models/efficientnet.h>
#include <tapir/models/mobilenet_v2.h>
#include <tapir/models/resnet.h>
#include <tapir/models/unet.h>
#include <tapir/models/vgg.h>
#include <tapir/models/vit.h>
#include <tapir/tapir.h>

#include <cstdlib>
#include <filesystem>

#include "../catch.h"
using namespace tapir;

namespace {

/// As in checkpoints.py, which printed the numbers below.
uint64_t hash_of(const StateDict& state, std::string_view prefix = "") {
  uint64_t h = 0xcbf29ce484222325;
  for (auto& [name, t] : state) {
    if (!name.starts_with(prefix)) continue;
    std::string text = name + "(";
    for (int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
    for (const char c : text + ")") h = (h ^ uint8_t(c)) * 0x100000001b3;
  }
  return h;
}
const models::VGGOptions kFeatures{.batch_norm = false, .hidden = {}};
const models::VGGOptions kNormFeatures{.batch_norm = true, .hidden = {}};

template <class M> void check_logits(const std::string& folder, const std::string& name, M model) {
  INFO(name);
  const StateDict file = io::load_safetensors(folder + "/" + name + ".safetensors");
  const std::string pth = folder + "/" + name + ".pth";  // of some the weights as torch.save writes them, too
  model.load_state_dict(std::filesystem::exists(pth) ? io::to_state_dict(io::load_pt(pth)) : file.strip("state."));
  model.eval();
  NoGrad guard;
  const Tensor want = file.at("logits"), x = file.at("input"), got = model(x);
  CHECK(abs(got - want).max().item() <= 1e-4 * abs(want).max().item());
  model.to(MemoryFormat::ChannelsLast);
  CHECK(abs(model(x.contiguous(MemoryFormat::ChannelsLast)) - want).max().item() <= 1e-4 * abs(want).max().item());
}

/// Weights that any program can make again, of the magnitude that initialisation gives them: tensor n of the state has the elements
/// s = sin(0.37 i + n); of more than one dimension scaled by its inputs, of scales and variances 1 + s / 2, else s / 10.
template <class M> Tensor logits_of_rule(M model) {
  NoGrad guard;
  model.to(kFloat64), model.eval();
  int64_t n = 0;
  for (const auto& [name, t] : model.state_dict()) {
    ++n;
    if (!t.is_floating_point()) continue;
    const Tensor s = sin(arange(0, t.numel(), 1, {.dtype = kFloat64}) * 0.37 + double(n)).view(t.shape());
    const bool scale = name.ends_with("weight") || name.ends_with("running_var");
    Tensor to = t;
    to.copy_(t.dim() > 1 ? s * std::sqrt(2 * double(t.size(0)) / double(t.numel())) : scale ? s / 2 + 1 : s / 10);
  }
  return model(sin(arange(0, 2 * 3 * 64 * 64, 1, {.dtype = kFloat64}) * 0.013).view({2, 3, 64, 64}));
}
void check_logits_of_rule(const Tensor& y, const std::vector<double>& first, const std::vector<double>& last,
                          double squares) {
  const auto v = y.to_vector<double>();
  REQUIRE(v.size() == 2000);
  for (size_t i = 0; i < 4; ++i) CHECK(v[i] == Approx(first[i]).epsilon(1e-8));
  for (size_t i = 0; i < 4; ++i) CHECK(v[1996 + i] == Approx(last[i]).epsilon(1e-8));
  CHECK(square(y).sum().item() == Approx(squares).epsilon(1e-8));
}

}  // namespace

TEST_CASE("review 14: torchvision's logits of weights that follow a rule") {
  check_logits_of_rule(logits_of_rule(models::resnet18()),
                       {-13.920688788016014, 48.42224380213185, 70.70103261258707, 34.452121028245735},
                       {-64.90058683803154, -62.85751167357547, -8.743326341515926, 52.67068710054385},
                       5112467.251650464);
  check_logits_of_rule(logits_of_rule(models::resnet50()),
                       {956565.3063322974, -2848921.7577435006, 3626648.0294388914, -2985461.5027182335},
                       {-2499832.9748227275, 279903.72376681503, 2049536.5612862774, -3577103.538143537},
                       1.3948951162339976e+16);
}

TEST_CASE("torchvision's names and shapes, in its order") {
  CHECK(hash_of(models::resnet18().state_dict()) == 0x67281277eae1243e);
  CHECK(hash_of(models::resnet34().state_dict()) == 0xd5de26cd42fea93e);
  CHECK(hash_of(models::resnet50().state_dict()) == 0x20e46d0a36e4c91a);
  CHECK(hash_of(models::mobilenet_v2().state_dict()) == 0x1b85a9cc52055ab3);
  CHECK(hash_of(models::efficientnet_b0().state_dict()) == 0x532c6f7c0232432d);
  CHECK(hash_of(models::vgg11(kFeatures).state_dict(), "features.") == 0x67df51de016363ef);
  CHECK(hash_of(models::vgg13(kNormFeatures).state_dict(), "features.") == 0x6d424d110467cba3);
  CHECK(hash_of(models::vgg16(kFeatures).state_dict(), "features.") == 0x11ee7ab31f522a46);
  CHECK(hash_of(models::vgg19(kNormFeatures).state_dict(), "features.") == 0xcb7a2f2f5cd1ab1d);
  models::VisionTransformer vit(
      {.image_size = 32, .patch_size = 8, .layers = 2, .heads = 2, .hidden = 16, .mlp = 32, .num_classes = 5});
  CHECK(hash_of(vit.state_dict()) == 0x63f86f17587595bb);
}

TEST_CASE("torchvision's initialisation") {
  manual_seed(1);
  models::ResNet<models::BasicBlock> net = models::resnet18({.zero_init_residual = true});
  const Tensor w = net.layer2[0].conv2.weight.detach();  // normal, variance 2 / (128 x 9)
  CHECK(square(w).mean().item() == Approx(2. / (128 * 9)).epsilon(0.03));
  CHECK(net.layer3[1].bn2.weight.detach().sum().item() == 0);
  CHECK(net.layer3[1].bn1.weight.detach().min().item() == 1);
  models::MobileNetV2 mobile({.width_mult = 0.25});
  CHECK(mobile.classifier.as<nn::Linear>(1).bias.detach().sum().item() == 0);
  CHECK(square(mobile.classifier.as<nn::Linear>(1).weight.detach()).mean().item() == Approx(1e-4).epsilon(0.03));
}

TEST_CASE("models train: a step of each lowers the loss on its batch") {
  manual_seed(1);  // the weights do not depend on what ran before
  const auto check_training = [](auto model, int64_t size) {
    manual_seed(3);
    const Tensor x = randn({4, 3, size, size}), labels = arange(4);
    optim::SGD opt(model.parameters(), {.lr = 1e-4});  // norms over few values make it steep
    double first = 0, loss = 0;
    for (int i = 0; i < 6; ++i) {
      opt.zero_grad();
      const Tensor l = cross_entropy(model(x), labels);
      l.backward();
      opt.step();
      loss = l.item();
      if (i == 0) first = loss;
    }
    CHECK(loss < first);
  };
  check_training(models::resnet18({.num_classes = 4, .width = 8, .small_images = true}), 16);
  check_training(models::resnet50({.num_classes = 4, .width = 4}), 64);
  check_training(
      models::VGG({8, models::kMaxPool, 8}, {.num_classes = 4, .batch_norm = true, .pooled = 1, .hidden = {}}), 16);
  check_training(models::mobilenet_v2({.num_classes = 4, .width_mult = 0.25, .dropout = 0}), 64);
  check_training(
      models::vit_b_16(
          {.image_size = 16, .patch_size = 8, .layers = 1, .heads = 2, .hidden = 16, .mlp = 32, .num_classes = 4}),
      16);
}

TEST_CASE("UNet gives each pixel its scores, at any size") {
  models::UNet net({.in_channels = 1, .num_classes = 3, .width = 4, .depth = 2});
  CHECK(net(randn({2, 1, 21, 18})).shape() == Shape{2, 3, 21, 18});
  CHECK(models::UNet({.width = 4, .depth = 1}).state_dict().contains("up.0.0.weight"));
}

TEST_CASE("torchvision's logits") {
  const char* given = std::getenv("TAPIR_TORCHVISION");
  if (!given) SKIP_TEST("TAPIR_TORCHVISION names no folder of checkpoints (tests/models/checkpoints.py)");
  const std::string folder = given;
  check_logits(folder, "resnet18", models::resnet18());
  check_logits(folder, "resnet34", models::resnet34());
  check_logits(folder, "resnet50", models::resnet50());
  check_logits(folder, "resnet101", models::resnet101());
  check_logits(folder, "resnet152", models::resnet152());
  check_logits(folder, "vgg11", models::vgg11());
  check_logits(folder, "vgg16_bn", models::vgg16({.batch_norm = true}));
  check_logits(folder, "vgg19", models::vgg19());
  check_logits(folder, "mobilenet_v2", models::mobilenet_v2());
  check_logits(folder, "efficientnet_b0", models::efficientnet_b0());
  check_logits(folder, "vit_b_16", models::vit_b_16());
}
