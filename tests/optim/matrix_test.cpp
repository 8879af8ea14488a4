#include <tapir/tapir.h>

#include <cmath>

#include "../catch.h"
#include "muon_golden.h"
using namespace tapir;

TEST_CASE("Muon steps by a matrix with singular values near 1, whatever the gradient's size") {
  for (double size : {1e-3, 1e3}) {
    Tensor w = zeros({4, 6}, {.requires_grad = true});
    optim::Muon opt({w}, {.lr = 1, .weight_decay = 0, .momentum = 0, .nesterov = false});
    Tensor g = zeros({4, 6});
    for (int64_t i = 0; i < 4; ++i) g[i][i] = size * double(i + 1);
    w.set_grad(g);
    opt.step();
    for (int64_t i = 0; i < 4; ++i) CHECK((-w[i][i].item() > 0.6 && -w[i][i].item() < 1.3));
    CHECK(abs(w.detach()).sum().item() == Approx(-diagonal(w.detach()).sum().item()));
  }
}

TEST_CASE("Muon's rate by the shape") {
  const auto moved = [](const char* fn) {
    Tensor w = zeros({8, 2}, {.requires_grad = true});
    optim::Muon opt({w}, {.lr = 1, .weight_decay = 0, .adjust_lr_fn = fn});
    w.set_grad(ones({8, 2}));
    opt.step();
    return w.detach()[0][0].item();
  };
  CHECK(moved("match_rms_adamw") / moved("original") == Approx(0.2 * std::sqrt(8.) / 2).epsilon(1e-5));
  CHECK(moved("spectral_unclamped") == Approx(moved("original")));
  CHECK_THROWS_AS(moved("other"), ValueError);
}

TEST_CASE("a step that found_inf skips leaves what is made of operations as it was") {
  const Tensor bad = ones({}), good = zeros({}), half = full({}, 0.5);
  const auto check_skips = [&](auto make) {
    Tensor a = ones({3, 4}, {.requires_grad = true}), b = ones({3, 4}, {.requires_grad = true});
    auto skipping = make(a), plain = make(b);
    for (int i = 0; i < 3; ++i) {
      a.set_grad(full({3, 4}, INFINITY)), skipping.step({half, bad});
      a.set_grad(arange(12.).reshape({3, 4}) * 2), skipping.step({half, good});
      b.set_grad(arange(12.).reshape({3, 4})), plain.step();
    }
    CHECK(a.to_vector<float>() == b.to_vector<float>());
    CHECK(skipping.state_dict().at("state.0.step").template item<int64_t>() == 3);
  };
  check_skips([](const Tensor& p) { return optim::Muon({p}, {.lr = 0.1}); });
  check_skips([](const Tensor& p) { return optim::Adafactor({p}, {.lr = 0.1}); });
}

TEST_CASE("Adafactor keeps a row and a column of a matrix, all of a vector; eps may be given") {
  Tensor w = ones({2, 3, 4}, {.requires_grad = true}), v = ones({5}, {.requires_grad = true});
  optim::Adafactor opt({w, v}, {.eps = {1e-30, 1e-3}});
  w.set_grad(ones({2, 3, 4})), v.set_grad(ones({5}));
  opt.step();
  const StateDict state = opt.state_dict();
  CHECK(state.at("state.0.row_var").shape() == Shape{2, 3, 1});
  CHECK(state.at("state.0.col_var").shape() == Shape{2, 1, 4});
  CHECK(state.at("state.1.variance").shape() == Shape{5});
  // step 1: the update is the gradient's sign, alpha = max(1e-3, 1) min(0.01, 1)
  CHECK(w[0][0][0].item() == Approx(0.99));
}

TEST_CASE("review 8: ten steps of Muon are PyTorch's") {
  for (size_t k = 0; k < muon_golden.size(); ++k) {
    const MuonGolden& want = muon_golden[k];
    uint64_t state = k + 1;  // the numbers of muon_golden.py
    const auto numbers = [&] {
      std::vector<double> v(size_t(want.shape[0] * want.shape[1]));
      for (double& x : v) state = (state * 1103515245 + 12345) % (1ull << 31), x = double(state >> 8) / (1 << 22) - 1;
      return tensor(std::span<const double>(v), want.shape).to(want.dtype);
    };
    Tensor p = numbers().requires_grad_();
    optim::Muon opt({p}, want.options);
    for (int i = 0; i < 10; ++i) p.set_grad(numbers()), opt.step();
    const Tensor expected = tensor(std::span<const double>(want.after), want.shape).to(want.dtype).to(kFloat64);
    const double largest = abs(expected).max().item(), off = (p.detach().to(kFloat64) - expected).abs().max().item();
    // bfloat16: to one unit in the last place of the largest, since the order of a product's sums decides where it rounds;
    // PyTorch rounds once more where the update is a transposed one
    const double tolerance = want.dtype == kFloat32 ? 1e-5 : want.shape[0] > want.shape[1] ? 1.6e-2 : 0x1p-7;
    INFO(tapir::format("case {}: {} {}", int64_t(k), want.dtype, want.shape));
    CHECK(off <= tolerance * largest);
  }
}
