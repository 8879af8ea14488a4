// Counts that nobody can mean, and memory that is not there: typed errors at once. No exception of the standard library reaches a caller.
#include <tapir/models/gpt2.h>

#include "../io/temporary.h"
#include "refused.h"

namespace {
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEEDS_BAD_ALLOC SKIP_TEST("the sanitizers' `new` ends the process where there is no memory")
#else
#define NEEDS_BAD_ALLOC
#endif
/// The text of the ValueError or OutOfMemoryError that f throws; whatever else it throws fails the test.
template <class F> std::string typed(const F& f) {
  try {
    f();
  } catch (const ValueError& e) {
    return e.what();
  } catch (const OutOfMemoryError& e) {
    return e.what();
  }
  return "";
}
#define TYPED(call, ...) CHECK(mentions(typed([&] { call; }), {__VA_ARGS__}))
}  // namespace

TEST_CASE("parts of a tensor") {
  const Tensor x = ones({3, 2}), none = ones({0, 2}), wide = ones({1}).expand({int64_t(1) << 40});
  for (const int64_t n : {int64_t(1) << 40, kMost}) {
    INFO(n);
    REFUSED(tensor_split(x, n), "tensor_split", "16777216", std::to_string(n).c_str());
    REFUSED(chunk(none, n), "chunk", "16777216");
    CHECK(chunk(x, n).size() == 3);
    CHECK(split(x, n).size() == 1);
  }
  REFUSED(unbind(wide), "unbind", "16777216");
  REFUSED(split(wide, 1), "split", "16777216");
  REFUSED(hsplit(ones({2, 6}), 4), "hsplit");
}

TEST_CASE("results that no memory holds") {
  NEEDS_BAD_ALLOC;
  const Tensor x = ones({2, 3}), wide = ones({1}).expand({int64_t(1) << 45});
  TYPED(wide.to_vector<float>(), "to_vector", "35184372088832");
  TYPED(wide.to_vector<bool>(), "to_vector");
  TYPED(ones({1}, {.dtype = kInt8}).expand({kMost}).to_vector<double>(), "to_vector");
  for (const int64_t n : {int64_t(1) << 45, int64_t(1) << 60, kMost}) {
    INFO(n);
    TYPED(pad(ones({1, 2, 3}), {0, n}, {.mode = "replicate"}), "[pad]");
    TYPED(interpolate(ones({1, 1, 4}), {.size = n}), "[");
    TYPED(interpolate(ones({1, 1, 4}), {.size = n, .mode = "linear"}), "[");
    TYPED(histc(ones({3}), n), "[");
    TYPED(bincount(tensor({1, 2}), {}, n), "[");
    TYPED(one_hot(tensor({1, 2}), n), "[");
    TYPED(tril_indices(n, n), "[");
    TYPED(tile(x, {n}), "[");
    TYPED(repeat_interleave(x, n), "[");
    TYPED(repeat_interleave(tensor({1, 2}), tensor({n, n})), "[");
    TYPED(randperm(n), "[");
    TYPED(eye(n), "[");
    TYPED(adaptive_avg_pool1d(ones({1, 1, 4}), n), "[");
    TYPED(multinomial(ones({3}), n, {.replacement = true}), "[");
    TYPED(nn::pad_sequence({x}, {.total_length = n}), "[");
    TYPED(data::transforms::resize(ones({3, 4, 4}, {.dtype = kUInt8}), n, 4), "resize");
    TYPED(data::transforms::Resize{n}(ones({3, 4, 4}, {.dtype = kUInt8})), "esize");
  }
}

TEST_CASE("data sets, orders and histograms of 2^63 - 1") {
  TYPED(data::permutation(kMost, 1), "permutation", "9223372036854775807");
  TYPED(data::SequentialSampler(kMost).indices(0), "SequentialSampler");
  TYPED(data::RandomSampler(kMost).indices(0), "permutation");
  TYPED(data::WeightedRandomSampler({1, 2}, kMost).indices(0), "WeightedRandomSampler");
  TYPED(data::DistributedSampler(kMost, 1, 3).indices(0), "permutation");
  TYPED(data::DistributedSampler(kMost, 1, 3, {.shuffle = false}).indices(0), "SequentialSampler");
  struct Endless {
    int64_t size() const { return kMost; }
    Tensor get(int64_t) const { return ones({1}); }
  };
  for (const bool shuffle : {false, true}) {
    data::DataLoader loader(Endless(), {.batch_size = 4, .shuffle = shuffle});
    TYPED(loader.begin(), shuffle ? "permutation" : "SequentialSampler");
  }
  TYPED(data::random_split(Endless(), {0.5, 0.5}), "permutation");
  TYPED(quant::Observer({.bins = int64_t(1) << 60}), "Observer", "bins");
  TYPED(train::ConfusionMatrix(int64_t(1) << 32), "ConfusionMatrix", "4294967296");
  NEEDS_BAD_ALLOC;
  tapir_tests::TemporaryFolder folder;
  train::SummaryWriter writer(folder.path);
  for (const int64_t bins : {int64_t(1) << 45, int64_t(1) << 60, kMost})
    TYPED(writer.add_histogram("x", ones({3}), 0, bins), "SummaryWriter");
}

