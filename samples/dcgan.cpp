// Two networks play against each other until one of them draws digits: a DCGAN on MNIST. Radford et al. 2015, arXiv 1511.06434.
#include "digits.h"
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

/// How far verdicts are from a truth, 0 or 1.
static Tensor wrong(const Tensor& verdicts, double truth) {
  return binary_cross_entropy_with_logits(verdicts, full_like(verdicts, truth));
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 5, .batch_size = 128, .lr = 4e-4, .amp = {}};
  samples::DigitOptions digits{.picture = "dcgan.png"};
  int64_t noise = 64;
  samples::App app("Trains a DCGAN on MNIST and draws 64 digits of its own", "dcgan");
  app.add_option("--noise", noise, "Random numbers that become a digit")->check(samples::whole(1));
  digits.add_to(app);
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const Tensor images = samples::Digits(digits).train * 2 - 1;
    o.check_batch(images.size(0));
    data::DataLoader loader(
        data::TensorDataset<1>(images),
        {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed, .drop_last = true, .device = device});
    Generator28 artist(noise);
    Discriminator28 critic;
    artist.to(device), critic.to(device);
    const optim::AdamOptions adam{.lr = o.lr, .betas = {0.5, 0.999}};
    optim::Adam artist_opt(artist.parameters(), adam), critic_opt(critic.parameters(), adam);
    const Tensor shown = randn({64, noise}, {.device = device});

    auto step = compile(
        [&](const Tensor& real) {
          const Tensor fake = artist(randn({real.size(0), noise}, {.device = device}));
          critic_opt.zero_grad();
          // 0.9: one-sided label smoothing, arXiv 1606.03498
          Tensor critic_loss = wrong(critic(real), 0.9) + wrong(critic(fake.detach()), 0);
          critic_loss.backward();
          critic_opt.step();
          artist_opt.zero_grad();
          Tensor loss = wrong(critic(fake), 1);
          loss.backward();
          artist_opt.step();
          return std::pair(loss, critic_loss);
        },
        {.enabled = o.compile});

    samples::Run run(o, {"critic loss"});
    run.keep("artist", artist).keep("critic", critic).keep("loader", loader);
    run.keep("artist_optimizer", artist_opt).keep("critic_optimizer", critic_opt).explain(step);
    while (run.next_epoch(loader.size())) {
      Tensor critic_loss;
      for (auto& [real] : loader) {
        Tensor loss;
        std::tie(loss, critic_loss) = step(real);
        if (!run.step(loss)) break;
      }
      if (run.interrupted()) return run.finish();
      run.end_epoch({critic_loss.defined() ? critic_loss.item() : run.last(0)});  // of the last batch
      InferenceMode guard;
      artist.eval();
      run.picture(digits.picture, "generated", io::make_grid(artist(shown).cpu() * 0.5 + 0.5, 8));
      artist.train();
    }
    if (!digits.picture.empty()) std::printf("%s shows digits that nobody wrote\n", digits.picture.c_str());
    return run.finish();
  });
}
