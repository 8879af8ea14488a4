// Trains a convolutional network on MNIST to about 99 % in 3 epochs, and shows a whole training program: options, loader,
// progress, evaluation, checkpoints that survive a kill, and a resume that is bitwise equal to an uninterrupted run.
#include <tapir/tapir.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>

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

struct Options {
  std::string model = "cnn", data, device = "cpu", amp = "off", checkpoint, resume;
  int64_t epochs = 3, batch_size = 64, checkpoint_every = 0, limit = 0;
  double lr = 2e-3;
  int threads = 0;
  uint64_t seed = 0;
};

static volatile std::sig_atomic_t interrupted = 0;
static void on_signal(int signal) {
  if (interrupted) std::signal(signal, SIG_DFL), std::raise(signal);
  interrupted = 1;
}

/// Everything that a run consists of: what a checkpoint holds.
struct Trainer {
  nn::AnyModule model;
  optim::AdamW optimizer;
  optim::CosineAnnealingLR scheduler;
  data::DataLoader<data::TensorDataset<2>> loader;
  amp::GradScaler scaler;
  Tensor loss_sum;  // of the epoch so far
  int64_t batches = 0;

  Trainer(nn::AnyModule net, const data::TensorDataset<2>& train, const Options& o)
      : model(std::move(net)), optimizer(model->parameters(), {.lr = o.lr, .weight_decay = 0.01}),
        scheduler(optimizer, std::max<int64_t>(1, o.epochs * ((train.size() + o.batch_size - 1) / o.batch_size))),
        loader(train, {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed}),
        scaler({.enabled = o.amp == "fp16"}), loss_sum(zeros({}, {.device = Device(o.device)})) {}

  void save(const std::string& path) {
    StateDict all;
    all.merge("model.", model->state_dict());
    all.merge("optimizer.", optimizer.state_dict());
    all.merge("scheduler.", scheduler.state_dict());
    all.merge("loader.", loader.state_dict());
    all.merge("scaler.", scaler.state_dict());
    all.set("loss_sum", loss_sum);
    all.set("batches", full({}, batches));
    const Generator& random = default_generator();
    all.set("random", tensor(std::vector<int64_t>{int64_t(random.seed()), int64_t(random.offset())}));
    io::save_safetensors(path, all);
  }
  void load(const std::string& path) {
    const StateDict all = io::load_safetensors(path);
    model->load_state_dict(all.strip("model."));
    optimizer.load_state_dict(all.strip("optimizer."));
    scheduler.load_state_dict(all.strip("scheduler."));
    loader.load_state_dict(all.strip("loader."));
    scaler.load_state_dict(all.strip("scaler."));
    loss_sum.copy_(all.at("loss_sum"));
    batches = all.at("batches").item<int64_t>();
    const auto random = all.at("random").to_vector<int64_t>();
    default_generator().set_state(uint64_t(random.at(0)), uint64_t(random.at(1)));
  }
};

static double evaluate(nn::AnyModule& model, const data::TensorDataset<2>& test) {
  InferenceMode guard;
  model->eval();
  int64_t right = 0;
  data::DataLoader loader(test, {.batch_size = 1000});
  for (auto& [images, labels] : loader) right += sum(eq(argmax(model(images), 1), labels)).item<int64_t>();
  model->train();
  return 100.0 * double(right) / double(std::max<int64_t>(1, test.size()));
}

static amp::AutocastOptions precision(const Options& o) {
  return {.dtype = o.amp == "fp16" ? kFloat16 : kBFloat16, .enabled = o.amp != "off"};
}

/// One epoch, or what is left of it; false when it was interrupted.
static bool train_epoch(Trainer& t, const Options& o, int64_t epoch) {
  train::ProgressBar bar("epoch " + std::to_string(epoch + 1), t.loader.size(), {.unit = "batch"});
  if (t.batches) bar.update(t.batches);
  for (auto& [images, labels] : t.loader) {
    t.optimizer.zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(images.device(), precision(o));
      loss = cross_entropy(t.model(images), labels);
    }
    t.scaler.scale(loss).backward();
    t.scaler.step(t.optimizer);
    t.scaler.update();
    t.scheduler.step();
    t.loss_sum.add_(loss.detach());
    ++t.batches;
    bar.update(1, bar.due() ? "loss " + train::fixed(t.loss_sum.item() / double(t.batches), 4) : "");
    if (interrupted) return false;
    if (o.checkpoint_every && !o.checkpoint.empty() && t.batches % o.checkpoint_every == 0) t.save(o.checkpoint);
  }
  return true;
}

