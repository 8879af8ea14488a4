#include <tapir/tapir.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <variant>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
struct Block : nn::Module {
  nn::Linear fc;
  Buffer mean;
  Parameter scale;
  explicit Block(int64_t n) : fc(n, n, {.bias = false}), mean(zeros(n)), scale(ones(n)) {}
  Tensor forward(const Tensor& x) { return fc(x) * scale; }
  TAPIR_FIELDS(fc, mean, scale)
};
struct Net : nn::Module {
  std::vector<Block> blocks;
  std::optional<nn::Linear> extra;
  nn::Sequential mlp{nn::Linear(2, 4), nn::ReLU(), nn::Linear(4, 2)};
  nn::Linear head{2, 2};
  std::string title = "net";
  Net() {
    for (int i = 0; i < 2; ++i) blocks.emplace_back(2);
    head.weight = blocks[0].fc.weight;  // tied
  }
  Tensor forward(const Tensor& x) { return head(mlp(blocks[1](blocks[0](x)))); }
  TAPIR_FIELDS(title, blocks, extra, mlp, head)
};
struct Wide : Net {
  nn::Linear more{2, 2};
  TAPIR_FIELDS_WITH_BASE(Net, more)
};
struct Careless : Net {};

std::string names_of(auto&& list) {
  std::string out;
  for (auto& [name, t] : list) out += name + " ";
  return out;
}
}  // namespace

TEST_CASE("names follow the fields: own parameters, own buffers, children; a tied one once, in the state twice") {
  Net net;
  CHECK(names_of(net.named_parameters()) ==
        "blocks.0.scale blocks.0.fc.weight blocks.1.scale blocks.1.fc.weight mlp.0.weight mlp.0.bias mlp.2.weight "
        "mlp.2.bias head.bias ");
  CHECK(names_of(net.state_dict()).find("blocks.0.mean ") != std::string::npos);
  CHECK(names_of(net.state_dict()).find("head.weight ") != std::string::npos);
  CHECK(Wide().named_parameters().back().first == "more.bias");
  CHECK(error_of([] { Careless().parameters(); }).find("TAPIR_FIELDS") != std::string::npos);
}

TEST_CASE("BI-197 clone is deep and keeps ties; moves are free") {
  Net net;
  Net twin = net.clone();
  NoGrad guard;
  twin.head.weight.fill_(7);
  CHECK(twin.blocks[0].fc.weight.to_vector<float>()[0] == 7);
  CHECK(net.head.weight.to_vector<float>()[0] != 7);
  CHECK(net.blocks.size() == 2);
  CHECK(twin.title == "net");
  CHECK(twin.str() == net.str());
  Net moved = std::move(net);
  CHECK(moved.named_parameters().size() == 9);
}

TEST_CASE("modules print as in PyTorch") {
  nn::Sequential net(nn::Conv2d(1, 32, 3, {.padding = 1}), nn::BatchNorm2d(32), nn::ReLU(), nn::MaxPool2d(2),
                     nn::Flatten(), nn::Linear(8, 10, {.bias = false}), nn::Dropout(0.5));
  CHECK(net.str() ==
        "Sequential(\n  (0): Conv2d(1, 32, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))\n"
        "  (1): BatchNorm2d(32, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)\n  (2): "
        "ReLU()\n"
        "  (3): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)\n  (4): "
        "Flatten(start_dim=1, end_dim=-1)\n"
        "  (5): Linear(in_features=8, out_features=10, bias=False)\n  (6): Dropout(p=0.5, inplace=False)\n)");
  std::ostringstream out;
  out << net;
  CHECK(out.str() == net.str());
}

TEST_CASE("BI-193, BI-195 load_state_dict tells every difference at once and leaves the module as it was") {
  nn::Linear fc(2, 3);
  const auto before = fc.weight.to_vector<float>();
  const std::string text = error_of([&] { fc.load_state_dict({{"weight", zeros({3, 4})}, {"other", zeros(1)}}); });
  CHECK(text.find("Missing key(s) in state_dict: \"bias\"") != std::string::npos);
  CHECK(text.find("Unexpected key(s) in state_dict: \"other\"") != std::string::npos);
  CHECK(text.find("size mismatch for weight") != std::string::npos);
  CHECK(fc.weight.to_vector<float>() == before);
  const StateDict prefixed{{"module.weight", ones({3, 2}, {.dtype = kFloat64})}, {"module.bias", zeros(3)}};
  CHECK(error_of([&] { fc.load_state_dict(prefixed); }).find("strip_prefix") != std::string::npos);
  fc.load_state_dict(prefixed, {.strip_prefix = "module."});
  CHECK(fc.weight.to_vector<float>() == std::vector<float>(6, 1));
  CHECK_THROWS_AS(fc.load_state_dict({{"weight", zeros({3, 2}, {.dtype = kInt64})}, {"bias", zeros(3)}}),
                  ValueError);  // BI-194
}

