// Trains a convolutional network on MNIST to about 99 % in 3 epochs. A whole training program: options, loader, progress, evaluation,
// checkpoints that survive a kill, and a resume that is bitwise equal to an uninterrupted run.
#include "digits.h"
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

/// Percent of right answers.
template <class Net> static double accuracy(Net& net, const data::TensorDataset<2>& test) {
  InferenceMode guard;
  const bool training = net.training;
  net.eval();
  int64_t right = 0;
  data::DataLoader loader(test, {.batch_size = 1000});
  for (auto& [images, labels] : loader) right += sum(eq(argmax(net(images), 1), labels)).template item<int64_t>();
  net.train(training);
  return 100.0 * double(right) / double(test.size());
}

static data::TensorDataset<2> on(Device device, const data::TensorDataset<2>& set) {
  return data::TensorDataset(set.tensors()[0].to(device), set.tensors()[1].to(device));
}

template <class Net>
static int learn(const samples::Options& o, const samples::DigitOptions& digits, const std::string& model) {
  const Device device(o.device);
  const data::MnistData mnist = digits.load();
  const auto train_set = on(device, mnist.train), test_set = on(device, mnist.test);
  data::DataLoader loader(train_set, {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed});
  Net net;
  net.to(device);
  net.to(kChannelsLast);
  std::printf("model: %s, %lld parameters; %lld training and %lld test images; %s, %d threads\n", model.c_str(),
              static_cast<long long>(net.num_parameters()), static_cast<long long>(train_set.size()),
              static_cast<long long>(test_set.size()),
              device.is_cuda() ? cuda::get_device_name(device.index).c_str() : "cpu", get_num_threads());
  optim::AdamW opt(net.parameters(), {.lr = o.lr, .weight_decay = 0.01});
  optim::CosineAnnealingLR schedule(opt, o.epochs * loader.size());
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
  run.keep("model", net).keep("optimizer", opt).keep("schedule", schedule).keep("scaler", scaler);
  run.keep("loader", loader).explain(step);
  while (run.next_epoch(loader.size())) {
    for (auto& [images, labels] : loader) {
      const Tensor loss = step(images, labels);
      schedule.step();
      if (!run.step(loss)) break;
    }
    if (run.interrupted()) return run.finish();
    run.end_epoch({accuracy(net, test_set)});
  }
  std::printf("test accuracy %s %%\n", train::fixed(run.last(0), 2).c_str());
  if (o.quantize) {
    const Tensor example = train_set.tensors()[0].narrow(0, 0, std::min<int64_t>(1000, train_set.size()));
    samples::print_quantized(net, example, true, "test acc %", [&](Net& q) { return accuracy(q, test_set); });
  }
  return run.finish();
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 3, .batch_size = 64, .lr = 2e-3};
  samples::DigitOptions digits;
  std::string model = "cnn";
  samples::App app("Trains MNIST", "mnist");
  app.add_option("--model", model, "Network")->check(CLI::IsMember({"cnn", "mlp"}));
  digits.add_to(app);
  app.add_flag("--quantize", o.quantize, "At the end, score and speed of the network with 8 and 4 bits");
  return samples::main(app, argc, argv, o,
                       [&] { return model == "mlp" ? learn<Mlp>(o, digits, model) : learn<Cnn>(o, digits, model); });
}
