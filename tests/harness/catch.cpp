#include "../catch.h"

#include <sys/wait.h>

#include <cstdlib>

using tapir_tests::run_alone;

TEST_CASE("a name with, comma \"quote\" [x] * back\\slash is found by --folder", "[harness]") { CHECK(Approx(1) == 1); }

TEST_CASE("~a name [with] all that, \"in\" Catch2's filters\\, means something: *", "[.]") {
  CHECK(std::getenv("TAPIR_ALONE"));
}
TEST_CASE("alone: fails", "[.]") { FAIL("on purpose"); }
TEST_CASE("alone: is skipped", "[.]") { SKIP_TEST("on purpose"); }

TEST_CASE("review 1: a test case is run alone by its name, and no such name is a failure") {
  CHECK(run_alone("TAPIR_ALONE=1", "~a name [with] all that, \"in\" Catch2's filters\\, means something: *") == 0);
  CHECK(run_alone("TAPIR_ALONE=1", "~a name [with] all*") == 0);
  CHECK(run_alone("", "~a name [with] all*") != 0);  // the setting counts
  CHECK(run_alone("", "alone: fails") != 0);
  CHECK(run_alone("", "alone: is skipped") != 0);  // nothing passed
  CHECK(run_alone("", "no such name") != 0);
  CHECK(run_alone("", "no such name, with a comma") != 0);
}

TEST_CASE("review 1: a filter that matches nothing is a failure") {
  const auto status = [](const std::string& arguments) {
    const int s = std::system((tapir_tests::own_command() + " " + arguments + " > /dev/null 2>&1").c_str());
    return WIFEXITED(s) ? WEXITSTATUS(s) : -1;
  };
  CHECK(status("'a name with*'") == 0);
  CHECK(status("nosuchname") == 2);
  CHECK(status("[nosuchtag]") == 2);
  CHECK(status("--folder nosuchfolder") == 2);
  CHECK(status("--folder") != 0);
}
