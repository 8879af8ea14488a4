#include <tapir/tapir.h>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
std::vector<std::string> names(nn::Module& m) {
  std::vector<std::string> out;
  for (auto& [name, p] : m.named_parameters()) out.push_back(name);
  return out;
}
bool near(const Tensor& a, const Tensor& b) { return allclose(a, b, {.rtol = 1e-4, .atol = 1e-6}); }
double largest(const Tensor& x) { return x.detach().abs().max().item(); }
}  // namespace

TEST_CASE("Weights of recurrent layers have PyTorch's names, shapes and ranges") {
  nn::LSTM lstm(3, 5, {.num_layers = 2, .bidirectional = true, .proj_size = 2});
  const std::vector<std::string> want = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0"};
  const auto got = names(lstm);
  REQUIRE(got.size() == 20);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(got[i] == want[i]);
    CHECK(got[5 + i] == want[i] + "_reverse");
    CHECK(got[15 + i] == want[i].substr(0, want[i].size() - 1) + "1_reverse");
  }
  const StateDict state = lstm.state_dict();
  CHECK(state.at("weight_ih_l1").shape() == Shape{20, 4});
  CHECK(state.at("weight_hh_l1_reverse").shape() == Shape{20, 2});
  CHECK(state.at("weight_hr_l0").shape() == Shape{2, 5});
  for (const Tensor& p : lstm.parameters()) CHECK(largest(p) <= 1 / std::sqrt(5.0));
  CHECK(lstm.str() == "LSTM(3, 5, proj_size=2, num_layers=2, bidirectional=True)");
  nn::GRU plain(4, 3, {.bias = false, .batch_first = true});
  CHECK(names(plain) == std::vector<std::string>{"weight_ih_l0", "weight_hh_l0"});
  CHECK(plain.str() == "GRU(4, 3, bias=False, batch_first=True)");
  nn::RNNCell cell(4, 3, {.nonlinearity = "relu"});
  CHECK(names(cell) == std::vector<std::string>{"weight_ih", "weight_hh", "bias_ih", "bias_hh"});
}

TEST_CASE("Clones of recurrent layers are deep, and compute the same") {
  nn::GRU gru(3, 4, {.num_layers = 2});
  nn::GRU copy = gru.clone();
  const Tensor x = randn({5, 2, 3});
  CHECK(copy(x).output.to_vector<float>() == gru(x).output.to_vector<float>());
  NoGrad guard;
  for (Tensor p : copy.parameters()) p.zero_();
  CHECK(largest(gru(x).output) > 0);
}

TEST_CASE("Batch first, unbatched and packed inputs of an LSTM agree") {
  manual_seed(4);
  nn::LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true}),
      first(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  first.load_state_dict(lstm.state_dict());
  const Tensor x = randn({5, 2, 3});
  const auto [y, state] = lstm(x);
  CHECK(y.shape() == Shape{5, 2, 8});
  CHECK(state.c.shape() == Shape{4, 2, 4});
  CHECK(near(first(x.transpose(0, 1)).output.transpose(0, 1), y));
  const auto [one, one_state] = lstm(x.select(1, 1));
  CHECK(one.shape() == Shape{5, 8});
  CHECK(near(one, y.select(1, 1)));
  CHECK(near(one_state.c, state.c.select(1, 1)));
  const auto [packed, packed_state] = lstm(nn::pack_padded_sequence(x, {3, 5}, {.enforce_sorted = false}));
  const auto [padded, lengths] = nn::pad_packed_sequence(packed);
  CHECK(lengths == std::vector<int64_t>{3, 5});
  CHECK(near(padded.select(1, 1), y.select(1, 1)));
  CHECK(near(padded.narrow(0, 0, 3).select(1, 0), lstm(x.narrow(0, 0, 3)).output.select(1, 0)));
  CHECK(largest(padded.narrow(0, 3, 2).select(1, 0)) == 0);
  CHECK(near(packed_state.h.select(1, 0), lstm(x.narrow(0, 0, 3)).state.h.select(1, 0)));
}

