// Trains a small convolutional network on MNIST in several processes: tapir-run --nproc 2 mnist_ddp. Each rank loads its own part of every
// epoch; the ranks' weights are the same, bit for bit, after each step. Without a launcher it is an ordinary training program.
#include <tapir/distributed/ddp.h>
#include <tapir/distributed/sync_batch_norm.h>

#include "digits.h"
#include "ranks.h"
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

/// Percent of right answers, each rank counting a part of the set.
static double accuracy(Net& net, const data::TensorDataset<2>& test, const distributed::ProcessGroup& group,
                       Device device) {
  InferenceMode guard;
  net.eval();
  data::DataLoader loader(test, {.batch_size = 500,
                                 .device = device,
                                 .sampler = data::DistributedSampler(test.size(), group.rank(), group.size(),
                                                                     {.shuffle = false, .drop_last = true})});
  Tensor right = zeros({}, {.dtype = kInt64, .device = device}), all = zeros_like(right);
  for (auto& [images, labels] : loader) {
    right.add_(sum(eq(argmax(net(images), 1), labels)));
    all.add_(images.size(0));
  }
  group.all_reduce(right), group.all_reduce(all);
  net.train();
  return 100 * right.item() / std::max(1.0, all.item());
}

static int learn(samples::Options& o, const samples::DigitOptions& digits, const samples::RankOptions& ranks) {
  const distributed::ProcessGroup group = ranks.join(o);
  const Device device(o.device);
  const data::MnistData mnist = digits.load({}, o.rank == 0);
  data::DataLoader loader(mnist.train, {.batch_size = o.batch_size,
                                        .device = device,
                                        .sampler = data::DistributedSampler(mnist.train.size(), group.rank(),
                                                                            group.size(), {.seed = o.seed})});
  Net net;
  net.to(device);
  distributed::DistributedDataParallel ddp(net, {}, group);  // all ranks take rank 0's weights
  optim::AdamW opt(net.parameters(), {.lr = o.lr, .weight_decay = 0.01});
  samples::Run run(o, {"test acc %"}, {.higher_is_better = true});
  run.keep("model", net).keep("optimizer", opt).keep("loader", loader);
  while (run.next_epoch(loader.size())) {
    for (auto& [images, labels] : loader) {
      opt.zero_grad();
      const Tensor loss = cross_entropy(ddp(images), labels);
      loss.backward();  // ends with the mean of all ranks' gradients
      opt.step();
      if (!run.step(loss)) break;
    }
    if (run.interrupted()) return run.finish();
    run.end_epoch({accuracy(net, mnist.test, group, device)});
    check_internal(ddp.differing_parameters().empty(), "[mnist_ddp] expected the same weights on all ranks");
  }
  if (!o.rank) std::printf("test accuracy %s %%\n", train::fixed(run.last(0), 2).c_str());
  return run.finish();
}

int main(int argc, char** argv) {
  samples::Options o{.epochs = 2, .batch_size = 128, .lr = 2e-3, .amp = {}, .can_compile = false};
  samples::DigitOptions digits;
  samples::RankOptions ranks;
  samples::App app("Trains on MNIST in several processes: tapir-run --nproc 2 mnist_ddp", "mnist_ddp");
  ranks.add_to(app);
  digits.add_to(app);
  return samples::main(app, argc, argv, o, [&] { return learn(o, digits, ranks); });
}