TEST_CASE("BI-191 an error names the module") {
  Net net;
  const std::string text = error_of([&] { net(zeros({1, 3})); });
  CHECK(text.find("blocks.0.fc: Linear") != std::string::npos);
}

namespace {
/// Catches what `bad` throws, then fails by itself or in another module.
struct Forgiving : nn::Module {
  nn::Linear bad{2, 2}, good{3, 3};
  int then = 0;
  Tensor forward(const Tensor& x) {
    try {
      bad(x);
    } catch (const ValueError&) {}
    if (then == 1) return good(zeros({1, 7}));
    if (then == 2) return matmul(x, zeros({7, 7}));
    return good(x);
  }
  TAPIR_FIELDS(bad, good, then)
};
struct Outer : nn::Module {
  Forgiving inner;
  Tensor forward(const Tensor& x) { return inner(x); }
  TAPIR_FIELDS(inner)
};
struct Own : ValueError {
  using ValueError::ValueError;
};
struct Throws : nn::Module {
  Tensor forward(const Tensor&) { throw Own("own"); }
  TAPIR_FIELDS()
};
}  // namespace

TEST_CASE("an error that was caught is not the next error's place") {
  Outer net;
  CHECK(net(zeros({1, 3})).shape() == Shape{1, 3});
  net.inner.then = 1;
  const std::string other = error_of([&] { net(zeros({1, 3})); });
  CHECK(other.find("(in module inner.good: Linear)") != std::string::npos);
  net.inner.then = 2;
  const std::string itself = error_of([&] { net(zeros({1, 3})); });
  CHECK(itself.find("(in module inner: Forgiving)") != std::string::npos);
  CHECK(error_of([] { Throws()(ones(1)); }) == "own (in module Throws)");
}

TEST_CASE("to converts inside the handles, train and eval reach everything") {
  Net net;
  Tensor handle = net.head.weight;
  net.to(kFloat64);
  CHECK(handle.dtype() == kFloat64);
  CHECK(handle.requires_grad());
  CHECK(net(zeros({1, 2}, {.dtype = kFloat64})).dtype() == kFloat64);
  CHECK_THROWS_AS(net.to(kInt32), ValueError);  // BI-199
  net.eval();
  CHECK(!net.blocks[1].fc.training);
  CHECK(!net.mlp[2].training);
}

TEST_CASE("BI-196, BI-206, BI-208 optimizers and tied, doubled and idle parameters") {
  Net net;
  optim::AdamW opt(net.parameters(), {.lr = 0.1});
  sum(net(ones({1, 2}))).backward();
  opt.step();
  const auto idle = net.head.bias.to_vector<float>();
  opt.zero_grad();
  net.mlp[0].named_parameters()[0].second.set_grad(ones({4, 2}));
  opt.step();
  CHECK(net.head.bias.to_vector<float>() == idle);
  CHECK(opt.state_dict().at("state.4.step").item<int64_t>() == 2);
  CHECK(opt.state_dict().at("state.8.step").item<int64_t>() == 1);
  CHECK_THROWS_AS(optim::SGD({net.head.bias, net.head.bias}), ValueError);
  CHECK_THROWS_AS(optim::SGD(std::vector<Tensor>{}), ValueError);                                // BI-205
  CHECK_THROWS_AS(optim::AdamW(net.parameters(), {.lr = -1}), ValueError);                       // BI-204
  CHECK_THROWS_AS(optim::SGD(std::vector<Tensor>{net.head.bias * 2}), ValueError);               // BI-207
  CHECK_THROWS_AS(optim::SGD(net.parameters(), {.momentum = 0, .nesterov = true}), ValueError);  // BI-212
}

TEST_CASE("an optimizer's state goes to a file and back") {
  nn::Linear a(3, 2), b = a.clone();
  optim::AdamW one(a.parameters()), two(b.parameters());
  const Tensor x = ones({4, 3});
  const auto step = [&](nn::Linear& m, optim::AdamW& o) {
    o.zero_grad();
    sum(m(x) * m(x)).backward();
    o.step();
  };
  for (int i = 0; i < 3; ++i) step(a, one);
  b.load_state_dict(a.state_dict());
  two.load_state_dict(one.state_dict());
  for (int i = 0; i < 3; ++i) step(a, one), step(b, two);
  CHECK(a.weight.to_vector<float>() == b.weight.to_vector<float>());
  CHECK_THROWS_AS(optim::SGD(b.parameters(), {.momentum = 0.9}).load_state_dict(one.state_dict()),
                  ValueError);  // BI-211
}

