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
