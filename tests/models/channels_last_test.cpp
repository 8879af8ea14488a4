// A ResNet in channels_last order stays in it through a training step.
#include <tapir/core/generator.h>
#include <tapir/core/layout.h>
#include <tapir/models/resnet.h>
#include <tapir/ops/ops.h>
#include <tapir/optim/sgd.h>

#include "../catch.h"

using namespace tapir;

namespace {
template <class Net> std::vector<Tensor> gradients(Net& net, const Tensor& x, const Tensor& y) {
  optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<Tensor> out;
  cross_entropy(net(x), y).backward();
  for (const Tensor& p : net.parameters()) out.push_back(p.grad().detach().clone());
  opt.step();
  return out;
}
/// tolerance: of the gradients, relative to the largest element of each.
template <class Make> void check_stays(Make make, DType dtype, double tolerance) {
  manual_seed(1);
  auto plain = make();
  plain.to(dtype);
  auto last = plain.clone();
  const Tensor x = randn({4, 3, 48, 48}).to(dtype), y = randint(0, 10, {4});
  last.to(kChannelsLast);
  const Tensor images = x.to(kChannelsLast);
  const auto expected = gradients(plain, x, y);
  const int64_t before = layout_conversions();
  const auto got = gradients(last, images, y);
  CHECK(layout_conversions() == before);
  for (size_t i = 0; i < got.size(); ++i) {
    const double scale = max(abs(expected[i])).item() + 1e-3, off = max(abs(got[i] - expected[i])).item();
    INFO(i << " " << off << " of " << scale);
    CHECK(off < tolerance * scale);
  }
}
}  // namespace

TEST_CASE("a step of a channels_last ResNet converts no layout and gives the gradients of the contiguous one") {
  // A rounding in the first layers turns some units on that were off: float64 makes such units rare.
  const auto small = [] { return models::resnet18({.num_classes = 10, .width = 16, .small_images = true}); };
  const auto deep = [] { return models::resnet50({.num_classes = 10, .width = 8, .small_images = true}); };
  check_stays(small, kFloat64, 1e-6);
  check_stays(deep, kFloat64, 1e-6);
  check_stays(small, kFloat32, 0.05);
  check_stays(deep, kFloat32, 0.2);
}

TEST_CASE("a conversion is counted") {
  const Tensor x = randn({2, 3, 4, 5});
  const int64_t before = layout_conversions();
  (void)x.contiguous();
  CHECK(layout_conversions() == before);
  (void)x.to(kChannelsLast);
  CHECK(layout_conversions() == before + 1);
}