namespace {
/// Two fields share an encoder, one of them by its base; another two share a parameter.
struct Sharing : nn::Module {
  std::shared_ptr<nn::Linear> online = std::make_shared<nn::Linear>(2, 2);
  std::shared_ptr<nn::Module> same = online;
  std::vector<std::shared_ptr<Parameter>> scales{std::make_shared<Parameter>(ones(2))};
  std::map<std::string, std::shared_ptr<Parameter>> named{{"scale", scales[0]}};
  std::shared_ptr<std::vector<nn::Linear>> stack = std::make_shared<std::vector<nn::Linear>>();
  std::shared_ptr<std::string> title = std::make_shared<std::string>("plain");
  std::shared_ptr<nn::Module> absent;
  Sharing() { stack->emplace_back(2, 2); }
  Tensor forward(const Tensor& x) { return (*stack)[0]((*online)(x)) * *scales[0]; }
  TAPIR_FIELDS(online, same, scales, named, stack, title, absent)
};
}  // namespace

TEST_CASE("review 2: clone() copies what shared pointers hold, and what fields share stays shared") {
  Sharing net;
  Sharing target = net.clone();
  CHECK(names_of(target.state_dict()) == names_of(net.state_dict()));
  const auto before = target(ones({1, 2})).to_vector<float>();
  CHECK(before == net(ones({1, 2})).to_vector<float>());
  optim::SGD opt(net.parameters(), {.lr = 0.5});
  sum(net(ones({1, 2}))).backward();
  opt.step();
  CHECK(net(ones({1, 2})).to_vector<float>() != before);
  CHECK(target(ones({1, 2})).to_vector<float>() == before);
  for (const Tensor& mine : net.parameters())
    for (const Tensor& other : target.parameters()) CHECK(mine.data_ptr() != other.data_ptr());
  CHECK(target.parameters().size() == net.parameters().size());

  CHECK(target.online.get() != net.online.get());
  CHECK(target.same.get() == target.online.get());
  CHECK(target.online.use_count() == 2);
  CHECK(target.named.at("scale") == target.scales[0]);
  CHECK(target.scales[0] != net.scales[0]);
  CHECK(target.stack != net.stack);
  CHECK(target.title == net.title);  // data that is no tensor's stays shared
  CHECK(!target.absent);
}

namespace {
struct Pointers : nn::Module {
  std::shared_ptr<nn::Module> first;
  std::shared_ptr<nn::Linear> second;
  std::shared_ptr<Parameter> weight;
  Pointers() : second(std::make_shared<nn::Linear>(2, 3)), weight(second, &second->weight) { first = second; }
  TAPIR_FIELDS(first, second, weight)
};
}  // namespace

TEST_CASE("review 2: a module behind a pointer to its base is cloned as what it is, in whatever order") {
  Pointers net, twin = net.clone();
  CHECK(dynamic_cast<nn::Linear*>(twin.first.get()) == twin.second.get());
  CHECK(twin.second->weight.is_same(*twin.weight));
  CHECK(!twin.weight->is_same(*net.weight));
  CHECK(twin.weight->requires_grad());
}

namespace {
struct Cache {
  Tensor keys;
};
}  // namespace
template <> inline constexpr bool tapir::nn::plain_field<Cache> = true;

namespace {
struct Listed : nn::Module {
  std::map<int, nn::Linear> heads;
  std::vector<std::map<int64_t, Parameter>> scales{2};
  std::shared_ptr<nn::Linear> fc = std::make_shared<nn::Linear>(1, 1, nn::LinearOptions{.bias = false});
  Cache cache{ones(2)};
  const int64_t size = 3;
  std::vector<bool> bits{true};
  Listed() {
    heads.emplace(7, nn::Linear(2, 2, {.bias = false}));
    heads.emplace(-1, nn::Linear(2, 2, {.bias = false}));
    scales[1].emplace(3, ones(2));
  }
  TAPIR_FIELDS(heads, scales, fc, cache, size, bits)
};
}  // namespace

TEST_CASE("review 3: fields in maps by number, in maps in vectors and behind shared pointers are registered") {
  Listed net, twin = net.clone();
  CHECK(names_of(net.state_dict()) == "scales.1.3 heads.-1.weight heads.7.weight fc.weight ");
  CHECK(names_of(twin.named_parameters()) == names_of(net.named_parameters()));
  CHECK(!twin.heads.at(7).weight.is_same(net.heads.at(7).weight));
  CHECK(!twin.scales[1].at(3).is_same(net.scales[1].at(3)));
  CHECK(twin.cache.keys.is_same(net.cache.keys));
  CHECK(twin.bits == net.bits);
}

