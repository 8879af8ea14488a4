// In a step of an optimizer denormal numbers count as 0, on a device too: Note [Denormal numbers] of core/denormals.h.
#include <tapir/core/denormals.h>

#include <algorithm>

#include "../modes.h"
#include "../optim/every_optimizer.h"
#include "kernels.h"

using namespace tapir;
using namespace tapir_tests;

namespace {
/// Muon goes through bfloat16, and orders of sums differ.
double allowed(const AnyOptimizer& any, DType dtype) {
  return std::string(any.name) == "Muon" ? 0.05 : dtype == kBFloat16 ? 0.04 : 1e-4;
}
}  // namespace

TEST_CASE("cuda: denormal numbers count as 0 in a step of every optimizer, as on the CPU") {
  NEEDS_CUDA
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const AnyOptimizer& any : every_optimizer) {
      CAPTURE(any.name, std::string(name_of(dtype)));
      const StateDict small = stepped(any, dtype, kCUDA, Small::Denormal),
                      zero = stepped(any, dtype, kCUDA, Small::Zero);
      CHECK(compared(small, zero).different == 0);
      CHECK(compared(small, zero).denormal == 0);
      const StateDict squares = stepped(any, dtype, kCUDA, Small::Squares),
                      here = stepped(any, dtype, kCPU, Small::Squares);
      CHECK(compared(squares, here).denormal == 0);
      for (auto& [name, t] : here) {
        CAPTURE(name);
        CHECK(difference(squares.at(name).contiguous(), t.contiguous()) < allowed(any, dtype));
      }
    }
}

TEST_CASE("cuda: operations keep denormal numbers, whatever the calling thread does with its own") {
  NEEDS_CUDA
  const Tensor x = full({1000}, 0x1p-100, {.device = kCUDA}), y = full({1000}, 0x1p-130, {.device = kCUDA});
  const auto kept = [&] { return sum(x * 0x1p-30 == y).item<int64_t>(); };
  CHECK(kept() == 1000);
  {
    const detail::FlushDenormals scope(kFloat32);
    CHECK(kept() == 1000);
  }
  const FlushDenormal on(true);
  CHECK(kept() == 1000);
}

TEST_CASE("cuda: a compiled step leaves no denormal numbers") {
  NEEDS_CUDA
  for (const char* name : {"AdamW", "Adafactor"}) {
    CAPTURE(name);
    const auto named = [&](const AnyOptimizer& any) { return std::string(any.name) == name; };
    manual_seed(5);
    Tensor p = randn({12, 7}).to(kCUDA).requires_grad_();
    const auto opt = std::find_if(std::begin(every_optimizer), std::end(every_optimizer), named)->make({p});
    auto step = compile(
        [&](const Tensor& g) {
          p.set_grad(g * 1);
          opt->step();
        },
        {.verify = 0, .background = false});
    for (int i = 0; i < 12; ++i)
      step(i % 2 ? with_small(randn({12, 7}), 1, Small::Squares).to(kCUDA)
                 : full({12, 7}, 0x1p-130, {.device = kCUDA}));
    CHECK(step.programs() == 1);
    for (auto& [at, t] : opt->state_dict()) CHECK(denormals_in(t) == 0);
    CHECK(denormals_in(p) == 0);
  }
}
