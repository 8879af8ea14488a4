// .max_autotune: which convolution runs is decided by trial, kept on disk, and followed.
#include "../same_bits.h"
#include "catch.h"

#include <tapir/core/choices.h>
#include <tapir/tapir.h>

#include <fstream>
#include <string>

using namespace tapir;
using tapir_tests::same_bits;

namespace {

struct Direct {
  bool before = backends::cpu::allow_winograd();
  Direct() { backends::cpu::set_allow_winograd(false); }
  ~Direct() { backends::cpu::set_allow_winograd(before); }
};

/// The key of the last choice on disk that has these words.
std::string kept_key(const std::string& words) {
  std::string key;
  std::ifstream file(path_of_choices());
  for (std::string line; std::getline(file, line);)
    if (const size_t at = line.find('\t'), end = line.rfind('\t'); end != at && line.find(words) != std::string::npos)
      key = line.substr(at + 1, end - at - 1);
  return key;
}

}  // namespace

TEST_CASE("max_autotune: the faster convolution is found by trial, and what was kept is followed") {
  const Tensor x = randn({2, 48, 30, 31}), w = randn({64, 48, 3, 3}) / 21, b = randn({64});
  const auto f = [&](const Tensor& x) {
    NoGrad guard;
    return conv2d(x, w, b, {.padding = {1, 1}});
  };
  const Tensor by_tiles = f(x);
  const Tensor direct = [&] {
    const Direct off;
    return f(x);
  }();
  REQUIRE_FALSE(same_bits(by_tiles, direct));  // else nothing is seen of the choice
  auto fast = compile(f, {.verify = 0, .max_autotune = true});
  for (int i = 0; i < 6; ++i) {
    const Tensor y = fast(x);
    CHECK((same_bits(y, by_tiles) || same_bits(y, direct)));
  }
  CHECK(fast.programs() == 1);
  const std::string key = kept_key("|conv 0 float32 float32 2 48 64 30 31 1 1 ");
  REQUIRE(!key.empty());
  const std::string found = kept_choices().find(key);
  CHECK(same_bits(fast(x), found == "winograd" ? by_tiles : direct));
  for (const std::string choice : {"direct", "winograd", "direct"}) {
    kept_choices().keep(key, choice);
    CHECK(same_bits(fast(x), choice == "winograd" ? by_tiles : direct));
  }
  CHECK(same_bits(f(x), by_tiles));  // eager code, and programs without the option, go by rules
  auto plain = compile(f, {.verify = 0});
  for (int i = 0; i < 6; ++i) CHECK(same_bits(plain(x), by_tiles));
  kept_choices().keep(key, found);
  const Direct off;  // what is not allowed is not tried
  CHECK(same_bits(fast(x), direct));
}

TEST_CASE("max_autotune: a training step is eager's within rounding") {
  const auto train = [](bool compiled, const CompileOptions& options) {
    manual_seed(5);
    nn::Sequential net(nn::Conv2d(32, 32, 3, {.padding = {1, 1}}), nn::ReLU(), nn::Conv2d(32, 48, 3), nn::Flatten(),
                       nn::Linear(48 * 14 * 14, 10));
    optim::SGD opt(net.parameters(), {.lr = 1e-3});
    const Tensor x = randn({4, 32, 16, 16}), y = tensor({1, 2, 3, 4});
    const auto f = [&] {
      opt.zero_grad();
      const Tensor loss = cross_entropy(net(x), y);
      loss.backward();
      opt.step();
      return loss;
    };
    auto step = compile(f, options);
    std::vector<Tensor> left;
    for (int i = 0; i < 8; ++i) left.push_back(compiled ? step() : f().detach());
    for (const Tensor& p : net.parameters()) left.push_back(p.detach().clone());
    if (compiled) CHECK(step.programs() == 1);
    return left;
  };
  const std::vector<Tensor> eager = train(false, {}), tuned = train(true, {.verify = 0, .max_autotune = true});
  for (size_t i = 0; i < eager.size(); ++i) CHECK(allclose(eager[i], tuned[i], {.rtol = 1e-4, .atol = 1e-5}));
}
