#pragma once
// Eager and compiled steps side by side.
#include <functional>
#include <vector>

#include <tapir/tapir.h>

#include "../catch.h"
#include "../same_bits.h"

namespace tapir_tests {
using namespace tapir;

/// Equal within rounding.
inline bool same_values(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined() || same_bits(a, b)) return true;
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  NoGrad guard;
  const Tensor x = a.detach().to(kFloat64), y = b.detach().to(kFloat64);
  return isclose(x, y, {.rtol = tolerance, .atol = tolerance, .equal_nan = true}).all().item<bool>();
}
/// Everything that a step of `net` leaves: losses, parameters, gradients, buffers.
template <class Net> std::vector<Tensor> left_by(Net& net) {
  std::vector<Tensor> out;
  for (const auto& [name, p] : net.named_parameters()) {
    out.push_back(p.detach().clone());
    out.push_back(p.grad().defined() ? p.grad().clone() : Tensor());
  }
  for (const auto& [name, b] : net.named_buffers()) out.push_back(b.clone());
  return out;
}

/// How many calls of a compiled function were replays, or were checked and found the same.
template <class F> int64_t replays_of(const Compiled<F>& f) {
  int64_t all = 0;
  const std::string text = f.explain();
  for (const std::string word : {", replayed ", "  checked "})
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
      all += std::atoll(text.c_str() + at + word.size());
  return all;
}

/// run(options) gives the same tensors eager and compiled: without checks, with the usual ones, and with every call checked.
template <class Run> void check_like_eager(Run run) {
  manual_seed(3);
  const std::vector<Tensor> want = run(CompileOptions{.enabled = false});
  for (const double verify : {0., -1., 1.}) {
    manual_seed(3);
    const std::vector<Tensor> got = run(CompileOptions{.verify = verify});
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      INFO("verify " << verify << ", tensor " << i);
      CHECK(same_values(got[i], want[i]));
    }
  }
}
inline Tensor wave(const Shape& shape, double step) {
  return sin(arange(0., double(numel_of(shape)), 1., {.dtype = kFloat32}) * step).reshape(shape);
}
inline Tensor copy_of(const Tensor& x) { return x.defined() ? x.detach().clone() : x; }

/// `make(net)` gives a step of a net, called with `batch(i)`. After each of ten steps eager and compiled code left the same.
template <class MakeNet, class MakeStep, class Batch>
void check_compiled(MakeNet make_net, MakeStep make_step, Batch batch, double tolerance = 1e-5, int steps = 10,
                    const CompileOptions& options = {}) {
  std::vector<std::vector<Tensor>> left[2];
  std::vector<Tensor> losses[2];
  uint64_t offset[2];
  for (int compiled : {0, 1}) {
    manual_seed(7);
    auto net = make_net();
    auto plain = make_step(net);
    auto fast = compile([&](const Tensor& x, const Tensor& y) { return plain(x, y); }, options);
    for (int i = 0; i < steps; ++i) {
      const auto [x, y] = batch(i);
      const Tensor loss = compiled ? fast(x, y) : plain(x, y);
      losses[compiled].push_back(loss.detach().clone());
      left[compiled].push_back(left_by(net));
    }
    offset[compiled] = default_generator().offset();
    if (compiled) {
      INFO(fast.explain().substr(0, 2000));
      CHECK(fast.programs() >= 1);
    }
  }
  CHECK(offset[0] == offset[1]);
  for (int i = 0; i < steps; ++i) {
    INFO("step " << i);
    CHECK(same_values(losses[0][size_t(i)], losses[1][size_t(i)], tolerance));
    REQUIRE(left[0][size_t(i)].size() == left[1][size_t(i)].size());
    for (size_t k = 0; k < left[0][size_t(i)].size(); ++k) {
      INFO("tensor " << k);
      CHECK(same_values(left[0][size_t(i)][k], left[1][size_t(i)][k], tolerance));
    }
  }
}

}  // namespace tapir_tests
