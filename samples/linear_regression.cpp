// First steps: fits y = 3 x0 - 2 x1 + 1 to noisy points. Tensors, a module, gradients, an optimizer; nothing else.
#include "run.h"
using namespace tapir;

int main(int argc, char** argv) {
  samples::Options o{.epochs = 20, .batch_size = 32, .lr = 0.05, .amp = {}};
  samples::App app("Fits a line through noisy points", "linear_regression");
  return samples::main(app, argc, argv, o, [&] {
    const Device device(o.device);
    const Tensor x = randn({1024, 2}), noise = randn({1024, 1}) * 0.1;
    const Tensor truth = tensor(std::vector<float>{3, -2}).view({2, 1});
    const Tensor y = matmul(x, truth) + 1 + noise;  // (1024, 1)

    nn::Linear line(2, 1);
    line.to(device);
    optim::SGD opt(line.parameters(), {.lr = o.lr});
    data::DataLoader loader(data::TensorDataset<2>(x, y),
                            {.batch_size = o.batch_size, .shuffle = true, .seed = o.seed, .device = device});

    auto step = compile(
        [&](const Tensor& points, const Tensor& values) {
          opt.zero_grad();
          Tensor loss = mse_loss(line(points), values);
          loss.backward();
          opt.step();
          return loss;
        },
        {.enabled = o.compile});

    samples::Run run(o, {"largest error"});
    run.keep("model", line).keep("optimizer", opt).keep("loader", loader).explain(step);
    while (run.next_epoch(loader.size())) {
      for (auto& [points, values] : loader) {
        if (!run.step(step(points, values))) break;
      }
      if (run.interrupted()) return run.finish();
      NoGrad guard;
      run.end_epoch({max(abs(line.weight.detach().cpu().view({2, 1}) - truth)).item()});
    }
    std::printf("y = %.3f x0 %+.3f x1 %+.3f (the truth: 3, -2, 1)\n", line.weight[0][0].item(),
                line.weight[0][1].item(), line.bias[0].item());
    return run.finish();
  });
}
