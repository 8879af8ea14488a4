// Trains a convolutional network on MNIST to about 99 % in 3 epochs. A whole training program: options, loader, progress, evaluation,
// checkpoints that survive a kill, and a resume that is bitwise equal to an uninterrupted run.
#include "quantized.h"
using namespace tapir;

struct Cnn : nn::Module {
  nn::Conv2d conv1{1, 32, 3, {.padding = 1}}, conv2{32, 64, 3, {.padding = 1}}, conv3{64, 128, 3, {.padding = 1}};
  nn::BatchNorm2d bn1{32}, bn2{64}, bn3{128};
  nn::Linear fc{128 * 3 * 3, 10};
  Tensor forward(const Tensor& x) {                    // (N, 1, 28, 28)
    Tensor h = max_pool2d(relu(bn1(conv1(x))), 2);     // (N, 32, 14, 14)
    h = max_pool2d(relu(bn2(conv2(h))), 2);            // (N, 64, 7, 7)
    h = max_pool2d(relu(bn3(conv3(h))), 2);            // (N, 128, 3, 3)
    return fc(dropout(flatten(h, 1), 0.3, training));  // (N, 10)
  }
  TAPIR_FIELDS(conv1, conv2, conv3, bn1, bn2, bn3, fc)
};

struct Mlp : nn::Module {
  nn::Linear fc1{784, 512}, fc2{512, 256}, fc3{256, 10};
  Tensor forward(const Tensor& x) {
    Tensor h = dropout(relu(fc1(flatten(x, 1))), 0.2, training);
    return fc3(dropout(relu(fc2(h)), 0.2, training));
  }
  TAPIR_FIELDS(fc1, fc2, fc3)
};

static double accuracy(nn::Module& net, const data::TensorDataset<2>& test) {
  InferenceMode guard;
  const bool training = net.training;
  net.eval();
  int64_t right = 0;
  data::DataLoader loader(test, {.batch_size = 1000});
  for (auto& [images, labels] : loader) right += sum(eq(argmax(net.tapir_call(images), 1), labels)).item<int64_t>();
  net.train(training);
  return 100.0 * double(right) / double(std::max<int64_t>(1, test.size()));
}

/// The first `limit` images (0: all), on the device.
static data::TensorDataset<2> prepared(const data::TensorDataset<2>& set, int64_t limit, Device device) {
  const int64_t n = limit ? std::min(limit, set.size()) : set.size();
  return data::TensorDataset(set.tensors()[0].narrow(0, 0, n).to(device), set.tensors()[1].narrow(0, 0, n).to(device));
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 3, .batch_size = 64, .lr = 2e-3};
  std::string model = "cnn", path;
  int64_t limit = 0;
  CLI::App app("Trains MNIST", "mnist");
  app.add_option("--model", model, "Network")->check(CLI::IsMember({"cnn", "mlp"}))->capture_default_str();
  app.add_option("--data", path,
                 "Folder of the IDX files, or 'generated' for built-in digits (default: $TAPIR_DATA, datasets/mnist, "
                 "../shared/data/mnist, download, generated)");
  app.add_option("--limit", limit, "Train and test on the first images only; 0: all")->check(CLI::NonNegativeNumber);
  app.add_flag("--quantize", o.quantize, "At the end, score and speed of the network with 8 and 4 bits");
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const data::MnistData mnist = data::find_mnist(path);
    std::printf("data: %s\n", mnist.source.c_str());
    const auto train_set = prepared(mnist.train, limit, device), test_set = prepared(mnist.test, limit, device);
    data::DataLoader train(train_set, {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed});
    const nn::AnyModule net = model == "mlp" ? nn::AnyModule(Mlp()) : nn::AnyModule(Cnn());
    net->to(device);
    net->to(kChannelsLast);
    std::printf("model: %s, %lld parameters; %lld training and %lld test images; %s, %d threads\n", model.c_str(),
                static_cast<long long>(net->num_parameters()), static_cast<long long>(train_set.size()),
                static_cast<long long>(test_set.size()),
                device.is_cuda() ? cuda::get_device_name(device.index).c_str() : "cpu", get_num_threads());
    optim::AdamW opt(net->parameters(), {.lr = o.lr, .weight_decay = 0.01});
    optim::CosineAnnealingLR schedule(opt, std::max<int64_t>(1, o.epochs * train.size()));
    amp::GradScaler scaler({.enabled = o.amp == "fp16"});

    auto step = compile(
        [&](const Tensor& images, const Tensor& labels) {
          opt.zero_grad();
          Tensor loss;
          {
            amp::Autocast autocast(device, o.precision());
            loss = cross_entropy(net(images), labels);
          }
          scaler.scale(loss).backward();
          scaler.step(opt);
          scaler.update();
          return loss;
        },
        {.enabled = o.compile});

    samples::Run run(o, {"test acc %"}, {.higher_is_better = true});
    run.keep("model", *net)
        .keep("optimizer", opt)
        .keep("schedule", schedule)
        .keep("scaler", scaler)
        .keep("loader", train);
    while (run.next_epoch(train.size())) {
      for (auto& [images, labels] : train) {
        const Tensor loss = step(images, labels);
        schedule.step();
        if (!run.step(loss)) break;
      }
      if (run.interrupted()) break;
      run.end_epoch({accuracy(*net, test_set)});
    }
    std::printf("test accuracy %s %%\n", train::fixed(run.last(0), 2).c_str());
    if (o.quantize) {
      const Tensor example = train_set.tensors()[0].narrow(0, 0, std::min<int64_t>(1000, train_set.size()));
      const auto score = [&](nn::Module& q) { return accuracy(q, test_set); };
      if (auto* cnn = dynamic_cast<Cnn*>(&*net)) samples::print_quantized(*cnn, example, true, "test acc %", score);
      else samples::print_quantized(static_cast<Mlp&>(*net), example, true, "test acc %", score);
    }
    return run.finish();
  });
}