TEST_CASE("A state carries a sequence on, in layers and cells") {
  nn::LSTM lstm(3, 4);
  const Tensor x = randn({6, 2, 3});
  const auto [whole, end] = lstm(x);
  const auto [front, middle] = lstm(x.narrow(0, 0, 2));
  CHECK(near(lstm(x.narrow(0, 2, 4), middle).output, whole.narrow(0, 2, 4)));
  nn::LSTMCell cell(3, 4);
  StateDict state;
  for (const char* name : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"})
    state.append(name, lstm.state_dict().at(name + std::string("_l0")));
  cell.load_state_dict(state);
  nn::LSTMState s;
  for (int64_t t = 0; t < 6; ++t) s = cell(x.select(0, t), s);
  CHECK(near(s.c, end.c.select(0, 0)));
  CHECK(cell(x.select(0, 0).select(0, 1)).h.shape() == Shape{4});
}

TEST_CASE("Dropout stands between layers, in training only") {
  nn::GRU gru(3, 4, {.num_layers = 2, .dropout = 1});
  const Tensor x = randn({2, 2, 3}), y = randn({2, 2, 3});
  CHECK(near(gru(x).output, gru(y).output));  // layer 1 sees zeros
  CHECK(largest(gru(x).h_n.select(0, 0) - gru(y).h_n.select(0, 0)) > 0);
  gru.eval();
  CHECK_FALSE(near(gru(x).output, gru(y).output));
}

TEST_CASE("bfloat16 layers compute in float32 and give bfloat16") {
  nn::GRU gru(3, 4);
  const Tensor x = randn({4, 2, 3});
  const Tensor wide = gru(x.to(kBFloat16).to(kFloat32)).output;
  gru.to(kBFloat16);
  const Tensor y = gru(x.to(kBFloat16)).output;
  CHECK(y.dtype() == kBFloat16);
  CHECK(largest(y.to(kFloat32) - wide) < 0.02);
}

TEST_CASE("review 11: pack_padded_sequence takes its lengths as a tensor") {
  const Tensor x = randn({4, 3, 2});
  const nn::PackedSequence want = nn::pack_padded_sequence(x, {2, 4, 1}, {.enforce_sorted = false});
  for (const Tensor& lengths : {tensor({2, 4, 1}), tensor({2, 4, 1}, {.dtype = kInt32})}) {
    const nn::PackedSequence got = nn::pack_padded_sequence(x, lengths, {.enforce_sorted = false});
    CHECK(got.data.to_vector<float>() == want.data.to_vector<float>());
    CHECK(got.batch_sizes.to_vector<int64_t>() == want.batch_sizes.to_vector<int64_t>());
    CHECK(got.sorted_indices.to_vector<int64_t>() == want.sorted_indices.to_vector<int64_t>());
  }
  CHECK_THROWS_AS(nn::pack_padded_sequence(x, tensor({2., 1., 1.})), ValueError);
  CHECK_THROWS_AS(nn::pack_padded_sequence(x, tensor({{2, 1, 1}})), ValueError);
  CHECK_THROWS_AS(nn::pack_padded_sequence(x, tensor({2, 4})), ValueError);
  CHECK_THROWS_AS(nn::pack_padded_sequence(x, Tensor()), ValueError);
}

// Runs again with TAPIR_CHECK=1, where kernels and composite forms are compared.
TEST_CASE("recurrent layers in a checkpoint, and with a weight that is frozen before backward", "[checked]") {
  manual_seed(0);
  nn::LSTM lstm(4, 5, {.num_layers = 2});
  const Tensor x = randn({3, 2, 4}).requires_grad_(), other = x.detach().requires_grad_();
  square(lstm(x).output).sum().backward();
  const Tensor by_weight = lstm.parameters()[0].grad().clone();
  lstm.zero_grad();
  square(checkpoint([&](const Tensor& t) { return lstm(t).output; }, other)).sum().backward();
  CHECK(near(other.grad(), x.grad()));
  CHECK(near(lstm.parameters()[0].grad(), by_weight));

  const Tensor y = lstm(x).output;
  lstm.parameters()[0].requires_grad_(false);
  y.sum().backward();
  CHECK(isfinite(x.grad()).all().item<bool>());
}