TEST_CASE("fractions that add up to a little more than 1 stay within the data") {
  data::TensorDataset all(arange(0, 4000000));
  const auto parts = data::random_split(all, {0.50000024, 0.50000024, 0});
  CHECK(parts[0].size() + parts[1].size() + parts[2].size() == 4000000);
  CHECK(parts[2].size() == 0);
}

TEST_CASE("negative epochs and counts") {
  optim::SGD opt({ones({2}).requires_grad_()}, {.lr = 0.1});
  optim::StepLR step(opt, 2);
  const auto state = [&](int64_t epoch) {
    StateDict s = step.state_dict();
    s.set("last_epoch", full({}, epoch));
    return s;
  };
  REFUSED(step.load_state_dict(state(-9)), "StepLR", "last_epoch", "-9");
  step.load_state_dict(state(5));
  CHECK(step.last_epoch() == 5);
  REFUSED(optim::MultiStepLR(opt, {-3, 2}), "MultiStepLR", "milestones", "-3");
  optim::ConstantLR constant(opt);
  REFUSED(optim::SequentialLR(opt, {&constant, &step}, {-1}), "SequentialLR", "milestones", "-1");

  data::DataLoader loader(data::TensorDataset(ones({4, 2})), {.batch_size = 2});
  REFUSED(loader.set_epoch(-7), "DataLoader", "epoch", "-7");
  StateDict place = loader.state_dict();
  place.set("epoch", full({}, -7));
  REFUSED(loader.load_state_dict(place), "DataLoader", "epoch", "-7");
  CHECK(loader.epoch() == 0);
  REFUSED(data::RandomSampler(4).indices(-7), "RandomSampler", "-7");
  REFUSED(data::WeightedRandomSampler({1, 2}, 2).indices(-7), "WeightedRandomSampler", "-7");
  REFUSED(data::DistributedSampler(4, 0, 2).indices(-7), "DistributedSampler", "-7");

  train::EarlyStopping stopping;
  for (const char* name : {"epochs", "waited"}) {
    StateDict s = stopping.state_dict();
    s.set(name, full({}, -2));
    REFUSED(stopping.load_state_dict(s), "EarlyStopping", name, "-2");
  }
}

TEST_CASE("layers by negative counts, and norms over nothing") {
  REFUSED(nn::LayerNorm(Shape{}), "LayerNorm", "at least 1-dimensional", "()");
  REFUSED(nn::LayerNorm(Shape{-3}, {.elementwise_affine = false}), "LayerNorm", "-3");
  REFUSED(nn::RMSNorm(Shape{}), "RMSNorm", "at least 1-dimensional");
  REFUSED(nn::RMSNorm(Shape{2, -3}, {.elementwise_affine = false}), "RMSNorm", "-3");
  REFUSED(nn::GroupNorm(2, -4, {.affine = false}), "GroupNorm", "num_channels", "-4");
  REFUSED(nn::GroupNorm(2, 0), "GroupNorm", "num_channels", "0");
  for (const int64_t n : {-1, 0}) {
    REFUSED(nn::RNN(2, 3, {.num_layers = n}), "RNN", "num_layers");
    REFUSED(nn::LSTM(2, 3, {.num_layers = n}), "LSTM", "num_layers");
    REFUSED(nn::GRU(2, 3, {.num_layers = n}), "GRU", "num_layers");
  }
  REFUSED(nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2), -1), "TransformerEncoder", "num_layers", "-1");
  REFUSED(nn::Transformer(4, 2, {.num_decoder_layers = -1}), "[Transformer]", "num_decoder_layers", "-1");
  REFUSED(nn::AdaptiveLogSoftmaxWithLoss(4, 10, {5}, {.div_value = 0}), "AdaptiveLogSoftmaxWithLoss", "div_value");
  REFUSED(nn::AdaptiveLogSoftmaxWithLoss(-4, 10, {5}), "AdaptiveLogSoftmaxWithLoss", "in_features", "-4");
  REFUSED(models::GPT2Model(models::GPT2Config{.n_layer = -1}), "GPT2Model", "n_layer", "-1");
}

TEST_CASE("a name that occurs twice is nobody's") {
  nn::Linear net(2, 3);
  StateDict twice = net.state_dict();
  twice.append("weight", ones({3, 2}));
  const Values before = values(net.weight);
  REFUSED(net.load_state_dict(twice), "load_state_dict", "weight", "twice");
  CHECK(values(net.weight) == before);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  optim::StepLR step(opt, 2);
  const auto doubled = [](StateDict s) {
    s.append(s.begin()->first, s.begin()->second);
    return s;
  };
  REFUSED(opt.load_state_dict(doubled(opt.state_dict())), "SGD", "twice");
  REFUSED(step.load_state_dict(doubled(step.state_dict())), "StepLR", "twice");
}
