// Where a call is in the user's code: addr2line is asked late, and once.
#include <tapir/autograd/anomaly.h>
#include <tapir/tapir.h>

#include "../io/temporary.h"
#include "../variable.h"
#include "catch.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("the place of a call is looked up when somebody reads of it, not while calls are recorded") {
  const TemporaryFolder folder;
  const std::string path = getenv("PATH"), told = folder / "told";
  spit(folder / "llvm-addr2line", "#!/bin/sh\necho x >> '" + told + "'\nPATH='" + path + "'\nexec addr2line \"$@\"\n");
  REQUIRE(chmod((folder / "llvm-addr2line").c_str(), 0700) == 0);
  const Variable first("PATH", (folder.path + ":" + path).c_str());
  nn::Linear net(3, 2);
  optim::Adam adam(net.parameters());
  auto step = compile([&](const Tensor& x) {
    adam.zero_grad();
    sum(square(net(x))).backward();
    adam.step();  // makes its state in the first call
  });
  step(ones({4, 3}));
  CHECK(slurp(told).empty());
  CHECK(step.explain().find("is kept outside, but not returned") != std::string::npos);
  // A sanitizer's own frames are no place of the user's.
  CHECK(step.explain().find("interceptor") == std::string::npos);
  CHECK(slurp(told).starts_with("x\n"));
  CHECK(slurp(told).size() <= 4);  // once for each file of the program
  const std::string lookups = slurp(told);
  for (int i = 0; i < 8; ++i) step(ones({4, 3}));
  CHECK(step.programs() == 1);
  CHECK(slurp(told) == lookups);
}

TEST_CASE("the place of a call is the user's line where an operator of ours is inlined into it") {
  Tensor kept;
  const auto line = [](int number) { return "places_test.cpp:" + std::to_string(number); };
  CallSite* site = make_call_site();
  const bool lines = describe(site).find(line(__LINE__ - 1)) != std::string::npos;  // else no debug information
  free_call_site(site);
  const auto f = [&kept](const Tensor& x) {
    kept = x + 1;
    return x * 2;
  };
  const std::string kept_at = line(__LINE__ - 3);
  auto fast = compile(f);
  fast(ones({3}));
  CHECK((fast.explain().find(kept_at) != std::string::npos) == lines);
}
