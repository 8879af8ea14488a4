// Two hundred random functions compiled, by the default options, without .rows and in deterministic mode: ten calls leave what ten eager ones
// leave, and replays of one program are bitwise equal.
#include "random_steps.h"

using namespace tapir;
using namespace tapir_tests;

/// Bits: eager's are expected, else its values within rounding.
static void compare_programs(const CompileOptions& options, bool bits) {
  int replayed = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    INFO("program " << seed);
    const Trace eager = ten_steps(seed, false), compiled = ten_steps(seed, true, options),
                again = ten_steps(seed, true, options);
    replayed += compiled.programs > 0;
    CHECK(eager.offset == compiled.offset);
    for (size_t i = 0; i < eager.left.size(); ++i)
      for (size_t k = 0; k < eager.left[i].size(); ++k) {
        INFO("step " << i << ", tensor " << k);
        if (bits) REQUIRE(same_bits(eager.left[i][k], compiled.left[i][k]));
        else REQUIRE(same_values(eager.left[i][k], compiled.left[i][k], 1e-4));
        REQUIRE(same_bits(compiled.left[i][k], again.left[i][k]));
      }
  }
  CHECK(replayed == 200);
}

TEST_CASE("200 random programs: compiled steps without .rows are eager's, bit for bit") {
  compare_programs({.rows = false}, true);
}
TEST_CASE("200 random programs: compiled steps are eager's within rounding") { compare_programs({}, false); }
TEST_CASE("200 random programs: in deterministic mode compiled steps are eager's, bit for bit") {
  const ScopedMode<bool> deterministic(modes.deterministic, true);
  compare_programs({}, true);
}
