#include "../catch.h"

#include <tapir/core/backend.h>

#include <string>

#if defined(__x86_64__)
// The check itself, compiled as for a CPU that has an extension which AMD gave up in 2017.
#define TAPIR_ARCH_ISA X("sse4.2") X("xop")
#define check_cpu check_old_cpu
#include "../../cpu_kernels/isa.cpp"
#undef check_cpu

TEST_CASE("BI-100 a build for another CPU says what it is for, what the CPU has and what it lacks") {
  if (__builtin_cpu_supports("xop")) SKIP_TEST("this CPU has xop");
  CHECK_THROWS_AS(tapir::check_old_cpu(), tapir::RuntimeError);
  try {
    tapir::check_old_cpu();
  } catch (const tapir::RuntimeError& e) {
    const std::string text = e.what();
    CHECK(text.find("is for CPUs with sse4.2 xop; this CPU has sse4.2, but lacks xop") != std::string::npos);
  }
}
#endif

TEST_CASE("the CPU's table is built in, and no other") {
  CHECK(tapir::built_in_backend(tapir::DeviceType::CPU) != nullptr);
  CHECK(tapir::built_in_backend(tapir::DeviceType::CUDA) == nullptr);
}
