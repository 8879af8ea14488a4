#include "../../cpu_kernels/isa.h"

#include <tapir/tapir.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "../catch.h"
#include "../errors.h"

using namespace tapir;

namespace {

/// Three levels of a CPU that lacks what the best one needs.
const std::vector<CpuLevel> three = {{"best", nullptr, {{"sse4.2", true}, {"avx2", true}, {"xop", false}}},
                                     {"good", nullptr, {{"sse4.2", true}, {"avx2", true}}},
                                     {"old", nullptr, {{"sse4.2", true}}}};
std::string chosen(const char* wanted) { return choose_level(three, wanted).name; }

}  // namespace

TEST_CASE("BI-100 a build for another CPU says what it is for, what the CPU has and what it lacks") {
  const std::vector<CpuLevel> one = {{"best", nullptr, {{"sse4.2", true}, {"xop", false}}}};
  for (const char* wanted : {"", "best", "other"}) {
    CHECK_THROWS_AS(choose_level(one, wanted), RuntimeError);
    try {
      choose_level(one, wanted);
    } catch (const RuntimeError& e) {
      const std::string text = e.what();
      CHECK(text.find("is for CPUs with sse4.2 xop; this CPU has sse4.2, but lacks xop") != std::string::npos);
    }
  }
}

TEST_CASE("levels: the best that the CPU runs, or what TAPIR_ISA says") {
  CHECK(chosen(nullptr) == "good");
  CHECK(chosen("") == "good");
  CHECK(chosen("good") == "good");
  CHECK(chosen("old") == "old");
  CHECK(error_of([] { chosen("best"); }) ==
        "[cpu] expected TAPIR_ISA to be a level that this CPU runs (old, good), got best, for which it lacks xop");
  for (const char* wanted : {"AVX2", "goo", "good ", "good,old"})
    CHECK(error_of([&] { chosen(wanted); }) ==
          "[cpu] expected TAPIR_ISA to be a level that is built in (old, good, best), got " + std::string(wanted));
}

TEST_CASE("levels: those of this build are named, and each says what it needs") {
  const auto& levels = cpu_levels();
  REQUIRE(!levels.empty());
  const std::string report = backends::cpu::capability_report();
  CHECK(report.starts_with(backends::cpu::get_cpu_capability() + ": "));
  for (size_t i = 0; i < levels.size(); ++i) {
    CHECK(levels[i].table != nullptr);
    if (levels.size() == 1) continue;
    CHECK(report.find(levels[i].name) != std::string::npos);
    CHECK(!levels[i].needs.empty());
    if (i == 0) continue;
    CHECK(levels[i].table != levels[i - 1].table);
    CHECK(levels[i].needs.size() < levels[i - 1].needs.size());
  }
}

TEST_CASE("alone: kernels of the level that TAPIR_ISA names", "[.]") {
  const char* const wanted = std::getenv("TAPIR_ISA");
  REQUIRE(wanted);
  const Tensor x = arange(1000).to(kFloat32);
  CHECK(sum(x * x).item<float>() == Approx(332833500.0));
  CHECK(backends::cpu::get_cpu_capability() == wanted);
  CHECK(built_in_backend(DeviceType::CPU) == choose_level(cpu_levels(), wanted).table);
  const bool told = backends::cpu::capability_report().starts_with(std::string(wanted) + ": what TAPIR_ISA says");
  CHECK(told == (cpu_levels().size() > 1));
}

TEST_CASE("levels: each that this CPU runs is chosen by TAPIR_ISA, and no other") {
  for (const CpuLevel& level : cpu_levels()) {
    const bool runs =
        std::all_of(level.needs.begin(), level.needs.end(), [](const CpuExtension& e) { return e.there; });
    const std::string name = level.name;
    if (runs)
      CHECK(tapir_tests::run_alone("TAPIR_ISA=" + name, "alone: kernels of the level that TAPIR_ISA names") == 0);
    else
      CHECK(error_of([&] { choose_level(cpu_levels(), level.name); }).find(", got " + name + ", for which it lacks ") !=
            std::string::npos);
  }
}

TEST_CASE("the CPU's table is built in, and no other") {
  CHECK(built_in_backend(DeviceType::CPU) == cpu_level().table);
  CHECK(built_in_backend(DeviceType::CUDA) == nullptr);
}