TEST_CASE("review 3: what a type holds, and what of it the walk over fields does not reach") {
  using nn::detail::hidden_field, nn::detail::holds;
  struct Late {
    std::optional<float> p;
    std::function<Tensor(const Tensor&)> f;
    int numbers[3];
    std::variant<int, float> either;
    std::vector<nn::Linear> layers;
  };
  struct Two {
    nn::Linear a, b;  // no default constructor
  };
  struct Inner {
    int n;
    Two two;
  };
  struct Derived : Inner {
    int m;
  };
  struct Placed {
    Device where;
    Tensor keys;
  };
  struct Made {
    TensorOptions options;
    Tensor keys;
  };
  STATIC_REQUIRE(hidden_field<Placed>);
  STATIC_REQUIRE(hidden_field<Made>);
  STATIC_REQUIRE(hidden_field<Late>);
  STATIC_REQUIRE(hidden_field<Two>);
  STATIC_REQUIRE(hidden_field<Inner>);
  STATIC_REQUIRE(hidden_field<Derived>);
  STATIC_REQUIRE(hidden_field<std::optional<std::pair<int, Tensor>>>);
  STATIC_REQUIRE(hidden_field<std::map<std::string, std::tuple<int, Parameter>>>);
  STATIC_REQUIRE(hidden_field<const std::map<int, nn::Linear>>);
  STATIC_REQUIRE(hidden_field<std::reference_wrapper<nn::Linear>>);
  STATIC_REQUIRE(!hidden_field<std::optional<std::vector<std::unique_ptr<nn::Module>>>>);
  STATIC_REQUIRE(!hidden_field<std::vector<std::pair<std::string, nn::AnyModule>>>);
  STATIC_REQUIRE(!hidden_field<std::array<Parameter, 3>>);
  STATIC_REQUIRE(!hidden_field<std::vector<Tensor>>);
  STATIC_REQUIRE(!holds<std::function<Tensor(const Tensor&)>, 5>());
  STATIC_REQUIRE(!holds<nn::ConvOptions, 5>());
}

namespace {
/// Has an eval() and a train() of its own.
struct Frozen : nn::Module {
  nn::BatchNorm1d norm{2};
  int evals = 0, epochs = 0;
  void eval() { ++evals, Module::eval(); }
  void train(const std::string&) { ++epochs; }
  Tensor forward(const Tensor& x) { return norm(x); }
  TAPIR_FIELDS(norm, evals, epochs)
};
}  // namespace

TEST_CASE("review 11: to, cuda, cpu, train, eval and requires_grad_ return the module as what it is") {
  Net net;
  const Tensor handle = net.head.weight;
  STATIC_REQUIRE(std::is_same_v<decltype(net.to(kCPU)), Net&>);
  STATIC_REQUIRE(std::is_same_v<decltype(Net().to(kCPU)), Net>);
  STATIC_REQUIRE(std::is_same_v<decltype(net.cuda()), Net&>);
  CHECK(&net.to("cpu").to(std::string("cpu")).cpu().to(kFloat64).train(false).eval().requires_grad_(false) == &net);
  CHECK(!net.blocks[1].fc.training);
  CHECK(handle.dtype() == kFloat64);
  CHECK(!handle.requires_grad());
  CHECK(net.train().to(kCPU, kFloat32).requires_grad_()(zeros({1, 2})).dtype() == kFloat32);
  CHECK_THROWS_AS(net.to("gpu"), ValueError);
  CHECK_THROWS_AS(net.to(kInt64), ValueError);

  auto made = Wide().to("cpu").eval();  // moved, not copied
  STATIC_REQUIRE(std::is_same_v<decltype(made), Wide>);
  CHECK(!made.more.training);
  auto moved = std::move(net).to(kFloat64);
  CHECK(moved.head.weight.is_same(handle));
  nn::Module& base = moved;
  CHECK(&base.to(kFloat32).eval() == &base);
  CHECK(base(zeros({1, 2})).shape() == Shape{1, 2});

  Frozen frozen;
  frozen.eval();
  frozen.train("data");
  CHECK(frozen.evals == 1);
  CHECK(frozen.epochs == 1);
  CHECK(!frozen.norm.training);
  CHECK(&frozen.train() == &frozen);
  CHECK(frozen.norm.training);
}

TEST_CASE("review 11: channels-last in a chain") {
  nn::Conv2d conv(3, 4, 3);
  CHECK(conv.to(MemoryFormat::ChannelsLast).eval().weight.is_contiguous(MemoryFormat::ChannelsLast));
}
