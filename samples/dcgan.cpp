// Two networks play against each other until one of them draws digits: a DCGAN on MNIST. Radford et al. 2015, arXiv 1511.06434.
#include "run.h"
using namespace tapir;

struct Generator28 : nn::Module {
  nn::Linear spread;
  nn::BatchNorm2d bn1{64}, bn2{32};
  nn::ConvTranspose2d up1{64, 32, 4, {.stride = 2, .padding = 1}}, up2{32, 1, 4, {.stride = 2, .padding = 1}};
  explicit Generator28(int64_t noise) : spread(noise, 64 * 7 * 7) {}
  Tensor forward(const Tensor& z) {  // (N, noise) -> (N, 1, 28, 28) in (-1, 1)
    const Tensor h = relu(bn1(spread(z).view({-1, 64, 7, 7})));
    return tanh(up2(relu(bn2(up1(h)))));
  }
  TAPIR_FIELDS(spread, bn1, bn2, up1, up2)
};
struct Discriminator28 : nn::Module {
  nn::Conv2d down1{1, 32, 4, {.stride = 2, .padding = 1}}, down2{32, 64, 4, {.stride = 2, .padding = 1}};
  nn::BatchNorm2d bn{64};
  nn::Linear verdict{64 * 7 * 7, 1};
  Tensor forward(const Tensor& x) {  // (N, 1, 28, 28) -> (N, 1): above 0 means real
    const Tensor h = leaky_relu(bn(down2(leaky_relu(down1(x), 0.2))), 0.2);
    return verdict(flatten(h, 1));
  }
  TAPIR_FIELDS(down1, down2, bn, verdict)
};

int main(int argc, char** argv) {
  samples::Options o{.epochs = 5, .batch_size = 128, .lr = 2e-4};
  std::string path, picture = "dcgan.png";
  int64_t noise = 64, limit = 0;
  CLI::App app("Trains a DCGAN on MNIST", "dcgan");
  app.add_option("--data", path, "Folder of the IDX files, or 'generated' for built-in digits");
  app.add_option("--noise", noise, "Random numbers that become a digit")->capture_default_str();
  app.add_option("--limit", limit, "Use the first images only; 0: all")->capture_default_str();
  app.add_option("--picture", picture, "PNG file of generated digits, renewed after each epoch")->capture_default_str();
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const data::MnistData mnist = data::find_mnist(path);
    Tensor images = clamp(mnist.train.tensors()[0] * 0.3081 + 0.1307, 0, 1) * 2 - 1;
    if (limit) images = images.narrow(0, 0, std::min(limit, images.size(0)));
    data::DataLoader loader(
        data::TensorDataset<1>(images),
        {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed, .drop_last = true, .device = device});

    Generator28 artist(noise);
    Discriminator28 critic;
    artist.to(device), critic.to(device);
    const optim::AdamOptions adam{.lr = o.lr, .betas = {0.5, 0.999}};
    optim::Adam artist_opt(artist.parameters(), adam), critic_opt(critic.parameters(), adam);
    const Tensor shown = randn({64, noise}, {.device = device});
    const auto is = [](const Tensor& scores, double truth) {
      return binary_cross_entropy_with_logits(scores, full_like(scores, truth));
    };

    samples::Run run(o, {"critic loss", "fooled %"});
    run.keep("artist", artist)
        .keep("critic", critic)
        .keep("artist_optimizer", artist_opt)
        .keep("critic_optimizer", critic_opt)
        .keep("loader", loader);
    while (run.next_epoch(loader.size())) {
      Tensor critic_loss = zeros({}, {.device = device}), fooled = zeros({}, {.device = device});
      for (auto& [real] : loader) {
        const Tensor fake = artist(randn({real.size(0), noise}, {.device = device}));
        critic_opt.zero_grad();
        Tensor verdict =
            is(critic(real), 0.9) + is(critic(fake.detach()), 0);  // 0.9: one-sided label smoothing, arXiv 1606.03498
        verdict.backward();
        critic_opt.step();
        artist_opt.zero_grad();
        const Tensor scores = critic(fake);
        Tensor loss = is(scores, 1);
        loss.backward();
        artist_opt.step();
        critic_loss.add_(verdict.detach()), fooled.add_(mean(gt(scores.detach(), 0).to(kFloat32)));
        if (!run.step(loss)) break;
      }
      const double batches = double(loader.size());
      run.end_epoch({critic_loss.item() / batches, 100 * fooled.item() / batches});
      InferenceMode guard;
      artist.eval();
      const Tensor grid = io::make_grid(artist(shown).cpu() * 0.5 + 0.5, 8);
      artist.train();
      io::save_png(picture, grid);
      if (run.log()) run.log()->add_image("generated", grid, run.epoch());
    }
    std::printf("%s shows generated digits\n", picture.c_str());
    return run.finish();
  });
}
