// Squeezes MNIST digits into a few numbers and draws them again: a convolutional autoencoder, with a picture of digits above their copies.
#include "run.h"
using namespace tapir;

struct Autoencoder : nn::Module {
  nn::Conv2d down1{1, 16, 3, {.stride = 2, .padding = 1}}, down2{16, 32, 3, {.stride = 2, .padding = 1}};
  nn::Linear squeeze, spread;
  nn::ConvTranspose2d up1{32, 16, 4, {.stride = 2, .padding = 1}}, up2{16, 1, 4, {.stride = 2, .padding = 1}};
  explicit Autoencoder(int64_t code) : squeeze(32 * 7 * 7, code), spread(code, 32 * 7 * 7) {}
  Tensor encode(const Tensor& x) {
    return squeeze(flatten(relu(down2(relu(down1(x)))), 1));
  }  // (N, 1, 28, 28) -> (N, code)
  Tensor decode(const Tensor& z) { return sigmoid(up2(relu(up1(relu(spread(z)).view({-1, 32, 7, 7}))))); }
  Tensor forward(const Tensor& x) { return decode(encode(x)); }
  TAPIR_FIELDS(down1, down2, squeeze, spread, up1, up2)
};

int main(int argc, char** argv) {
  samples::Options o{.epochs = 5, .batch_size = 128, .lr = 2e-3};
  std::string path, picture = "autoencoder.png";
  int64_t code = 16, limit = 0;
  CLI::App app("Trains an autoencoder on MNIST", "autoencoder");
  app.add_option("--data", path, "Folder of the IDX files, or 'generated' for built-in digits");
  app.add_option("--code", code, "Numbers that stand for a digit")->capture_default_str();
  app.add_option("--limit", limit, "Use the first images only; 0: all")->capture_default_str();
  app.add_option("--picture", picture, "PNG file of digits and their copies")->capture_default_str();
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const data::MnistData mnist = data::find_mnist(path);
    const auto images = [&](const data::TensorDataset<2>& set) {
      const Tensor x = set.tensors()[0] * 0.3081 + 0.1307;  // back to [0, 1]
      return clamp(limit ? x.narrow(0, 0, std::min(limit, x.size(0))) : x, 0, 1);
    };
    const Tensor test = images(mnist.test);
    data::DataLoader loader(data::TensorDataset<1>(images(mnist.train)),
                            {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed, .device = device});

    Autoencoder net(code);
    net.to(device);
    optim::AdamW opt(net.parameters(), {.lr = o.lr});
    samples::Run run(o, {"test loss"});
    run.keep("model", net).keep("optimizer", opt).keep("loader", loader);
    while (run.next_epoch(loader.size())) {
      for (auto& [x] : loader) {
        opt.zero_grad();
        Tensor loss;
        {
          amp::Autocast autocast(device, o.precision());
          loss = mse_loss(net(x), x);
        }
        loss.backward();
        opt.step();
        if (!run.step(loss)) break;
      }
      InferenceMode guard;
      double sum = 0;
      data::DataLoader batches(data::TensorDataset<1>(test), {.batch_size = 500, .device = device});
      for (auto& [x] : batches) sum += mse_loss(net(x), x, {.reduction = Reduction::Sum}).item();
      run.end_epoch({sum / double(test.numel())});
      const Tensor some = test.narrow(0, 0, std::min<int64_t>(16, test.size(0))), copies = net(some.to(device)).cpu();
      const Tensor grid = io::make_grid(cat({some.narrow(0, 0, some.size(0) / 2), copies.narrow(0, 0, some.size(0) / 2),
                                             some.narrow(0, some.size(0) / 2, some.size(0) / 2),
                                             copies.narrow(0, some.size(0) / 2, some.size(0) / 2)}),
                                        std::max<int64_t>(1, some.size(0) / 2));
      io::save_png(picture, grid);
      if (run.log()) run.log()->add_image("digits above their copies", grid, run.epoch());
    }
    std::printf(
        "test loss %.5f (mean squared error of pixels in [0, 1]) with %lld numbers a digit; %s shows digits above "
        "their copies\n",
        run.last(0), static_cast<long long>(code), picture.c_str());
    return run.finish();
  });
}
