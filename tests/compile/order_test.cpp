#include <tapir/compile/passes/passes.h>
#include <tapir/compile/plan/plan.h>

#include "program_bits.h"
#include "random_steps.h"

using namespace tapir;
using namespace tapir_tests;
using ir::Program;

namespace {

int64_t most_of(const Program& p) { return ir::most_live_bytes(p, std::vector<bool>(p.blocks.size())); }

}  // namespace

TEST_CASE("sums that wait for nothing are made before the tensors they are of pile up") {
  const Tensor x = randn({64, 64});
  ir::Recording recording(std::array{x});
  std::vector<Tensor> large, small;
  for (int i = 0; i < 8; ++i) large.push_back(matmul(x, x * double(i)));
  for (const Tensor& y : large) small.push_back(sum(y));
  Tensor all = small[0];
  for (int i = 1; i < 8; ++i) all = all + small[size_t(i)];
  large.clear(), small.clear();
  const Program program = recording.finish(std::array{all});
  Program ordered = program;
  ir::order_calls(ordered);
  INFO(to_string(ordered));
  CHECK(ordered.calls.size() == program.calls.size());
  CHECK(most_of(program) > 7 * x.numel() * 4);
  CHECK(most_of(ordered) < 3 * x.numel() * 4);
  check_same_bits(program, ordered);
  Program again = program;
  ir::order_calls(again);
  CHECK(to_string(again) == to_string(ordered));
}

TEST_CASE("hazards keep their order") {
  Tensor state = randn({32, 32});
  ir::Recording recording;
  const Tensor a = matmul(state, state), b = matmul(a, state);
  state.mul_(2);
  const Tensor c = matmul(state, state);
  state.narrow(0, 0, 4).add_(1);
  const Tensor d = sum(b) + sum(c) + sum(a) + sum(state);
  const Program program = recording.finish(std::array{d});
  Program ordered = program;
  ir::order_calls(ordered);
  check_same_bits(program, ordered);
}

TEST_CASE("random programs in another order give the same bits") {
  int64_t before = 0, after = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("program " << seed);
    const Program program = recorded_program(seed);
    Program ordered = program;
    ir::order_calls(ordered);
    before += most_of(program), after += most_of(ordered);
    CHECK(most_of(ordered) <= most_of(program));
    check_same_bits(program, ordered);
  }
  CHECK(after < before);
}

TEST_CASE("the order of calls changes no compiled step") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    INFO("program " << seed);
    const Trace with = ten_steps(seed, true), without = ten_steps(seed, true, {.order = false});
    for (size_t i = 0; i < with.left.size(); ++i)
      for (size_t k = 0; k < with.left[i].size(); ++k) REQUIRE(same_bits(with.left[i][k], without.left[i][k]));
  }
}
