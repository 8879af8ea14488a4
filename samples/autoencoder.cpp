// Squeezes MNIST digits into a few numbers and draws them again: a convolutional autoencoder, with a picture of digits above their
// copies.
#include "digits.h"
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

/// Up to eight digits, their copies below; twice where there are 16.
static Tensor side_by_side(Autoencoder& net, const Tensor& digits, Device device) {
  const int64_t columns = std::min<int64_t>(8, digits.size(0));
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < 16 && i + columns <= digits.size(0); i += columns) {
    rows.push_back(digits.narrow(0, i, columns));
    rows.push_back(net(rows.back().to(device)).cpu());
  }
  return io::make_grid(cat(rows), columns);
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 5, .batch_size = 128, .lr = 2e-3, .amp = {}};
  samples::DigitOptions digits{.picture = "autoencoder.png"};
  int64_t code = 16;
  samples::App app("Trains an autoencoder on MNIST and draws digits above their copies", "autoencoder");
  app.add_option("--code", code, "Numbers that stand for a digit")->check(samples::whole(1));
  digits.add_to(app);
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const samples::Digits images(digits);
    data::DataLoader train(data::TensorDataset<1>(images.train),
                           {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed, .device = device});
    data::DataLoader test(data::TensorDataset<1>(images.test), {.batch_size = 500, .device = device});

    Autoencoder net(code);
    net.to(device);
    optim::AdamW opt(net.parameters(), {.lr = o.lr});
    optim::OneCycleLR schedule(opt, o.lr,
                               {.total_steps = o.epochs * train.size(), .pct_start = 0.1, .cycle_momentum = false});
    auto step = compile(
        [&](const Tensor& x) {
          opt.zero_grad();
          Tensor loss = mse_loss(net(x), x);
          loss.backward();
          opt.step();
          return loss;
        },
        {.enabled = o.compile});
    samples::Run run(o, {"test loss"});
    run.keep("model", net).keep("optimizer", opt).keep("schedule", schedule).keep("loader", train).explain(step);
    while (run.next_epoch(train.size())) {
      for (auto& [x] : train) {
        const Tensor loss = step(x);
        schedule.step();
        if (!run.step(loss)) break;
      }
      if (run.interrupted()) return run.finish();
      InferenceMode guard;
      double sum = 0;
      for (auto& [x] : test) sum += mse_loss(net(x), x, {.reduction = Reduction::Sum}).item();
      run.end_epoch({sum / double(images.test.numel())});
      run.picture(digits.picture, "digits above their copies", side_by_side(net, images.test, device));
    }
    std::printf("test loss %.5f (mean squared error of pixels in [0, 1]) with %lld numbers a digit\n", run.last(0),
                static_cast<long long>(code));
    if (!digits.picture.empty()) std::printf("%s shows digits above their copies\n", digits.picture.c_str());
    return run.finish();
  });
}
