#include <tapir/tapir.h>

#include <map>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
struct Heads : nn::Module {
  nn::ModuleDict heads;
  nn::ParameterList scales;
  nn::ParameterDict shifts;
  std::map<std::string, nn::Linear> more;
  Heads() : scales({ones(2), ones(3)}) {
    heads.insert("cls", nn::Linear(2, 3));
    heads.insert("act", nn::ReLU());
    shifts.insert("b", zeros(2));
    more.emplace("x", nn::Linear(1, 1, {.bias = false}));
  }
  Tensor forward(const Tensor& x) { return heads["act"](heads["cls"](x + shifts["b"])) * scales[1]; }
  TAPIR_FIELDS(heads, scales, shifts, more)
};
}  // namespace

TEST_CASE("modules and parameters by name and number: names, state, clone, text") {
  Heads net;
  std::string names;
  for (auto& [name, p] : net.named_parameters()) names += name + " ";
  CHECK(names == "heads.cls.weight heads.cls.bias scales.0 scales.1 shifts.b more.x.weight ");
  Heads twin = net.clone();
  twin.load_state_dict(net.state_dict());
  CHECK(twin(ones({1, 2})).to_vector<float>() == net(ones({1, 2})).to_vector<float>());
  CHECK(!twin.shifts["b"].is_same(net.shifts["b"]));
  CHECK(net.heads.str() ==
        "ModuleDict(\n  (cls): Linear(in_features=2, out_features=3, bias=True)\n  (act): ReLU()\n)");
  CHECK(
      net.scales.str() ==
      "ParameterList(\n  (0): Parameter containing: [float32 of size 2]\n  (1): Parameter containing: [float32 of size "
      "3]\n)");
  net.heads.insert("cls", nn::Linear(2, 3, {.bias = false}));  // in its old place
  CHECK(net.heads.size() == 2);
  CHECK(!net.heads.as<nn::Linear>("cls").bias.defined());
  net.heads.erase("act");
  CHECK(!net.heads.contains("act"));
}

TEST_CASE("BI-190 names in containers, and what is not there") {
  nn::ModuleDict d;
  CHECK(error_of([&] { d.insert("a.b", nn::ReLU()); }).find("module name can't contain \".\", got: a.b") !=
        std::string::npos);
  CHECK_THROWS_AS(d.insert("", nn::ReLU()), ValueError);
  CHECK_THROWS_AS(nn::AnyModule()(ones({2})), ValueError);
  CHECK_THROWS_AS(d["none"], ValueError);
  CHECK_THROWS_AS(d.erase("none"), ValueError);
  d.insert("relu", nn::ReLU());
  CHECK_THROWS_AS(d.as<nn::Linear>("relu"), ValueError);
  nn::ParameterDict p;
  CHECK_THROWS_AS(p.insert("a.b", ones(1)), ValueError);
  CHECK_THROWS_AS(p["a"], ValueError);
  CHECK_THROWS_AS(nn::ParameterList()[0], ValueError);
  CHECK_THROWS_AS(nn::ModuleList()[0], ValueError);
}

TEST_CASE("review 11: the modules of a Sequential and a ModuleList are called by number and in a loop") {
  nn::Sequential net(nn::Linear(2, 3), nn::ReLU(), nn::Linear(3, 1));
  const Tensor x = ones({4, 2});
  CHECK(net[2](net[1](net[0](x))).to_vector<float>() == net(x).to_vector<float>());
  CHECK(error_of([&] { net[0](ones({4, 5})); }).find("Linear") != std::string::npos);
  Tensor y = x;
  for (nn::Module& layer : net) y = layer.eval()(y);
  CHECK(y.to_vector<float>() == net(x).to_vector<float>());
  CHECK(!net[2].training);
  nn::ModuleList list(nn::Linear(2, 2), nn::Tanh());
  int64_t n = 0;
  for (auto& layer : list) n += layer.num_parameters();
  CHECK(n == 6);
  for ([[maybe_unused]] auto& none : nn::ModuleList()) CHECK(false);
}

TEST_CASE("review 11: loops over modules and parameters by name, and parameters by number") {
  Heads net;
  std::string names;
  for (auto& [name, head] : net.heads) {
    names += name + " ";
    CHECK(head(ones({1, 2})).dim() == 2);
  }
  CHECK(names == "cls act ");
  for (auto& [name, shift] : net.shifts) CHECK((name == "b" && shift.numel() == 2));
  int64_t n = 0;
  for (Parameter& p : net.scales) n += p.numel();
  CHECK(n == 5);
}
