#include <tapir/tapir.h>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
void near(const Tensor& got, std::vector<double> want) {
  const auto v = got.to_vector<double>();
  REQUIRE(v.size() == want.size());
  for (size_t i = 0; i < v.size(); ++i) CHECK(v[i] == Approx(want[i]).epsilon(1e-8).margin(1e-8));
}
nn::Linear layer() {
  nn::Linear fc(3, 2);
  fc.to(kFloat64);
  NoGrad guard;
  fc.weight.copy_(arange(0, 6).to(kFloat64).view({2, 3}) * 0.5 - 1), fc.bias.zero_();
  return fc;
}
std::string names_of(const StateDict& state) {
  std::string out;
  for (auto& [name, t] : state) out += name + " ";
  return out;
}
const Tensor x = tensor({{1., 2., -1.}}, {.dtype = kFloat64});
}  // namespace

TEST_CASE("weight_norm: names, values and gradients of PyTorch 2.15") {
  nn::Linear fc = layer();
  nn::weight_norm(fc);
  CHECK(names_of(fc.state_dict()) == "bias parametrizations.weight.original0 parametrizations.weight.original1 ");
  CHECK(fc.num_parameters() == 2 + 2 + 6);
  CHECK(fc.str() ==
        "ParametrizedLinear(\n  in_features=3, out_features=2, bias=True\n  (parametrizations): ModuleDict(\n    "
        "(weight): "
        "ParametrizationList(\n      (0): WeightNorm()\n    )\n  )\n)");
  auto parameters = fc.named_parameters();
  Tensor g = parameters[1].second, v = parameters[2].second;
  near(g, {1.118033989, 1.870828693});
  {
    NoGrad guard;
    g.mul_(2);
  }
  const Tensor y = fc(x);
  sum(y * y).backward();
  near(y, {-4, 2});
  near(g.grad(), {14.31083506, 2.138089935});
  near(v.grad(), {9.6, -19.2, 16.0, 6.857142857, 13.71428571, -11.42857143});

  nn::Linear twin = fc.clone();  // with its own originals
  {
    NoGrad guard;
    g.zero_();
  }
  near(twin(x), {-4, 2});
  near(fc(x), {0, 0});
  nn::Linear moved = std::move(twin);
  near(moved(x), {-4, 2});
  nn::remove_parametrizations(moved);
  CHECK(names_of(moved.state_dict()) == "weight bias ");
  CHECK(moved.weight.is_leaf());
  near(moved(x), {-4, 2});
  moved.load_state_dict(layer().state_dict());
}

TEST_CASE("spectral_norm: names, values, gradients and power iteration of PyTorch 2.15") {
  nn::Linear fc = layer();
  nn::spectral_norm(fc);
  CHECK(names_of(fc.state_dict()) ==
        "bias parametrizations.weight.original parametrizations.weight.0._u parametrizations.weight.0._v ");
  const StateDict state = fc.state_dict();
  Tensor u = state.at("parametrizations.weight.0._u"), v = state.at("parametrizations.weight.0._v");
  u.copy_(tensor({.6, .8}, {.dtype = kFloat64})), v.copy_(tensor({.6, 0., .8}, {.dtype = kFloat64}));
  const Tensor y = fc(x);
  sum(y * y).backward();
  near(y, {-1.015436414, 0.5077182071});
  near(fc.named_parameters()[1].second.grad(),
       {-0.8248888842, -1.787259255, 1.37481482, 0, 0.3437037051, -1.374814811});
  near(fc.state_dict().at("parametrizations.weight.0._u"), {-0.3713906827, 0.9284766883});
  near(fc.state_dict().at("parametrizations.weight.0._v"), {0.4242640713, 0.5656854253, 0.7071067793});
  fc.eval();
  const auto before = fc.state_dict().at("parametrizations.weight.0._u").to_vector<double>();
  fc(x);
  near(fc.state_dict().at("parametrizations.weight.0._u"), before);
  fc.train();
  for (int i = 0; i < 20; ++i) fc(x);
  CHECK(linalg::matrix_norm(fc.weight.detach(), 2).item() == Approx(1));
}

TEST_CASE("parametrized modules inside others: state, dtype, an optimizer's step; wrong names") {
  nn::Sequential net(nn::ConvTranspose2d(2, 3, 2), nn::Linear(5, 5));
  nn::spectral_norm(net[0]), nn::weight_norm(net[1], {.dim = std::nullopt}), nn::weight_norm(net[1], {.name = "bias"});
  CHECK(names_of(net.state_dict()).find("1.parametrizations.bias.original1 ") != std::string::npos);
  CHECK(net.state_dict().at("0.parametrizations.weight.0._u").shape() == Shape{3});
  CHECK(net.state_dict().at("1.parametrizations.weight.original0").shape() == Shape{});
  net.to(kFloat64);
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  const Tensor in = ones({1, 2, 4, 4}, {.dtype = kFloat64}), y = net(in);
  sum(y * y).backward();
  opt.step();
  CHECK(net(in).to_vector<double>() != y.to_vector<double>());
  nn::Sequential twin(nn::ConvTranspose2d(2, 3, 2), nn::Linear(5, 5));
  nn::spectral_norm(twin[0]), nn::weight_norm(twin[1], {.dim = std::nullopt}),
      nn::weight_norm(twin[1], {.name = "bias"});
  twin.to(kFloat64), twin.load_state_dict(net.state_dict()), twin.eval(), net.eval();
  near(twin(in), net(in).to_vector<double>());

  nn::Linear fc = layer();
  CHECK_THROWS_AS(nn::weight_norm(fc, {.name = "none"}), ValueError);
  CHECK_THROWS_AS(nn::weight_norm(fc, {.dim = 5}), ValueError);
  CHECK_THROWS_AS(nn::remove_parametrizations(fc), ValueError);
  nn::weight_norm(fc);
  CHECK_THROWS_AS(nn::weight_norm(fc), ValueError);
  CHECK(nn::is_parametrized(fc));
  CHECK(!nn::is_parametrized(fc, "bias"));
}
