#include <tapir/distributed/data_parallel.h>

#include <tapir/tapir.h>

#include "../catch.h"

using namespace tapir;

static nn::Sequential small_net() { return nn::Sequential(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 2)); }

/// Three steps on parts of the batch against three on the whole.
static double furthest(const std::vector<Device>& devices, int64_t rows) {
  nn::Sequential net = small_net(), one = small_net();
  net.to(devices[0]), one.load_state_dict(net.state_dict());
  distributed::DataParallel parallel(net, devices);
  optim::SGD opt(net.parameters(), {.lr = 0.1}), whole(one.parameters(), {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    const Tensor x = randn({rows, 6}), y = randn({rows, 2});
    opt.zero_grad(), whole.zero_grad();
    mse_loss(parallel(x), y.to(devices[0])).backward();
    mse_loss(one(x), y).backward();
    opt.step(), whole.step();
  }
  double worst = 0;
  for (size_t i = 0; i < net.parameters().size(); ++i)
    worst = std::max(worst, (net.parameters()[i].detach().cpu() - one.parameters()[i].detach()).abs().max().item());
  return worst;
}

struct Mixed : nn::Module {
  nn::Dropout on{0.5}, off{0.5};
  Tensor forward(const Tensor& x) { return cat({on(x), off(x)}, 1); }
  TAPIR_FIELDS(on, off)
};

TEST_CASE("DataParallel: two forwards before a backward; steps between; parts of the module in eval()") {
  nn::Sequential net = small_net(), one = small_net();
  one.load_state_dict(net.state_dict());
  distributed::DataParallel parallel(net, {kCPU, kCPU});
  optim::SGD opt(net.parameters(), {.lr = 0.1}), whole(one.parameters(), {.lr = 0.1});
  for (int step = 0; step < 3; ++step) {
    const Tensor x = randn({4, 6});
    opt.zero_grad(), whole.zero_grad();
    (sum(parallel(x)) + sum(parallel(x * 2))).backward();
    (sum(one(x)) + sum(one(x * 2))).backward();
    opt.step(), whole.step();
    for (size_t i = 0; i < net.parameters().size(); ++i)
      CHECK(allclose(net.parameters()[i], one.parameters()[i], {.rtol = 1e-5, .atol = 1e-6}));
  }
  Mixed mixed;
  mixed.off.eval();
  distributed::DataParallel both(mixed, {kCPU, kCPU});
  const Tensor y = both(ones({8, 50}));
  CHECK(equal(y.narrow(1, 50, 50), ones({8, 50})));
  CHECK((y.narrow(0, 4, 4).narrow(1, 0, 50) == 0).any().item<bool>());
  mixed.off.train(), mixed.on.eval();
  const Tensor z = both(ones({8, 50}));
  CHECK(equal(z.narrow(1, 0, 50), ones({8, 50})));
  CHECK((z.narrow(0, 4, 4).narrow(1, 50, 50) == 0).any().item<bool>());
}

TEST_CASE("DataParallel: parts of a batch on several devices equal the whole on one") {
  CHECK(furthest({kCPU, kCPU}, 8) < 1e-6);
  CHECK(furthest({kCPU, kCPU, kCPU}, 7) < 1e-6);
  CHECK(furthest({kCPU, kCPU, kCPU}, 1) < 1e-6);  // fewer rows than devices
  nn::Linear net(3, 2);
  distributed::DataParallel parallel(net, {kCPU, kCPU});
  CHECK_THROWS_AS(parallel(zeros({0, 3})), ValueError);
  if (!cuda::is_available()) CHECK_THROWS_AS(distributed::DataParallel(net), ValueError);
  if (cuda::device_count() > 1) CHECK(furthest({Device(DeviceType::CUDA, 0), Device(DeviceType::CUDA, 1)}, 8) < 1e-5);
}
