#include <tapir/tapir.h>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
struct Net : nn::Module {
  nn::Linear fc{2, 3};
  nn::BatchNorm1d bn{3};
  Tensor forward(const Tensor& x) { return bn(fc(x)); }
  TAPIR_FIELDS(fc, bn)
};
void fill(Net& net, double value) {
  NoGrad guard;
  for (Tensor& p : net.parameters()) p.fill_(value);
}
}  // namespace

TEST_CASE("averages: the mean of all, or exponential; the model stays its own") {
  Net net;
  fill(net, 1);
  train::AveragedModel mean(net), ema(net, {.decay = 0.75});
  for (double value : {1., 3., 8.}) {
    fill(net, value);
    mean.update_parameters(net), ema.update_parameters(net);
  }
  CHECK(mean.module.fc.weight.to_vector<float>() == std::vector<float>(6, 4));
  CHECK(ema.module.fc.bias.to_vector<float>() == std::vector<float>(3, 3.125f));  // 0.75 (0.75 + 0.75) + 2
  CHECK(net.fc.bias.to_vector<float>() == std::vector<float>(3, 8));
  const StateDict state = ema.state_dict();
  CHECK(state.at("n_averaged").item<int64_t>() == 3);
  train::AveragedModel other(net, {.decay = 0.75});
  other.load_state_dict(state);
  CHECK(other.n_averaged == 3);
  CHECK(other.module.fc.bias.to_vector<float>() == std::vector<float>(3, 3.125f));
  CHECK(error_of([&] { train::AveragedModel(net, {.decay = 1.5}); }).find("decay") != std::string::npos);
}

TEST_CASE("buffers are the model's, or averaged where they are numbers with a fraction") {
  Net net;
  train::AveragedModel plain(net), averaged(net, {.use_buffers = true});
  for (double value : {1., 2.}) {
    net.bn.running_mean.fill_(value);
    net.bn.num_batches_tracked.fill_(value);
    plain.update_parameters(net), averaged.update_parameters(net);
  }
  CHECK(plain.module.bn.running_mean.to_vector<float>() == std::vector<float>(3, 2));
  CHECK(averaged.module.bn.running_mean.to_vector<float>() == std::vector<float>(3, 1.5f));
  CHECK(averaged.module.bn.num_batches_tracked.item<int64_t>() == 2);
}

TEST_CASE("update_bn computes plain averages over all batches and leaves modes as they were") {
  Net net;
  fill(net, 1);
  net.eval();
  net.bn.running_mean.fill_(99);
  std::vector<std::pair<Tensor, int>> batches;
  for (double value : {1., 2., 6.}) batches.emplace_back(full({4, 2}, value), 0);
  train::update_bn(batches, net);
  CHECK(net.bn.running_mean.to_vector<float>() == std::vector<float>(3, 7));  // 2 x + 1, x: 3 on average
  CHECK(net.bn.num_batches_tracked.item<int64_t>() == 3);
  CHECK(!net.bn.training);
  CHECK(net.bn.options.momentum == 0.1);
}

TEST_CASE("an average of 2^63 - 1 models takes no other") {
  Net net;
  train::AveragedModel mean(net);
  const int64_t most = std::numeric_limits<int64_t>::max();
  mean.n_averaged = most;
  CHECK(error_of([&] { mean.update_parameters(net); }).find("[AveragedModel] expected n_averaged") == 0);
  CHECK(mean.n_averaged == most);
}
