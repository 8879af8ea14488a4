// A run that was interrupted and resumed beside one that was not: weights, moments, statistics and random state, bit for bit.
#include <functional>

#include <tapir/tapir.h>

#include "../io/temporary.h"
#include "../same_bits.h"
#include "row.h"

namespace reliability {
using namespace tapir;

namespace {

struct Mlp : nn::Module {
  nn::Linear a{36, 32}, b{32, 4};
  nn::Dropout drop{0.2};
  Tensor forward(const Tensor& x) { return b(drop(relu(a(flatten(x, 1))))); }
  TAPIR_FIELDS(a, b, drop)
};
struct Cnn : nn::Module {
  nn::Conv2d conv1{1, 8, 3, {.padding = 1}}, conv2{8, 16, 3, {.padding = 1}};
  nn::BatchNorm2d bn{8};
  nn::Dropout drop{0.3};
  nn::Linear fc{16 * 3 * 3, 4};
  Tensor forward(const Tensor& x) { return fc(drop(flatten(max_pool2d(relu(conv2(relu(bn(conv1(x))))), 2), 1))); }
  TAPIR_FIELDS(conv1, conv2, bn, drop, fc)
};
struct Recurrent : nn::Module {
  nn::LSTM lstm{6, 16};
  nn::Linear fc{16, 4};
  Tensor forward(const Tensor& x) {
    return fc(lstm(x.reshape({-1, 6, 6}).transpose(0, 1).contiguous()).output.select(0, 5));
  }
  TAPIR_FIELDS(lstm, fc)
};
struct Attention : nn::Module {
  nn::Linear in{6, 16}, fc{16, 4};
  nn::TransformerEncoderLayer layer{16, 2, {.dim_feedforward = 32, .dropout = 0.1, .batch_first = true}};
  Tensor forward(const Tensor& x) { return fc(mean(layer(in(x.reshape({-1, 6, 6}))), {1})); }
  TAPIR_FIELDS(in, fc, layer)
};

constexpr int64_t kSteps = 16;  // two epochs of eight batches

struct Plan {
  std::string folder;
  int64_t from = 0, until = kSteps;
  bool compiled = false;
};

/// Everything of a training program that has a state; it begins anew, or where the folder's checkpoint ends, and saves at its own end.
template <class Net, class MakeOpt> StateDict train(const Plan& plan, MakeOpt make_opt) {
  manual_seed(plan.from ? 1234 : 7);  // a resumed program may have begun otherwise
  Net net;
  auto opt = make_opt(net.parameters());
  optim::StepLR schedule(opt, 5, {.gamma = 0.5});
  amp::GradScaler scaler({.init_scale = 1024, .growth_interval = 3});
  const Tensor images = sin(arange(64. * 36) * 0.37).reshape({64, 1, 6, 6}).to(kFloat32), labels = arange(64) % 4;
  data::DataLoader loader(data::TensorDataset(images, labels), {.batch_size = 8, .shuffle = true, .num_workers = 2});
  train::Checkpoint checkpoint(plan.folder, {.keep_last = 0});
  checkpoint.add("model", net)
      .add("optimizer", opt)
      .add("schedule", schedule)
      .add("scaler", scaler)
      .add("loader", loader);
  if (plan.from) check(checkpoint.resume() == std::optional<int64_t>(plan.from), "no checkpoint of step {}", plan.from);
  auto step = compile(
      [&](const Tensor& x, const Tensor& y) {
        opt.zero_grad();
        const Tensor loss = cross_entropy(net(x), y);
        scaler.scale(loss).backward();
        scaler.step(opt);
        scaler.update();
        return loss;
      },
      {.enabled = plan.compiled});
  for (int64_t i = plan.from; i < plan.until;)
    for (auto& [x, y] : loader) {
      step(x, y);
      schedule.step();
      if (++i == plan.until) break;
    }
  checkpoint.save(plan.until);
  return io::load_safetensors(plan.folder + "/checkpoint-" + std::to_string(plan.until) + ".safetensors");
}

bool same(const StateDict& a, const StateDict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, t] : a)
    if (!b.contains(name) || !tapir_tests::same_bits(t, b.at(name))) return false;
  return true;
}

struct Counts {
  int runs = 0, other = 0;
};
template <class Net, class MakeOpt> void compare(const Settings& settings, Counts& counts, MakeOpt make_opt) {
  for (const bool compiled : {false, true}) {
    set_num_threads(2);
    const tapir_tests::TemporaryFolder folder;
    const StateDict whole = train<Net>({.folder = folder / "whole", .compiled = compiled}, make_opt);
    for (int64_t stop = 1; stop < kSteps; stop += settings.rounds(1, 5)) {
      const std::string part = folder / ("part" + std::to_string(stop));
      set_num_threads(2);
      train<Net>({.folder = part, .until = stop, .compiled = compiled}, make_opt);
      set_num_threads(stop % 2 ? 1 : 3);  // the other half of the run has another number of threads
      counts.other += !same(whole, train<Net>({.folder = part, .from = stop, .compiled = compiled}, make_opt));
      ++counts.runs;
    }
  }
}

}  // namespace

Figure resumed(const Settings& settings) {
  const ScopedMode<bool> deterministic(modes.deterministic, true);
  const int before = get_num_threads();
  Counts counts;
  compare<Mlp>(settings, counts, [](const auto& p) { return optim::AdamW(p, {.lr = 1e-2}); });
  compare<Cnn>(settings, counts, [](const auto& p) { return optim::SGD(p, {.lr = 0.05, .momentum = 0.9}); });
  compare<Recurrent>(settings, counts, [](const auto& p) { return optim::RMSprop(p, {.lr = 1e-3}); });
  compare<Attention>(settings, counts, [](const auto& p) { return optim::Adam(p, {.lr = 1e-3}); });
  set_num_threads(before);
  return {count(counts.other) + " of " + count(counts.runs), counts.other == 0 && counts.runs > 0};
}

}  // namespace reliability
