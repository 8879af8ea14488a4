// The test framework, Catch2 2.13 or 3: tests include this and nothing of catch2/ themselves.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
#include <string>

/// Leaves the test case as skipped, with a line that says why: `SKIP_TEST("no data in ...")`. Not inside a lambda.
#define SKIP_TEST(why)                   \
  do {                                   \
    tapir_tests::skipped(__LINE__, why); \
    return;                              \
  } while (false)

namespace tapir_tests {
void skipped(int line, const char* why);
/// Catch2's filter for the test case of this name; with a `*` at its end, for all whose names begin so.
std::string filter_of(const std::string& name);
/// Runs those test cases in a process of their own, under other settings ("A=1 B=2"): 0 where at least one passed and none failed.
int run_alone(const std::string& settings, const std::string& name);
std::string own_path();
/// What starts this program, for a shell: where an emulator runs it, by that.
std::string own_command();
}  // namespace tapir_tests
