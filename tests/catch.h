// The test framework, Catch2 2.13 or 3: tests include this and nothing of catch2/ themselves.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

/// Leaves the test case as skipped, with a line that says why: `SKIP_TEST("no data in ...")`. Not inside a lambda.
#define SKIP_TEST(why)                   \
  do {                                   \
    tapir_tests::skipped(__LINE__, why); \
    return;                              \
  } while (false)

namespace tapir_tests {
void skipped(int line, const char* why);
}
