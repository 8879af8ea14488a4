// The operation that was called names itself, not one that it is made of.
#include <limits>

#include <tapir/functional/distributions.h>
#include <tapir/functional/transforms.h>
#include <tapir/models/generate.h>
#include <tapir/models/lstm_lm.h>
#include <tapir/quant/quantize.h>

#include "../io/temporary.h"
#include "refused.h"

namespace {
constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kHuge = int64_t(1) << 40;
/// What stands in the brackets that the text of f's error begins with.
template <class F> std::string name_of(const F& f) {
  std::string text;
  try {
    f();
    return "no error";
  } catch (const ValueError& e) {
    text = e.what();
  } catch (const OutOfMemoryError& e) {
    text = e.what();
  }
  return text.starts_with('[') ? text.substr(1, text.find(']') - 1) : text;
}
#define NAMED(name, ...) CHECK(name_of([&] { (void)(__VA_ARGS__); }) == name)
}  // namespace

TEST_CASE("random tensors that cannot be name the call") {
  NAMED("rand", rand({-1}));
  NAMED("rand", rand({kHuge}));
  NAMED("randn", randn({-1}));
  NAMED("normal", normal(0, 1, {-1}));
  NAMED("randint", randint(0, 3, {-1}));
  NAMED("randperm", randperm(kHuge));
  const Tensor wide = ones({1}).expand({kHuge});
  NAMED("rand_like", rand_like(wide));
  NAMED("randn_like", randn_like(wide));
  NAMED("bernoulli", bernoulli(wide));
  NAMED("bernoulli", bernoulli(wide, .5));
  NAMED("eye", eye(kHuge));
}

TEST_CASE("layers that do not fit name themselves") {
  NAMED("Linear", nn::Linear(kMost, 1));
  NAMED("Linear", nn::Linear(kHuge, 1));
  NAMED("Bilinear", nn::Bilinear(kHuge, 2, 2));
  NAMED("Conv1D", nn::Conv1D(kHuge, 1));
  NAMED("Conv2d", nn::Conv2d(kHuge, 1, 3));
  NAMED("ConvTranspose2d", nn::ConvTranspose2d(kHuge, 1, 3));
  NAMED("Embedding", nn::Embedding(kHuge, 2));
  NAMED("EmbeddingBag", nn::EmbeddingBag(kHuge, 2));
  NAMED("LSTM", nn::LSTM(1, kHuge));
  NAMED("GRU", nn::GRU(kHuge, 1));
  NAMED("RNN", nn::RNN(1, kHuge));
  NAMED("LSTMCell", nn::LSTMCell(1, kHuge));
  NAMED("LayerNorm", nn::LayerNorm(Shape{kHuge}));
  NAMED("BatchNorm1d", nn::BatchNorm1d(kHuge));
  NAMED("InstanceNorm2d", nn::InstanceNorm2d(kHuge, {.affine = true}));
  NAMED("GroupNorm", nn::GroupNorm(1, kHuge));
  NAMED("RMSNorm", nn::RMSNorm(Shape{kHuge}));
  NAMED("PReLU", nn::PReLU(int64_t(kHuge)));
  NAMED("MultiheadAttention", nn::MultiheadAttention(kHuge, 1));
  NAMED("Transformer", nn::Transformer(8, 3));
  NAMED("TransformerEncoderLayer", nn::TransformerEncoderLayer(8, 2, {.dropout = -.1}));
  NAMED("TransformerDecoderLayer", nn::TransformerDecoderLayer(8, 3));
  NAMED("AdaptiveLogSoftmaxWithLoss", nn::AdaptiveLogSoftmaxWithLoss(kHuge, 10, {2}));
  NAMED("KVCache", models::KVCache(1, kHuge, 1, 4, 1));
  NAMED("LSTMLanguageModel", models::LSTMLanguageModel(3, 4, {.dropout = 2}));
}

