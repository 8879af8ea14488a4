#include <atomic>

#include <tapir/core/allocator.h>
#include <tapir/core/backend.h>
#include <tapir/core/error.h>
#include <tapir/core/parallel.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::message_of;

TEST_CASE("scratch lives until the next kernel's context") {
  context(kCPU);
  const int64_t before = memory_stats().allocated;
  Context& ctx = context(kCPU);
  auto* a = ctx.scratch_of<double>(1000);
  auto* b = static_cast<char*>(ctx.scratch(10));
  CHECK(reinterpret_cast<uintptr_t>(a) % 64 == 0);
  CHECK(reinterpret_cast<uintptr_t>(b) % 64 == 0);
  a[999] = 1, b[9] = 2;
  CHECK(memory_stats().allocated >= before + 8010);
  context(kCPU);
  CHECK(memory_stats().allocated == before);
  CHECK_THROWS_AS(ctx.scratch(int64_t(1) << 50), OutOfMemoryError);
  for (int i = 0; i < 16; ++i) ctx.scratch(0);
  CHECK_THROWS_AS(ctx.scratch(1), InternalError);
  context(kCPU);
}

TEST_CASE("the bad value of the lowest position is kept, from any thread") {
  Context& ctx = context(kCPU);
  CHECK(!ctx.error.set);
  check_values(ctx, "never thrown");
  parallel_for(1000, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      if (i % 7 == 3) ctx.bad_value(i, -i, 50);
  });
  CHECK(message_of<ValueError>([&] {
          check_values(ctx,
                       "[embedding] index {value} at position {position} is out of range for {bound} rows ({bound})");
        }) == "[embedding] index -3 at position 3 is out of range for 50 rows (50)");
  CHECK(!context(kCPU).error.set);
}

TEST_CASE("a context knows its device and the deterministic mode") {
  ScopedMode guard(modes.deterministic, true);
  CHECK(context(kCPU).deterministic);
  CHECK(context(kCPU).device == kCPU);
}
