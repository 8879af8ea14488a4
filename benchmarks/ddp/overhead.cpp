// One rank of ddp_overhead: trains a model by itself and in step with the others, and prints the milliseconds of a step. overhead.py starts it.
#include <tapir/distributed/ddp.h>
#include <tapir/models/resnet.h>
#include <tapir/tapir.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace tapir;

namespace {

struct Mlp : nn::Module {
  nn::Linear a{784, 1024}, b{1024, 1024}, c{1024, 1024}, d{1024, 10};
  Tensor forward(const Tensor& x) { return d(relu(c(relu(b(relu(a(x))))))); }
  TAPIR_FIELDS(a, b, c, d)
};

/// The least milliseconds of a step.
template <class F> double least(int steps, F&& step) {
  double best = 1e30;
  for (int i = 0; i < steps + 2; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    step();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (i >= 2) best = std::min(best, ms);
  }
  return best;
}

template <class M> void measure(M& net, const Tensor& x, const Tensor& y, int steps, const std::string& backend) {
  const auto group = distributed::init_process_group({.backend = backend});
  optim::SGD opt(net.parameters(), {.lr = 0.01, .momentum = 0.9});
  const auto step_of = [&](auto& model) {
    return [&] {
      opt.zero_grad();
      cross_entropy(model(x), y).backward();
      opt.step();
    };
  };
  const double alone = least(steps, step_of(net));
  distributed::DistributedDataParallel ddp(net, {}, group);
  group.barrier();
  Tensor times = tensor({alone, least(steps, step_of(ddp))});
  group.all_reduce(times, distributed::ReduceOp::Max);
  if (group.rank() == 0) std::printf("alone %.3f ddp %.3f\n", times.select(0, 0).item(), times.select(0, 1).item());
}

/// Of an all_reduce alone, for docs/scaling.md.
void measure_reductions(int steps, const std::string& backend) {
  const auto group = distributed::init_process_group({.backend = backend});
  for (const int64_t bytes : {4L, 65536L, 1L << 20, 4L << 20, 25L << 20}) {
    const Tensor x = ones({bytes / 4});
    group.barrier();
    Tensor ms = tensor({least(steps, [&] { group.all_reduce(x, distributed::ReduceOp::Mean); })});
    group.all_reduce(ms, distributed::ReduceOp::Max);
    if (group.rank() == 0) std::printf("all_reduce of %lld bytes: %.3f ms\n", static_cast<long long>(bytes), ms.item());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: ddp_overhead mlp|resnet|reduce STEPS tcp|gloo\n"), 2;
  try {
    set_num_threads(1);
    const int steps = std::atoi(argv[2]);
    if (std::strcmp(argv[1], "reduce") == 0) measure_reductions(steps, argv[3]);
    else if (std::strcmp(argv[1], "mlp") == 0) {
      Mlp net;
      measure(net, randn({64, 784}), randint(0, 10, {64}), steps, argv[3]);
    } else {
      auto net = models::resnet18({.num_classes = 10, .small_images = true});
      net.to(kChannelsLast);
      measure(net, randn({8, 3, 32, 32}).to(kChannelsLast), randint(0, 10, {8}), steps, argv[3]);
    }
    return 0;
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "ddp_overhead: %s\n", e.what()), 1;
  }
}
