// Trains a ResNet on CIFAR-10: images from a folder of JPEGs (or the binary files), random crops and flips in worker threads, SGD with
// one cycle of the learning rate.
#include "quantized.h"
using namespace tapir;
namespace tf = data::transforms;

/// A ResNet for 32 x 32 images (He et al. 2015, arXiv 1512.03385), which halves them early: that makes it fast on a CPU.
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
  nn::Conv2d stem;
  nn::BatchNorm2d bn;
  std::vector<Block> blocks;
  nn::Linear fc;
  explicit CifarNet(int64_t width, int64_t depth)
      : stem(3, width, 3, {.padding = 1, .bias = false}), bn(width), fc(8 * width, 10) {
    for (int64_t out = 2 * width; out <= 8 * width; out *= 2)
      for (int64_t i = 0; i < depth; ++i) blocks.emplace_back(i ? out : out / 2, out, i ? 1 : 2);
  }
  Tensor forward(const Tensor& x) {  // (N, 3, 32, 32)
    Tensor h = relu(bn(stem(x)));
    for (Block& block : blocks) h = block(h);  // (N, 8 width, 4, 4)
    return fc(mean(h, {2, 3}));
  }
  TAPIR_FIELDS(stem, bn, blocks, fc)
};

/// Uint8 images to what the network sees.
template <class T> static auto prepared(const data::TensorDataset<2>& set, T transform) {
  return data::map(set, [transform](const Tensor& image, const Tensor& label) {
    return std::array<Tensor, 2>{transform(image), label};
  });
}

/// `limit` random images of a part; 0: all.
static data::TensorDataset<2> load(const std::string& path, data::Split split, int64_t limit) {
  const auto all = samples::from_option("--data", [&] { return data::cifar10(path, split); });
  if (!limit) return all;
  const Tensor some = tensor(data::permutation(all.size(), 0)).narrow(0, 0, std::min(limit, all.size()));
  return data::TensorDataset<2>(all.tensors()[0].index_select(0, some), all.tensors()[1].index_select(0, some));
}

/// Of a batch that is trained on: labels are smoothed.
static Tensor loss_of(CifarNet& net, const Tensor& images, const Tensor& labels, Device device,
                      const amp::AutocastOptions& precision) {
  amp::Autocast autocast(device, precision);
  return cross_entropy(net(images.contiguous(kChannelsLast)), labels, {.label_smoothing = 0.1});
}

/// {mean loss, percent right}
template <class Loader> static std::vector<double> evaluate(CifarNet& net, Loader& test, Device device) {
  InferenceMode guard;
  const bool training = net.training;
  net.eval();
  Tensor right = zeros({}, {.device = device}), losses = zeros({}, {.device = device});
  for (auto& [images, labels] : test) {
    const Tensor scores = net(images.contiguous(kChannelsLast));
    right.add_(sum(eq(argmax(scores, 1), labels))), losses.add_(cross_entropy(scores, labels));
  }
  net.train(training);
  return {losses.item() / double(test.size()), 100 * right.item() / double(test.dataset().size())};
}

struct CifarOptions {
  std::string path = {};
  int64_t width = 24, depth = 1, workers = 1, limit = 0;
  void add_to(samples::App& app) {
    app.add_option("--data", path,
                   "Folder or archive of CIFAR-10 (default: $TAPIR_DATA, datasets/cifar10, ../shared/data)");
    app.add_option("--width", width, "Channels of the first layer; each of the three stages doubles them")
        ->check(samples::whole(1));
    app.add_option("--depth", depth, "Blocks in a stage")->check(samples::whole(1));
    app.add_option("--workers", workers, "Threads that prepare images")->check(samples::whole(0, 4096));
    app.add_option("--limit", limit, "Use so many images only; 0: all")->check(samples::whole(0));
  }
};

static int learn(const samples::Options& o, const CifarOptions& c) {
  const Device device(o.device);
  const std::string found = samples::from_option("--data", [&] { return data::find_cifar10(c.path); });
  std::printf("data: %s\n", found.c_str());
  const tf::Normalize normalize{{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
  const tf::Compose augment(tf::RandomCrop{32, 4}, tf::RandomHorizontalFlip{}, normalize);
  data::LoaderOptions how{.batch_size = o.batch_size,
                          .shuffle = true,
                          .num_workers = c.workers,
                          .seed = o.seed,
                          .drop_last = true,
                          .device = device};
  data::DataLoader loader(prepared(load(found, data::Split::Train, c.limit), augment), how);
  data::DataLoader test(prepared(load(found, data::Split::Test, c.limit), normalize),
                        {.batch_size = 500, .num_workers = c.workers, .device = device});
  o.check_batch(loader.dataset().size());

  CifarNet net(c.width, c.depth);
  net.to(device);
  net.to(kChannelsLast);
  optim::SGD opt(net.parameters(), {.lr = o.lr, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
  optim::OneCycleLR schedule(opt, o.lr, {.total_steps = o.epochs * loader.size(), .pct_start = 0.2});
  amp::GradScaler scaler({.enabled = o.amp == "fp16"});
  std::printf("%lld parameters, %lld batches an epoch, %d threads\n", static_cast<long long>(net.num_parameters()),
              static_cast<long long>(loader.size()), get_num_threads());

  auto step = compile(
      [&](const Tensor& images, const Tensor& labels) {
        opt.zero_grad();
        Tensor loss = loss_of(net, images, labels, device, o.precision());
        scaler.scale(loss).backward();
        scaler.step(opt);
        scaler.update();
        return loss;
      },
      {.enabled = o.compile});

  samples::Run run(o, {"test loss", "test acc %"}, {.higher_is_better = true});
  run.keep("model", net).keep("optimizer", opt).keep("schedule", schedule).keep("scaler", scaler);
  run.keep("loader", loader).explain(step);
  while (run.next_epoch(loader.size())) {
    for (auto& [images, labels] : loader) {
      const Tensor loss = step(images, labels);
      schedule.step();
      if (!run.step(loss)) break;
    }
    if (run.interrupted()) return run.finish();
    run.end_epoch(evaluate(net, test, device));
  }
  std::printf("test accuracy %.2f %%; %s\n", run.last(1), loader.stats().str().c_str());
  if (o.quantize) {
    const Tensor example = (*test.begin())[0].contiguous(kChannelsLast);
    samples::print_quantized(net, example, true, "test acc %",
                             [&](CifarNet& q) { return evaluate(q, test, device)[1]; });
  }
  return run.finish();
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 6, .batch_size = 128, .lr = 0.1};
  CifarOptions cifar;
  samples::App app("Trains a ResNet on CIFAR-10", "cifar");
  cifar.add_to(app);
  app.add_flag("--quantize", o.quantize, "At the end, score and speed of the network with 8 and 4 bits");
  return samples::main(app, argc, argv, o, [&] { return learn(o, cifar); });
}