/// The first `limit` images (0: all), on the device.
static data::TensorDataset<2> prepared(const data::TensorDataset<2>& set, int64_t limit, Device device) {
  const int64_t n = limit ? std::min(limit, set.size()) : set.size();
  return data::TensorDataset(set.tensors()[0].narrow(0, 0, n).to(device), set.tensors()[1].narrow(0, 0, n).to(device));
}

static int run(const Options& o) {
  const Device device(o.device);
  if (o.threads > 0) set_num_threads(o.threads);
  manual_seed(o.seed);
  data::MnistData mnist = data::find_mnist(o.data);
  std::printf("data: %s\n", mnist.source.c_str());
  mnist.train = prepared(mnist.train, o.limit, device);
  mnist.test = prepared(mnist.test, o.limit, device);
  nn::AnyModule model = o.model == "mlp" ? nn::AnyModule(Mlp()) : nn::AnyModule(Cnn());
  model->to(device);
  model->to(kChannelsLast);
  std::printf("model: %s, %lld parameters; %lld training and %lld test images; %s, %d threads\n", o.model.c_str(),
              static_cast<long long>(model->num_parameters()), static_cast<long long>(mnist.train.size()),
              static_cast<long long>(mnist.test.size()),
              device.is_cuda() ? cuda::get_device_name(device.index).c_str() : "cpu", get_num_threads());
  Trainer t(std::move(model), mnist.train, o);
  if (!o.resume.empty()) t.load(o.resume);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);

  train::Table table({"epoch", "train loss", "test acc %", "images/s", "memory"});
  double accuracy = 0;
  for (int64_t epoch = t.loader.epoch(); epoch < o.epochs; ++epoch) {
    const int64_t before = t.batches;
    train::ProgressBar clock("", 0, {.enabled = false});
    const bool whole = train_epoch(t, o, epoch);
    const double rate = double((t.batches - before) * o.batch_size) / clock.seconds();
    if (!whole) {
      if (o.checkpoint.empty()) return std::printf("interrupted\n"), 130;
      t.save(o.checkpoint);
      return std::printf("interrupted; go on with --resume %s\n", o.checkpoint.c_str()), 130;
    }
    accuracy = evaluate(t.model, mnist.test);
    table.row(
        {std::to_string(epoch + 1), train::fixed(t.loss_sum.item() / double(std::max<int64_t>(1, t.batches)), 4),
         train::fixed(accuracy, 2), train::fixed(rate, 0),
         train::bytes_text(double(device.is_cuda() ? cuda::max_memory_allocated() : memory_stats().max_allocated))});
    t.loss_sum.zero_();
    t.batches = 0;
    if (!o.checkpoint.empty()) t.save(o.checkpoint);
  }
  if (t.loader.epoch() >= o.epochs && accuracy == 0) accuracy = evaluate(t.model, mnist.test);
  std::printf("test accuracy %s %%\n", train::fixed(accuracy, 2).c_str());
  return 0;
}

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Trains MNIST");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", o.model, "Network")->check(CLI::IsMember({"cnn", "mlp"}));
  app.add_option("--data", o.data,
                 "Folder of the IDX files, or 'generated' for built-in digits (default: $TAPIR_DATA, datasets/mnist, "
                 "../shared/data/mnist, download, generated)");
  app.add_option("--epochs", o.epochs, "Passes over the training images")->check(CLI::PositiveNumber);
  app.add_option("--batch-size", o.batch_size, "Images per step")->check(CLI::PositiveNumber);
  app.add_option("--lr", o.lr, "Learning rate at the start of the cosine schedule")->check(CLI::PositiveNumber);
  app.add_option("--device", o.device, "cpu, cuda or cuda:N");
  app.add_option("--amp", o.amp, "Mixed precision; fp16 with a gradient scaler")
      ->check(CLI::IsMember({"off", "bf16", "fp16"}));
  app.add_option("--threads", o.threads, "Compute threads; 0: all")->check(CLI::NonNegativeNumber);
  app.add_option("--seed", o.seed, "Seed of weights, order and dropout");
  app.add_option("--checkpoint", o.checkpoint, "File to write after each epoch and on Ctrl-C");
  app.add_option("--checkpoint-every", o.checkpoint_every, "Also write it every so many steps; 0: not")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--resume", o.resume, "Checkpoint to go on from");
  app.add_option("--limit", o.limit, "Train and test on the first images only; 0: all")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(o);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mnist: %s\n", e.what());
    return 1;
  }
}