TEST_CASE("more than 16 dimensions name what would have made them") {
  const Tensor x = ones(Dims::filled(16, 1));
  NAMED("Shape", ones({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  NAMED("unsqueeze", unsqueeze(x, 0));
  NAMED("stack", stack({x, x}));
  NAMED("one_hot", one_hot(x.to(kInt64), 2));
}

TEST_CASE("undefined tensors and wrong vectors name the function that got them") {
  const auto same = [](const Tensor& x) { return x; };
  NAMED("vjp", vjp(same, Tensor()));
  NAMED("vjp", vjp(same, ones({2}), ones({3})));
  NAMED("vjp", vjp(same, ones({2}), ones({2}, {.dtype = kFloat64})));
  NAMED("jvp", jvp(same, Tensor(), Tensor()));
  NAMED("jacobian", jacobian(same, Tensor()));
  NAMED("jacobian", jacobian([](const Tensor&) { return Tensor(); }, ones({2})));
  NAMED("hessian", hessian([](const Tensor& x) { return sum(x); }, Tensor()));
  nn::MultiheadAttention attention(4, 1);
  NAMED("MultiheadAttention", attention(ones({1, 4}), Tensor(), ones({1, 4})));
  nn::Linear layer(2, 2);
  StateDict state;
  for (auto& [name, t] : layer.state_dict()) state.append(name, name == "bias" ? Tensor() : t);
  for (const bool strict : {true, false}) {
    NAMED("load_state_dict", layer.load_state_dict(state, {.strict = strict}));
    CHECK(mentions(tapir_tests::message_of<ValueError>([&] { layer.load_state_dict(state, {.strict = strict}); }),
                   {"bias"}));
  }
}

TEST_CASE("a state without its entries names who cannot load it") {
  Tensor w = ones({2}).requires_grad_();
  optim::SGD sgd({w}, {.lr = .1});
  NAMED("SGD", sgd.load_state_dict(StateDict()));
  optim::StepLR schedule(sgd, 1);
  NAMED("StepLR", schedule.load_state_dict(StateDict()));
  StateDict late = schedule.state_dict();
  late["last_epoch"] = full({}, 0x1p60, {.dtype = kFloat64});
  CHECK(mentions(tapir_tests::message_of<ValueError>([&] { schedule.load_state_dict(late); }), {"[StepLR]", "2^53"}));
  optim::LBFGS lbfgs({w}, {});
  NAMED("LBFGS", lbfgs.load_state_dict({{"state.0.d", ones({3})}}));
  NAMED("EarlyStopping", train::EarlyStopping().load_state_dict(StateDict()));
  optim::SGD moved = std::move(sgd);
  NAMED("StepLR", optim::StepLR(sgd, 1));
}

TEST_CASE("functions that are made of others name themselves") {
  NAMED("pack_sequence", nn::pack_sequence({}));
  NAMED("pad_sequence", nn::pad_sequence({ones({2, 3}), ones({2, 4})}));
  NAMED("rrelu", rrelu(ones({2}), {0.1, std::numeric_limits<double>::infinity(), true}));
  NAMED("local_response_norm", local_response_norm(ones({1, 2, 3}), kMost));
  NAMED("Normal", distributions::Normal(ones({2}), ones({2})).sample({-1}));
  NAMED("next_token", models::next_token(full({1, 3}, NAN), {.sample = true}));
  nn::Sequential net(nn::Linear(2, 2));
  NAMED("quantize_dynamic", quant::quantize_dynamic_(net, {.skip = {"nope"}}));
  const tapir_tests::TemporaryFolder folder;
  NAMED("save_npz", io::save_npz(folder / "a.npz", {{std::string(70'000, 'a'), ones({1})}}));
  train::SummaryWriter writer(folder / "runs");
  NAMED("SummaryWriter", writer.add_image("x", ones({5, 2, 2}), 0));
  NAMED("SummaryWriter", writer.add_histogram("x", Tensor(), 0));
}

TEST_CASE("repeats beyond int64 are refused") {
  const Tensor one = ones({3}), none = zeros({0, 3});
  NAMED("repeat", repeat(one, {kMost}));
  NAMED("tile", tile(one, {kMost}));
  NAMED("repeat", repeat(none, {1, kMost}));
}

TEST_CASE("sizes whose products int64 does not hold are refused") {
  NAMED("fold", fold(ones({4, 0}), {kHuge * 4096, kHuge * 4096}, 2));
  NAMED("affine_grid", affine_grid(ones({2, 2, 3}), {2, 1, int64_t(1) << 61 | 1, 4}));
}
