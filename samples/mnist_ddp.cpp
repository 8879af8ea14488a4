// Trains a small convolutional network on MNIST in several processes: tapir-run --nproc 2 mnist_ddp. Each rank loads its own part of every
// epoch; the ranks' weights are the same, bit for bit, after each step. Without a launcher it is an ordinary training program.
#include <tapir/distributed/ddp.h>
#include <tapir/distributed/once.h>
#include <tapir/distributed/sync_batch_norm.h>
#include <tapir/tapir.h>

#include <CLI/CLI.hpp>
#include <cstdio>

using namespace tapir;

struct Net : nn::Module {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.padding = 1}};
  distributed::SyncBatchNorm bn1{16}, bn2{32};
  nn::Linear fc{32 * 7 * 7, 10};
  Tensor forward(const Tensor& x) {                 // (N, 1, 28, 28)
    Tensor h = max_pool2d(relu(bn1(conv1(x))), 2);  // (N, 16, 14, 14)
    h = max_pool2d(relu(bn2(conv2(h))), 2);         // (N, 32, 7, 7)
    return fc(flatten(h, 1));
  }
  TAPIR_FIELDS(conv1, conv2, bn1, bn2, fc)
};

struct Options {
  std::string data, checkpoint, backend = "tcp";
  int64_t epochs = 2, batch_size = 128, limit = 0;
  double lr = 2e-3;
};

/// The share of right answers, each rank counting a part of the set.
static double evaluate(Net& net, const data::TensorDataset<2>& test, const distributed::ProcessGroup& group) {
  InferenceMode guard;
  net.eval();
  data::DataLoader loader(test, {.batch_size = 500,
                                 .sampler = data::DistributedSampler(test.size(), group.rank(), group.size(),
                                                                     {.shuffle = false, .drop_last = true})});
  Tensor counts = zeros({2}, {.dtype = kInt64});  // right, all
  for (auto& [images, labels] : loader) {
    counts.select(0, 0).add_(sum(eq(argmax(net(images), 1), labels)));
    counts.select(0, 1).add_(images.size(0));
  }
  group.all_reduce(counts);
  net.train();
  return 100.0 * counts.select(0, 0).item() / std::max(1.0, counts.select(0, 1).item());
}

static void train_on(const Options& o, const distributed::ProcessGroup& group) {
  const bool first = group.rank() == 0;
  data::MnistData mnist = data::find_mnist(o.data);
  const int64_t n = o.limit ? std::min(o.limit, mnist.train.size()) : mnist.train.size();
  const data::TensorDataset train(mnist.train.tensors()[0].narrow(0, 0, n), mnist.train.tensors()[1].narrow(0, 0, n));
  data::DataLoader loader(train, {.batch_size = std::max<int64_t>(1, o.batch_size / group.size()),
                                  .sampler = data::DistributedSampler(n, group.rank(), group.size())});
  manual_seed(0);
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = o.lr, .weight_decay = 0.01});
  std::optional<train::Checkpoint> checkpoint;
  int64_t epoch = 0;
  if (!o.checkpoint.empty()) {
    checkpoint.emplace(o.checkpoint);
    checkpoint->add("model", net).add("optimizer", opt).add("loader", loader);
    if (group.launch().restart_count > 0) epoch = checkpoint->resume().value_or(0);
  }
  distributed::DistributedDataParallel ddp(net, {}, group);
  for (; epoch < o.epochs; ++epoch) {
    train::ProgressBar bar("epoch " + std::to_string(epoch + 1), loader.size(), {.unit = "batch", .enabled = first});
    for (auto& [images, labels] : loader) {
      opt.zero_grad();
      const Tensor loss = cross_entropy(ddp(images), labels);
      loss.backward();  // ends with the mean of all ranks' gradients
      opt.step();
      bar.update(1, bar.due() ? "loss " + std::to_string(loss.item()) : "");
    }
    bar.finish();
    const double accuracy = evaluate(net, mnist.test, group);
    check_internal(ddp.differing_parameters().empty(), "[mnist_ddp] expected the same weights on all ranks");
    if (first) std::printf("epoch %d: accuracy %.2f %%\n", int(epoch + 1), accuracy), std::fflush(stdout);
    if (checkpoint) distributed::once(group, [&] { checkpoint->save(epoch + 1); });
  }
}

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Trains on MNIST in several processes: tapir-run --nproc 2 mnist_ddp"};
  app.add_option("--data", o.data, "Folder of MNIST, or \"generated\"");
  app.add_option("--epochs", o.epochs, "Epochs")->check(CLI::PositiveNumber);
  app.add_option("--batch-size", o.batch_size, "Images in a step, over all ranks")->check(CLI::PositiveNumber);
  app.add_option("--lr", o.lr, "Learning rate");
  app.add_option("--limit", o.limit, "Train on the first images only; 0: all")->check(CLI::NonNegativeNumber);
  app.add_option("--checkpoint", o.checkpoint,
                 "Folder of checkpoints: written by rank 0 each epoch, read by all after a restart");
  app.add_option("--backend", o.backend, "tcp or gloo")->check(CLI::IsMember({"tcp", "gloo"}));
  CLI11_PARSE(app, argc, argv);
  try {
    train_on(o, distributed::init_process_group({.backend = o.backend}));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mnist_ddp: %s\n", e.what());
    return 1;
  }
}
